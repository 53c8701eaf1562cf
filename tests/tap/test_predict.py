import warnings
from collections import namedtuple
from types import SimpleNamespace

import pytest
import torch

import neuralcov as nc
from neuralcov.tap.outputs import checked_classes, predicted_classes

SCORES = torch.tensor([[0.0, 2.0, 2.0], [3.0, 1.0, 3.0]])


@pytest.mark.parametrize(
    "output",
    [
        SCORES,
        (SCORES, None),
        {"scores": SCORES},
        SimpleNamespace(logits=SCORES),
        namedtuple("Output", "logits hidden")(SCORES, torch.zeros(2, 9)),
    ],
)
def test_the_lowest_index_of_the_largest(output):
    assert predicted_classes(output, 2).tolist() == [1, 0]


@pytest.mark.parametrize("output", [torch.tensor([0.5, -1.0]), torch.tensor([[0.5], [0.0]])])
def test_one_logit_is_a_sign(output):
    assert predicted_classes(output, 2).tolist() == [1, 0]


@pytest.mark.parametrize("output", [torch.zeros(2, 3, 4), torch.zeros(3, 4), "text"])
def test_anything_else_names_predict(output):
    with pytest.raises(nc.NeuralcovError, match="pass predict="):
        predicted_classes(output, 2)


def test_a_users_function_is_checked():
    assert checked_classes([1, 0], 2).tolist() == [1, 0]
    with pytest.raises(nc.NeuralcovError, match=r"predict= returned type torch.float32 and shape \(2,\)"):
        checked_classes(torch.zeros(2), 2)


class Scores(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.fc, self.function = torch.nn.Linear(2, 1), function

    def forward(self, x):
        return self.function(self.fc(x))


LOADER = [torch.randn(5, 2, generator=torch.Generator().manual_seed(0)) for _ in range(3)]


@pytest.mark.parametrize("function", [torch.sigmoid, lambda scores: torch.sigmoid(scores)[:, 0]])
def test_outputs_that_look_like_probabilities(function):
    coverage = nc.Coverage(Scores(function), [nc.LSC()])
    with pytest.warns(
        nc.CoverageWarning, match=r"outputs seen lie between 0\..*look like probabilities.*predict="
    ) as said:
        coverage.calibrate(LOADER)
    assert len(said) == 1
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("error")
        coverage.assess(LOADER)


def test_one_output_beyond_is_enough_to_tell_logits():
    coverage = nc.Coverage(Scores(lambda scores: scores.abs() / 1000), [nc.LSC()])
    loader = [LOADER[0], LOADER[1] * 1e9, LOADER[2]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with torch.inference_mode():
            coverage.calibrate(loader)
        coverage.assess(loader)


@pytest.mark.parametrize(
    "options", [{"predict": lambda output: (output[:, 0] > 0.5).long()}, {}], ids=["told", "two classes"]
)
def test_outputs_that_are_read_otherwise(options):
    function = torch.sigmoid if options else lambda scores: torch.sigmoid(torch.cat([scores, -scores], 1))
    coverage = nc.Coverage(Scores(function), [nc.LSC()], **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        coverage.calibrate(LOADER)


def test_criteria_without_classes_do_not_ask_what_outputs_are():
    coverage = nc.Coverage(Scores(torch.sigmoid), [nc.NC()])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        coverage.assess(LOADER)
