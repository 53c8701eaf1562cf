import torch
from torch import Tensor, nn
from torch.nn import functional

from neuralcov.tap import rules


def test_every_name_is_one_of_torchs():
    places = (torch, functional, Tensor)
    assert [name for name in rules.RULES if not any(hasattr(place, name) for place in places)] == []


def test_captums_rules_are_themselves_left_alone():
    """Their hooks keep relevance in the class unless told otherwise."""
    from captum.attr._utils.lrp_rules import PropagationRule

    from neuralcov.tap import Batch, Tap

    Tap(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Conv2d(2, 2, 3), nn.Flatten(), nn.Linear(8, 3))).run(
        Batch(torch.randn(2, 1, 6, 6)), relevance=True
    )
    assert PropagationRule.relevance_input == {}
    assert PropagationRule.relevance_output == {}


def test_endings_keep_their_values():
    assert not rules.ENDINGS & rules.VALUELESS
