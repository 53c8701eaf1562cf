"""Stages of a pipeline, each measured in its own process, against one process that holds the whole network."""

import pytest
import torch

from tests.distributed import pipeline_ranks as ranks
from tests.distributed.group_ranks import spawned

pytestmark = [
    pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="needs gloo"),
    pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning"),
]


@pytest.fixture(scope="module", params=(2, 4), ids=lambda size: f"{size} stages")
def stages(request, tmp_path_factory):
    return spawned(ranks.work, request.param, tmp_path_factory.mktemp("pipeline"))


def test_values_are_those_of_the_whole_network(stages):
    whole = ranks.whole()
    values, details = whole.values(), whole.details()
    for rank in (stage["united"] for stage in stages):
        assert rank["inputs"] == whole.inputs == 60
        assert rank["layers"] == list(whole.layout)
        assert rank["model"] == " + ".join(["Sequential"] * len(stages))
        for name in (criterion.name for criterion in ranks.EXACT):
            assert rank["values"][name] == values[name], name
        for name in (criterion.name for criterion in ranks.ROUNDED):
            assert rank["values"][name] == pytest.approx(values[name], rel=1e-12, abs=0), name
            assert "beyond" in details[name]
            assert name not in rank["details"]  # a length is that over all layers
        assert "KMNC(10)" not in rank["details"]  # nor do stages deal inputs to the same folds


def test_all_ranks_hold_the_same_to_the_bit(stages):
    for rank in stages[1:]:
        assert rank["united"]["states"] == stages[0]["united"]["states"]


def test_criteria_that_look_at_all_layers_are_refused_in_all_ranks(stages):
    said = [stage["refused"] for stage in stages]
    assert all("TKNP(2) looks at several layers of an input together" in sentence for _, sentence in said)
    assert said[0][0] == "MismatchError"


def test_a_stage_without_inputs_is_named(stages):
    for kind, sentence in (stage["idle"] for stage in stages):
        assert kind == "MismatchError"
        assert sentence == f"rank {len(stages) - 1} has observed nothing: every stage needs the same inputs"
