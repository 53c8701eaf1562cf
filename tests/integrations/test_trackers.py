"""Values and figures in trackers: the real ones where they are installed, and objects like theirs."""

import json
import os
import sys
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch

import neuralcov as nc
from neuralcov.core.errors import InputError, MissingExtraError
from neuralcov.integrations.trackers import metrics_of
from tests.integrations.parts import LEARNING, assessed, batches, network

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")


@pytest.fixture(scope="module")
def coverage():
    return assessed(network(), [nc.NC(0.75), *LEARNING], batches(), batches(seed=2))


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_every_value_and_figure_has_a_key(coverage):
    found = metrics_of(coverage)
    values, details = coverage.values(), coverage.details()
    assert found["inputs"] == 60
    assert found["nc_0.75"] == values["NC(0.75)"]
    assert found["lcc.relative"] == details["LCC"]["relative"]
    assert len(found) == 1 + len(values) + sum(map(len, details.values()))


def test_keys_that_would_be_alike_stay_apart():
    layers = {"conv": 4, "conv2": 4}
    first, second = nc.DSC(0.1, layers="conv*"), nc.DSC(0.1, layers="conv")
    assert first.key == second.key
    for order in ([first, second], [second, first]):
        coverage = nc.Coverage.of_layers(layers, [*order, nc.NC(0.5)])
        rows = {name: torch.rand(40, 4, generator=torch.Generator().manual_seed(1)) for name in layers}
        coverage.calibrate(activations=rows, predictions=torch.arange(40) % 2)
        coverage.update(activations={name: 1 - row for name, row in rows.items()}, predictions=torch.arange(40) % 2)
        found, values = metrics_of(coverage), coverage.values()
        alike = {key: value for key, value in found.items() if key.startswith("dsc") and key.count(".") == 1}
        assert sorted(alike.values()) == sorted([values[first.name], values[second.name]])
        assert "nc_0.5" in found
        assert [value for key, value in alike.items() if key.endswith("e5ff8d")] == [values[first.name]]


def test_a_function(coverage):
    got = []
    logged = nc.log(coverage, lambda metrics, step: got.append((metrics, step)), step=3, prefix="suite.")
    assert got == [(logged, 3)]
    assert logged == metrics_of(coverage, "suite.")


def test_clients_are_told_by_what_they_have(coverage):
    class Lightning:
        def log_metrics(self, metrics, step=None):
            self.got = metrics, step

    class Writer:
        def __init__(self):
            self.got = {}

        def add_scalar(self, key, value, step):
            self.got[key] = value, step

    class Live:
        step, got, made = 0, (), 0

        def log_metric(self, key, value):
            self.got = (*self.got, (key, value, self.step))

        def make_summary(self):
            self.made += 1

    class Run:
        def log(self, metrics, step=None):
            self.got = metrics, step

    lightning, writer, live, run = Lightning(), Writer(), Live(), Run()
    for client in (lightning, writer, live, run):
        metrics = nc.log(coverage, client, step=7)
    assert lightning.got == run.got == (metrics, 7)
    assert writer.got == {key: (value, 7) for key, value in metrics.items()}
    assert live.got == tuple((key, value, 7) for key, value in metrics.items())
    assert live.made == 1


@pytest.mark.parametrize("to", ["comet", SimpleNamespace(log_metric=print), 3])
def test_what_logs_in_no_known_way_is_refused(coverage, to):
    with pytest.raises(InputError, match="mlflow"):
        nc.log(coverage, to)


@pytest.mark.parametrize("name", ["mlflow", "wandb", "tensorboard", "dvclive"])
def test_a_missing_package_is_named(coverage, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=rf"^logs of coverage need {name}: pip install 'neuralcov\[{name}\]'$"):
        nc.log(coverage, name)


def test_tensorboard(coverage, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter("mine") as writer:
        logged = nc.log(coverage, writer, step=5)
    nc.log(coverage, "tensorboard", step=5)
    for folder in (tmp_path / "mine", *(tmp_path / "runs").iterdir()):
        events = EventAccumulator(str(folder)).Reload()
        assert set(events.Tags()["scalars"]) == set(logged)
        for key, value in logged.items():
            (event,) = events.Scalars(key)
            assert (event.step, event.value) == (5, pytest.approx(value, nan_ok=True))


# Not in the dev extra, for their size; run where they are installed.


@pytest.mark.skipif(find_spec("mlflow") is None, reason="mlflow is not installed")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_mlflow(coverage, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    import mlflow

    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    with mlflow.start_run() as run:
        logged = nc.log(coverage, "mlflow", step=2)
        nc.log(coverage, mlflow, step=3)
    stored = mlflow.get_run(run.info.run_id).data.metrics
    assert stored == pytest.approx(logged, nan_ok=True)
    history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "neuralcov/nc_0.75")
    assert [point.step for point in history] == [2, 3]


@pytest.mark.skipif(find_spec("wandb") is None, reason="wandb is not installed")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_wandb_offline(coverage, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    import wandb

    with pytest.raises(InputError, match=r"no run is under way: call wandb.init\(\) first"):
        nc.log(coverage, "wandb")
    with wandb.init(project="tests", dir=str(tmp_path)) as run:
        logged = nc.log(coverage, "wandb", step=2)
        nc.log(coverage, run, step=3)  # W&B keeps a step once the next has begun
        stored = {key: value for key, value in dict(run.summary).items() if not key.startswith("_")}
    assert stored == pytest.approx(logged, nan_ok=True)


@pytest.mark.skipif(find_spec("dvclive") is None, reason="dvclive is not installed")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_dvclive(coverage, tmp_path, monkeypatch):
    monkeypatch.setenv("DVC_NO_ANALYTICS", "true")
    logged = nc.log(coverage, "dvclive", step=4)
    stored = json.loads((tmp_path / "dvclive" / "metrics.json").read_text())
    assert stored["step"] == 4
    assert stored["neuralcov"]["inputs"] == 60
    rows = (tmp_path / "dvclive" / "plots" / "metrics" / "neuralcov" / "nc_0.75.tsv").read_text().splitlines()
    step, value = rows[-1].split("\t")
    assert (step, float(value)) == ("4", pytest.approx(logged["neuralcov/nc_0.75"]))
    assert os.path.isdir("dvclive")
