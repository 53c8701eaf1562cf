"""Memory that does not suffice for a batch: the batch is halved, the run goes on, and says so."""

import warnings

import pytest
import torch
from torch import nn

import neuralcov as nc
from neuralcov.core.errors import CoverageWarning

MOST = 3


class Greedy(nn.Module):
    """Gives out above so many inputs at once, as a GPU does."""

    def __init__(self, error=None, most=MOST):
        super().__init__()
        torch.manual_seed(0)
        self.fc, self.out = nn.Linear(4, 6), nn.Linear(6, 3)
        self.error, self.most = error or torch.OutOfMemoryError("CUDA out of memory"), most
        self.sizes = []

    def forward(self, x, scale=None):
        self.sizes.append(len(x))
        if len(x) > self.most:
            raise self.error
        x = x if scale is None else x * scale[:, None]
        return self.out(torch.relu(self.fc(x)))


class Two(Greedy):
    def forward(self, x, scale):
        return super().forward(x, scale)


ERRORS = [
    torch.OutOfMemoryError("CUDA out of memory"),
    RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
    MemoryError(),
]


def inputs(count=20):
    return torch.randn(count, 4, generator=torch.Generator().manual_seed(1))


def criteria():
    return [nc.NC(0.5), nc.NLC(), nc.TKNC(2), nc.SS(), nc.LSC(1), nc.CC()]


def measured(model, batches, labels=None):
    coverage = nc.Coverage(model, criteria())
    coverage.calibrate([(inputs(60)[start : start + 2], torch.arange(2)) for start in range(0, 60, 2)])
    coverage.assess(batches)
    return coverage


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_values_are_those_of_the_smaller_batches(error):
    data = inputs()
    labels = torch.arange(20) % 3
    model = Greedy(error)
    with pytest.warns(CoverageWarning) as told:
        found = measured(model, [(data[:10], labels[:10]), (data[10:], labels[10:])])
    said = [str(each.message) for each in told if "out of memory" in str(each.message)]
    assert [text.partition(":")[0] for text in said] == [
        "out of memory with 10 inputs at once",
        "out of memory with 5 inputs at once",
    ]
    assert "went on with batches of 3" in said[-1]
    # 10 fails, halves of 5 fail, then 3 and 2; the second batch is cut into threes from the start.
    pieces = [(0, 3), (3, 5), (5, 8), (8, 10), (10, 13), (13, 16), (16, 19), (19, 20)]
    expected = measured(Greedy(most=99), [(data[a:b], labels[a:b]) for a, b in pieces])
    assert found.values() == expected.values()
    assert found.inputs == 20
    assert max(model.sizes[-4:]) == 3


def test_one_batch_at_a_time_and_what_goes_with_it():
    data = inputs(8)
    model = Two()
    coverage = nc.Coverage(model, [nc.TKNC(1)])
    with pytest.warns(CoverageWarning, match="out of memory"):
        coverage.update({"x": data, "scale": torch.arange(8.0)})
    whole = nc.Coverage(Two(most=99), [nc.TKNC(1)])
    whole.update({"x": data, "scale": torch.arange(8.0)})
    assert coverage.values() == whole.values()


def test_ids_and_tables_follow_their_inputs():
    data, ids = inputs(7), [f"input {row}" for row in range(7)]
    coverage = nc.Coverage(Greedy(), [nc.NC(0.2)])
    with pytest.warns(CoverageWarning, match="out of memory"):
        coverage.assess([nc.Batch(data, torch.arange(7) % 3, ids=ids)], per_input=True)
    whole = nc.Coverage(Greedy(most=99), [nc.NC(0.2)])
    whole.assess(
        [
            nc.Batch(part[0], part[1], ids=part[2])
            for part in zip(
                data.split(2),
                (torch.arange(7) % 3).split(2),
                [ids[start : start + 2] for start in range(0, 7, 2)],
                strict=True,
            )
        ],
        per_input=True,
    )
    assert list(coverage.per_input()) == list(whole.per_input())


def test_calibration_is_halved_too():
    data = inputs(30)
    found = nc.Coverage(Greedy(), [nc.KMNC(5)])
    with pytest.warns(CoverageWarning, match="out of memory"):
        found.calibrate([data])
    expected = nc.Coverage(Greedy(most=99), [nc.KMNC(5)])
    expected.calibrate([data])
    for coverage in (found, expected):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            coverage.update(data[:3])
    assert found.values() == expected.values()


def test_a_single_input_that_does_not_fit_is_an_error_and_nothing_was_observed():
    coverage = nc.Coverage(Greedy(most=0), [nc.NC(0.5)])
    with pytest.warns(CoverageWarning, match="out of memory"), pytest.raises(torch.OutOfMemoryError):
        coverage.update(inputs(4))
    assert coverage.inputs == 0


def test_other_errors_are_not_tried_again():
    model = Greedy(RuntimeError("shapes do not fit"))
    coverage = nc.Coverage(model, [nc.NC(0.5)])
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        coverage.update(inputs(4))
    assert model.sizes[-1] == 4
    assert coverage.inputs == 0
