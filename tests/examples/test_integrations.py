"""Run the examples of trainers, metrics and trackers, as a user would."""

import pytest

from tests.examples.running import lines, run, values


def test_lightning():
    first, second = run("lightning_callback.py", "lightning").splitlines()
    assert float(first.split()[1]) > 0.7
    found = values(second)
    assert list(found) == ["inputs", "lcc", "kmnc_100"]
    assert found["inputs"] == 597
    assert 0 < found["kmnc_100"] < 1


def test_a_trainer_of_hugging_face(tmp_path):
    found = lines(run("huggingface_trainer.py", "transformers", "accelerate", folder=tmp_path))
    assert found["eval_inputs"] == 300
    assert found["eval_accuracy"] > 0.5
    assert 0 < found["eval_kmnc_100"] < 1
    assert not list(tmp_path.iterdir())


def test_ignite_and_torchmetrics_tell_the_same():
    ignite = lines(run("ignite_handler.py", "ignite"))
    torchmetrics = lines(run("torchmetrics_metric.py", "torchmetrics"))
    assert ignite == pytest.approx(torchmetrics, abs=1e-4)
    assert ignite["accuracy"] > 0.9
    assert ignite["inputs"] == 597


def test_a_tracker(tmp_path):
    found = run("trackers.py", "tensorboard", folder=tmp_path).splitlines()
    assert [line.split()[0] for line in found] == ["1", "2", "3"]
    assert all(0 < values(line)["kmnc_100"] < 1 for line in found)
    assert len(list((tmp_path / "runs").iterdir())) >= 1
