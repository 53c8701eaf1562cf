import gc
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch

import neuralcov as nc
from neuralcov.core.activations import Activations
from neuralcov.statistics.traces import TraceStore
from tests.criteria.surprise.support import traces as class_traces

CPU = torch.device("cpu")


def filled(rows, labels, budget=1 << 30, batch=7):
    store = TraceStore.empty(["a"], budget, CPU)
    for part, classes in zip(torch.from_numpy(rows).split(batch), torch.from_numpy(labels).split(batch), strict=True):
        store = store.observe(Activations({"a": part}, labels=classes, predictions=classes))
    return store.finished()


@pytest.mark.parametrize("budget", [1, 5000, 1 << 30])
def test_rows_come_back_whether_in_memory_or_on_disk(small_blocks, budget):
    rows, labels = class_traces(1, 1000)
    store = filled(rows, labels, budget)
    assert len(store) == 1000
    assert len(store.blocks) > 5
    np.testing.assert_array_equal(torch.cat([block for _, block in store.stream()]), rows)
    wanted = torch.tensor([0, 3, 99, 100, 101, 500, 999])
    np.testing.assert_array_equal(store.rows(wanted), rows[wanted])
    assert store.labels.tolist() == labels.tolist()


def mapped_files():
    """Temporary files without a name that this process has mapped."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sum(tempfile.gettempdir() in line and line.endswith("(deleted)") for line in lines)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc to see what is mapped")
def test_beyond_the_budget_traces_are_mapped_from_disk_and_gone_afterwards(small_blocks):
    rows, labels = class_traces(1, 1000)
    before = mapped_files()
    store = filled(rows, labels)
    assert mapped_files() == before
    store = filled(rows, labels, budget=5000)
    assert mapped_files() > before
    assert len(store) == 1000
    del store
    gc.collect()
    assert mapped_files() == before


@pytest.mark.parametrize("criterion", [nc.LSC(5), nc.DSC(0.05), nc.MDSC(1), nc.LSC(5, "scott")])
def test_streaming_changes_no_score(small_blocks, criterion):
    rows, labels = class_traces(1, 1000)
    tests, classes = class_traces(2, 100)
    found = []
    for memory in ("1B", "1GiB"):
        limited = type(criterion)(**{**criterion.parameters, "memory": memory})
        coverage = nc.Coverage.of_layers({"a": 6}, [limited])
        parts = zip(np.array_split(rows, 40), np.array_split(labels, 40), strict=True)
        coverage.calibrate(
            activations=[Activations({"a": torch.from_numpy(r)}, predictions=torch.from_numpy(c)) for r, c in parts]
        )
        found.append(coverage.scores(activations={"a": tests}, predictions=classes)[limited.name])
    np.testing.assert_array_equal(found[0], found[1])


def test_saved_and_loaded(small_blocks, tmp_path):
    rows, labels = class_traces(1, 500)
    tests, classes = class_traces(2, 50)
    coverage = nc.Coverage.of_layers({"a": 6}, [nc.DSC(0.05), nc.NC(0.5)])
    coverage.calibrate(activations={"a": rows}, predictions=labels)
    coverage.update(activations={"a": tests}, predictions=classes)
    coverage.save(tmp_path / "state.ncov")
    coverage.save_calibration(tmp_path / "training.ncal")
    assert (tmp_path / "state.ncov").stat().st_size < rows.nbytes
    bare = nc.Coverage.load(tmp_path / "state.ncov")
    assert bare.values() == coverage.values()
    with pytest.raises(nc.NeuralcovError, match=r"DSC\(0.05\) needs calibration"):
        bare.gain(activations={"a": tests}, predictions=classes)
    whole = nc.Coverage.load(tmp_path / "state.ncov", calibration=tmp_path / "training.ncal")
    more, more_classes = class_traces(3, 20)
    for each in (coverage, whole):
        each.update(activations={"a": more}, predictions=more_classes)
    assert whole.values() == coverage.values()
    again = nc.Coverage.of_layers({"a": 6}, [nc.DSC(0.05)])
    again.calibrate(tmp_path / "training.ncal")
    assert again.calibration_ids()["DSC(0.05)"] == coverage.calibration_ids()["DSC(0.05)"]


def test_inputs_that_are_not_finite_leave_no_trace():
    rows, labels = class_traces(1, 20)
    rows[3, 2] = np.nan
    store = filled(rows, labels)
    assert len(store) == 19
    assert store.labels.tolist() == np.delete(labels, 3).tolist()


def test_absent_steps_read_as_zeros():
    batch = Activations({"a": torch.ones(2, 2), "b": torch.ones(2, 2)}, present={"b": torch.tensor([True, False])})
    store = TraceStore.empty(["a", "b"], 1 << 20, CPU).observe(batch)
    assert store.blocks[0].tolist() == [[1, 1, 1, 1], [1, 1, 0, 0]]
