"""Running the model where it throws, hangs or gives no numbers: the culprits are found, the others are not lost."""

import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import neuralcov as nc
from neuralcov.core.errors import CampaignError, CoverageWarning, InputError
from neuralcov.fuzz.formats import Pixels
from neuralcov.fuzz.search.runner import ModelRunner, TimeUp, in_halves, time_limit

CPU = torch.device("cpu")


@settings(max_examples=60)
@given(st.integers(0, 40), st.integers(1, 15), st.sets(st.integers(0, 39)))
def test_halving_finds_exactly_the_culprits(count, batch, bad):
    def function(rows):
        inside = sorted(bad & set(range(rows.start, rows.stop)))
        if inside:
            raise ValueError(f"will not take {inside}")
        return list(range(rows.start, rows.stop))

    done, failures = in_halves(function, count, batch, None, CPU)
    culprits = {row for row in bad if row < count}
    assert set(failures) == culprits
    assert [row for _, rows in done for row in rows] == [row for row in range(count) if row not in culprits]
    assert all(failures[row].message == f"ValueError: will not take [{row}]" for row in culprits)


class Moody(nn.Module):
    """Throws at pictures whose first pixel is above 0.9, gives NaN where it is above 0.8."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, images):
        first = images.flatten(1)[:, 0]
        if (first > 0.9).any():
            raise RuntimeError("too bright")
        return self.fc(images.flatten(1)).masked_fill((first > 0.8)[:, None], torch.nan)


def test_a_run_with_every_kind_of_input():
    torch.manual_seed(0)
    images = torch.full((10, 1, 2, 2), 0.5)
    images[3, 0, 0, 0], images[7, 0, 0, 0] = 0.95, 0.85
    labels = torch.arange(10) % 3
    runner = ModelRunner(nc.Coverage(Moody(), [nc.NLC()]), Pixels(None), lambda x: x, batch=4, keep_outputs=True)
    ran = runner.run(images, labels)
    assert ran.rows.tolist() == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert ran.finite.tolist() == [True] * 6 + [False] + [True] * 2
    assert {row: failure.message for row, failure in ran.failures.items()} == {3: "RuntimeError: too bright"}
    assert ran.activations.labels.tolist() == labels[ran.rows].tolist()
    assert ran.activations.layers["fc"].shape == (9, 3)
    assert len(ran.predictions) == 9
    assert sum(part.stop - part.start for part, _ in ran.outputs) == 9


class Late(nn.Module):
    """Gives NaN behind its last layer where the first pixel is above 0.8: every layer's own output is finite."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 3), nn.Linear(3, 3)

    def forward(self, images):
        rows = images.flatten(1)
        return self.last(self.first(rows)).masked_fill((rows[:, 0] > 0.8)[:, None], torch.nan)


def test_inputs_without_a_number_take_part_in_no_criterion_whatever_layers_it_looks_at():
    torch.manual_seed(0)
    images = torch.rand(6, 1, 2, 2) / 2
    images[4, 0, 0, 0] = 0.9
    coverage = nc.Coverage(Late(), [nc.LSC(1, layers="first", by=None, min_variance=0)])
    coverage.calibrate([images[:4]])
    ran = ModelRunner(coverage, Pixels(None), lambda x: x, batch=4).run(images, None)
    assert ran.finite.tolist() == [True] * 4 + [False, True]
    assert torch.isfinite(ran.activations.layers["last"]).all()
    coverage.update(activations=ran.activations)
    assert [finding.inputs for finding in coverage.findings() if "NaN" in finding.sentence] == [1]
    assert coverage.admit(activations=ran.activations.take(slice(4, 5)), min_gain=-1).tolist() == [False]


def test_nothing_but_failures():
    runner = ModelRunner(nc.Coverage(Moody(), [nc.NLC()]), Pixels(None), lambda x: x, batch=4)
    ran = runner.run(torch.ones(3, 1, 2, 2), None)
    assert ran.activations is None
    assert len(ran.failures) == 3


def test_mistakes_of_the_user_and_lack_of_memory_are_no_findings():
    def wrong(rows):
        raise InputError("no")

    def large(rows):
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(InputError):
        in_halves(wrong, 3, 2, None, CPU)
    said = pytest.warns(CoverageWarning, match="out of memory with 2 inputs at once: went on with half")
    with said, pytest.raises(CampaignError, match="out of memory with a single input: free some"):
        in_halves(large, 3, 2, None, CPU)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA"), RuntimeError("[enforce] DefaultCPUAllocator: no")])
def test_batches_that_memory_does_not_suffice_for_are_halved(error):
    sizes = []

    def function(rows):
        sizes.append(rows.stop - rows.start)
        if sizes[-1] > 3:
            raise error
        return list(range(rows.start, rows.stop))

    with pytest.warns(CoverageWarning, match="out of memory with 8 inputs at once"):
        parts, failures = in_halves(function, 20, 8, None, CPU)
    assert [row for _, part in parts for row in part] == list(range(20))
    assert all(rows == slice(part[0], part[-1] + 1) for rows, part in parts)
    assert not failures
    assert sizes[:2] == [8, 4]
    assert max(sizes[2:]) == 2  # no batch is tried again at a size that did not go


def test_a_model_that_hangs_is_interrupted():
    def function(rows):
        if rows.start <= 5 < rows.stop:
            while True:
                time.sleep(0.001)

    started = time.monotonic()
    _, failures = in_halves(function, 8, 8, 0.05, CPU)
    assert time.monotonic() - started < 20
    assert list(failures) == [5]
    assert failures[5].timed_out


def test_a_long_call_without_an_alarm_is_noticed_at_its_end(monkeypatch):
    monkeypatch.delattr("signal.setitimer")
    with pytest.raises(TimeUp, match=r"longer than 0\.01 s"), time_limit(0.01, CPU):
        time.sleep(0.03)
    with time_limit(10, CPU):
        pass


def test_batches_joined_are_the_batch():
    torch.manual_seed(0)
    lstm = nn.LSTM(3, 4, batch_first=True)
    coverage = nc.Coverage(lstm, [nc.NLC()], steps=5, predict=lambda out: out[0][:, 0, 0].long())
    inputs = torch.rand(6, 5, 3)
    lengths = torch.tensor([5, 2, 3, 5, 5, 4])
    whole, _ = coverage.run(inputs, torch.arange(6), lengths=lengths)
    parts = [
        coverage.run(inputs[:2], torch.arange(2), lengths=lengths[:2])[0],
        coverage.run(inputs[2:], torch.arange(2, 6))[0],  # no lengths: every step is present
    ]
    together = nc.Activations.cat(parts)
    assert together.labels.tolist() == list(range(6))
    for name, outputs in whole.layers.items():
        torch.testing.assert_close(together.layers[name], outputs)
        assert together.present[name][2:].all()
        assert torch.equal(together.present[name][:2], whole.present[name][:2])
