"""Whole trainings, small enough for a CPU: they learn, write what they promise, and go on after a stop."""

import hashlib
import json
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from neuralcov.core.errors import InputError
from neuralcov_lab import zoo
from neuralcov_lab.errors import DataError
from neuralcov_lab.training import Settings, accuracy, generate, train
from neuralcov_lab.training.run import TrainingLoop

pytestmark = pytest.mark.usefixtures("one_thread")


def settings(**changes):
    return Settings(**{"epochs": 2, "batch_size": 20, "checkpoint_seconds": 0.0, **changes})


def test_digits_are_learnt_and_the_card_tells(tmp_path):
    reports = []
    output = tmp_path / "digits.safetensors"
    card = train("digits", output, settings=Settings(epochs=6), report=reports.append)
    assert card.results["accuracy"] > 0.9
    network = zoo.DigitsNet()
    network.load_state_dict(load_file(output))
    assert accuracy(network, zoo.digits("test")) == card.results["accuracy"]
    written = json.loads((tmp_path / "digits.json").read_text())
    assert written["weights_sha256"] == hashlib.sha256(output.read_bytes()).hexdigest()
    assert (written["data"], written["inputs"], written["seed"], written["epochs"]) == ("digits train", 1200, 0, 6)
    assert written["versions"]["torch"] == torch.__version__
    assert [report.epoch for report in reports] == [1, 2, 3, 4, 5, 6]
    assert reports[0].loss > reports[-1].loss
    assert reports[1].results["accuracy"] > 0.3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["digits.json", "digits.safetensors"]


def test_weights_can_be_halved(tmp_path):
    train("digits", tmp_path / "d.safetensors", settings=settings(epochs=1, limit=40, half=True))
    assert {value.dtype for value in load_file(tmp_path / "d.safetensors").values()} == {torch.float16}


class _Stopped(Exception):
    pass


def stop_after(monkeypatch, epochs):
    original = TrainingLoop.run_epoch

    def one_epoch(self):
        if self.epoch == epochs:
            raise _Stopped
        return original(self)

    monkeypatch.setattr(TrainingLoop, "run_epoch", one_epoch)


@pytest.mark.parametrize(
    ("network", "arguments", "fixture"),
    [
        ("digits", {}, None),
        ("cvae", {"width": 4, "hidden": 16}, "small_mnist"),
        ("generator", {"width": 8, "noise": 8}, "small_cifar10"),
    ],
)
def test_a_stopped_training_goes_on_to_the_same_weights(
    network, arguments, fixture, tmp_path, monkeypatch, request, empty_cache
):
    folder = None if fixture is None else request.getfixturevalue(fixture)
    chosen = settings(epochs=3, limit=40, batch_size=10, arguments=arguments, folder=folder)
    whole, halves = tmp_path / "whole.safetensors", tmp_path / "halves.safetensors"
    train(network, whole, settings=chosen)
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        with pytest.raises(_Stopped):
            train(network, halves, settings=chosen)
    assert not halves.exists()
    with pytest.raises(InputError, match="left from a training that was stopped: pass --resume to go on, or delete it"):
        train(network, halves, settings=chosen)
    card = train(network, halves, settings=Settings(**{**vars(chosen), "resume": True}))
    assert (card.epochs, card.resumed) == (3, 1)
    expected, found = load_file(whole), load_file(halves)
    assert expected.keys() == found.keys()
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=0, atol=0)
    assert not halves.with_name("halves.safetensors.checkpoint").exists()


def test_a_killed_training_goes_on_to_the_same_weights(tmp_path):
    program = """
import sys
from pathlib import Path
import torch
from neuralcov_lab.training import Settings, train
torch.set_num_threads(1)
train("digits", Path(sys.argv[1]), settings=Settings(epochs=15, batch_size=20, limit=40, checkpoint_seconds=0.0))
"""
    killed, whole = tmp_path / "killed.safetensors", tmp_path / "whole.safetensors"
    checkpoint = killed.with_name(killed.name + ".checkpoint")
    running = subprocess.Popen([sys.executable, "-c", program, str(killed)])
    while not checkpoint.exists() and running.poll() is None:
        time.sleep(0.001)
    running.kill()
    assert running.wait() != 0
    assert not killed.exists()
    card = train("digits", killed, settings=settings(epochs=15, limit=40, resume=True))
    assert card.resumed == 1
    train("digits", whole, settings=settings(epochs=15, limit=40))
    assert killed.read_bytes() == whole.read_bytes()


def test_weights_are_kept_after_the_epochs_named_also_when_stopped_between(tmp_path, monkeypatch):
    whole, halves = tmp_path / "whole.safetensors", tmp_path / "halves.safetensors"
    chosen = settings(epochs=4, limit=60, keep=(1, 3, 4))
    card = train("digits", whole, settings=chosen)
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        with pytest.raises(_Stopped):
            train("digits", halves, settings=chosen)
    again = train("digits", halves, settings=replace(chosen, resume=True))
    assert again.kept == card.kept
    assert list(card.kept) == ["1", "3", "4"]
    for epoch, entry in card.kept.items():
        files = [path.with_name(f"{path.stem}.epoch{epoch}.safetensors") for path in (whole, halves)]
        assert files[0].read_bytes() == files[1].read_bytes()
        assert hashlib.sha256(files[0].read_bytes()).hexdigest() == entry["weights_sha256"]
        network = zoo.DigitsNet()
        network.load_state_dict(load_file(files[0]))
        assert accuracy(network, zoo.digits("test").take(slice(0, 60))) == entry["accuracy"]
    assert card.kept["4"]["weights_sha256"] == card.weights_sha256
    with pytest.raises(InputError, match="--keep 5: the training has epochs 1 to 4"):
        train("digits", tmp_path / "d.safetensors", settings=replace(chosen, keep=(1, 5)))


@pytest.mark.parametrize("network", ["convnet", "mlp"])
def test_plain_networks_learn_small_pictures(network, tmp_path, small_mnist):
    card = train(
        network, tmp_path / "n.safetensors", "fashion-mnist", settings(epochs=8, batch_size=12, folder=small_mnist)
    )
    assert card.results["accuracy"] > 0.8


def test_a_checkpoint_of_other_settings_is_refused(tmp_path, monkeypatch):
    output = tmp_path / "d.safetensors"
    stop_after(monkeypatch, 1)
    with pytest.raises(_Stopped):
        train("digits", output, settings=settings(limit=40))
    with pytest.raises(InputError, match="made with seed 0, but this training has 5"):
        train("digits", output, settings=settings(limit=40, seed=5, resume=True))


def test_a_training_does_not_go_on_with_other_data_or_another_network(tmp_path, small_mnist, monkeypatch):
    output = tmp_path / "n.safetensors"
    narrow, others = {"width": 4, "hidden": 16}, tmp_path / "others"
    others.mkdir()
    for path in small_mnist.iterdir():
        (others / path.name).write_bytes(path.read_bytes()[:20] + b"\1" + path.read_bytes()[21:])
    chosen = settings(limit=40, folder=small_mnist, arguments=narrow)
    with monkeypatch.context() as patch:
        stop_after(patch, 1)
        with pytest.raises(_Stopped):
            train("net_classifier", output, "zoo:mnist", chosen)
    again = replace(chosen, resume=True)
    with pytest.raises(InputError, match="made with data 'mnist', but this training has 'fashion-mnist'; set it as"):
        train("net_classifier", output, "fashion-mnist", again)
    with pytest.raises(InputError, match=r"made with data of SHA-256 '[0-9a-f]+', but this training has"):
        train("net_classifier", output, "mnist", replace(again, folder=others))
    with pytest.raises(InputError, match=r"made with arguments \{.*'hidden': 16\}, but this training has \{.*17"):
        train("net_classifier", output, "mnist", replace(again, arguments={**narrow, "hidden": 17}))
    assert train("net_classifier", output, "mnist", again).resumed == 1


def test_the_cards_recipe_names_the_data_that_was_used(tmp_path, small_mnist):
    chosen = settings(epochs=1, limit=40, folder=small_mnist, arguments={"width": 4, "hidden": 16})
    card = train("net_classifier", tmp_path / "n.safetensors", "zoo:fashion-mnist", chosen)
    assert (card.data, card.recipe["data"]) == ("fashion-mnist train", "fashion-mnist")


def test_outputs_that_cannot_be_written_are_said_before_training(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    (tmp_path / "taken.safetensors").mkdir()
    (tmp_path / "card.json").mkdir()
    for name in ("file/d.safetensors", "file/deep/d.safetensors", "taken.safetensors", "card.safetensors"):
        with pytest.raises(InputError, match=r"cannot be written \(.*\): name a file in a folder that can"):
            train("digits", tmp_path / name, settings=settings(limit=40), report=pytest.fail)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["card.json", "file", "taken.safetensors"]


def test_minutes_end_a_training_in_time(tmp_path):
    card = train("digits", tmp_path / "d.safetensors", settings=Settings(epochs=100_000, minutes=0.02, limit=200))
    assert card.epochs < 100_000
    assert card.seconds < 20


def test_the_users_random_numbers_are_left_alone(tmp_path):
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    train("digits", tmp_path / "d.safetensors", settings=settings(epochs=1, limit=40))
    torch.testing.assert_close(torch.rand(3), expected, rtol=0, atol=0)


def test_net_learns_rows_of_light(tmp_path, small_mnist):
    chosen = Settings(epochs=12, batch_size=20, learning_rate=5e-3, folder=small_mnist, arguments={"hidden": 64})
    assert train("net_classifier", tmp_path / "n.safetensors", settings=chosen).results["accuracy"] > 0.3


def test_a_vae_learns_to_draw(tmp_path, small_mnist):
    reports = []
    chosen = settings(epochs=4, folder=small_mnist, arguments={"width": 4, "hidden": 32})
    card = train("vae", tmp_path / "v.safetensors", settings=chosen, report=reports.append)
    assert card.results["nats"] < reports[0].loss


@pytest.mark.parametrize("network", ["resnet50", "vgg16_bn", "mobilenet_v2"])
def test_image_networks_take_a_step(network, tmp_path, small_cifar10):
    chosen = settings(epochs=1, limit=8, batch_size=4, learning_rate=0.01, folder=small_cifar10)
    card = train(network, tmp_path / "i.safetensors", settings=chosen)
    assert card.steps == 2
    assert card.arguments == {"num_classes": 10, "input_size": 32}
    assert 0 <= card.results["accuracy"] <= 1
    zoo.build(network).load_state_dict(load_file(tmp_path / "i.safetensors"))


def test_a_generator_changes_towards_the_data(tmp_path, small_cifar10, empty_cache):
    chosen = settings(epochs=2, limit=40, batch_size=10, folder=small_cifar10, arguments={"width": 8, "noise": 8})
    card = train("generator", tmp_path / "g.safetensors", settings=chosen)
    assert card.results == {}
    assert card.steps == 4
    generator = zoo.Generator(width=8, noise=8)
    generator.load_state_dict(load_file(tmp_path / "g.safetensors"))
    images = generator.eval().sample(torch.arange(10))
    assert torch.isfinite(images).all()


class _Thumbnails(torch.nn.Module):
    """In place of Inception: the images themselves, tiny."""

    def of_pixels(self, images):
        return torch.nn.functional.adaptive_avg_pool2d(images, 2).flatten(1)


@pytest.mark.parametrize("quick", [10_000, 12])
def test_a_fid_names_its_number_of_images(quick, tmp_path, small_cifar10, monkeypatch):
    monkeypatch.setattr(generate, "features_if_fetched", lambda device: _Thumbnails())
    monkeypatch.setattr(generate, "QUICK", quick)
    chosen = settings(epochs=2, limit=40, batch_size=10, folder=small_cifar10, arguments={"width": 8, "noise": 8})
    reports = []
    card = train("generator", tmp_path / "g.safetensors", settings=chosen, report=reports.append)
    assert list(reports[0].results) == [f"FID of {min(quick, 40)}"]
    assert list(card.results) == list(dict.fromkeys(["FID of 40", f"FID of {min(quick, 40)}"]))


def test_the_lstm_trains_on_reviews(tmp_path, real):
    real("imdb")
    arguments = {"hidden": 16, "embedding": 16}
    chosen = Settings(epochs=2, limit=400, batch_size=40, learning_rate=1e-2, arguments=arguments)
    reports = []
    card = train("lstm", tmp_path / "l.safetensors", settings=chosen, report=reports.append)
    assert card.data == "imdb train"
    assert reports[-1].loss < reports[0].loss


def test_class_folders_can_be_trained_on(tmp_path):
    random = np.random.default_rng(0)
    for split in ("train", "val"):
        for name in ("dark", "light"):
            folder = tmp_path / split / name
            folder.mkdir(parents=True)
            for number in range(4):
                pixels = random.integers(0, 90, (32, 32, 3), dtype=np.uint8) + (150 if name == "light" else 0)
                Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number}.png")
    chosen = settings(epochs=1, batch_size=4, learning_rate=0.01)
    card = train("mobilenet_v2", tmp_path / "m.safetensors", f"folder:{tmp_path}", chosen)
    assert card.arguments["num_classes"] == 2
    assert card.inputs == 8


@pytest.mark.parametrize(
    ("network", "output", "data", "sentence"),
    [
        ("digits", "d.pt", None, r"expected a file name that ends in \.safetensors"),
        ("resnet50", "r.safetensors", "digits", r"resnet50 takes inputs of shape \(3, 32, 32\), but digits train has"),
        ("inception", "i.safetensors", None, "there is no recipe to train 'inception'"),
        ("digits", "d.safetensors", "imagenet", "the zoo has no data 'imagenet'"),
    ],
)
def test_wrong_use_is_said_in_one_sentence(network, output, data, sentence, tmp_path):
    arguments = {"input_size": 32} if network == "resnet50" else {}
    with pytest.raises(InputError, match=sentence):
        train(network, tmp_path / output, data, Settings(limit=8, arguments=arguments))


def test_missing_data_is_said(tmp_path, empty_cache):
    with pytest.raises(DataError, match="run `neuralcov data get cifar10`"):
        train("resnet50", tmp_path / "r.safetensors")
    with pytest.raises(InputError, match="--limit 1: expected at least 2"):
        train("digits", tmp_path / "d.safetensors", settings=Settings(limit=1))
