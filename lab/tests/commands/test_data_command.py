"""The commands `data list`, `data get`, and data of the zoo named on the command line."""

import pytest
import torch
from typer.testing import CliRunner

from lab.tests.zoo.conftest import small_mnist  # noqa: F401 - a fixture
from neuralcov.cli.app import app
from neuralcov.core.errors import InputError
from neuralcov.sources.data import load_data
from neuralcov.sources.samples import Samples
from neuralcov_lab.errors import DataError
from neuralcov_lab.zoo import DATA

pytestmark = pytest.mark.smoke


@pytest.fixture
def run(monkeypatch, tmp_path):
    monkeypatch.setenv("NEURALCOV_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *arguments: CliRunner().invoke(app, ["data", *arguments])


def test_list_shows_what_there_is_and_what_is_missing(run, tmp_path):
    result = run("list")
    assert result.exit_code == 0
    assert str(tmp_path / "cache") in result.stdout
    for name in ("cifar10", "mnist", "fashion-mnist", "imdb", "inception", "adain", "digits"):
        assert name in result.stdout
    assert "Krizhevsky" in result.stdout


def test_get_refuses_unknown_names_before_fetching_anything(run, monkeypatch, tmp_path):
    result = run("get", "mnist", "imagenet")
    assert isinstance(result.exception, DataError)
    assert "no data 'imagenet' to fetch" in str(result.exception)
    assert not (tmp_path / "cache").exists()


def test_get_says_where_the_data_went(run, monkeypatch, tmp_path):
    stages = []

    def fetch(name, report):
        report("fetching")
        stages.append(name)
        return tmp_path / "cache" / name

    monkeypatch.setattr("neuralcov_lab.zoo.fetch", fetch)
    result = run("get", "mnist", "imdb")
    assert result.exit_code == 0
    assert stages == ["mnist", "imdb"]
    assert f"imdb: in {tmp_path / 'cache' / 'imdb'}" in result.stdout


def test_a_folder_of_ones_own_can_be_named(small_mnist):  # noqa: F811
    named = load_data(f"zoo:mnist(folder='{small_mnist}'):train", batch_size=50)
    assert named.name == "mnist train"
    sizes = [len(labels) for _, labels in named.loader]
    assert sizes == [50, 50, 20]
    assert load_data(f"zoo:mnist(folder='{small_mnist}')", batch_size=50).name == "mnist test"
    with pytest.raises(InputError, match="the only argument a data set takes is folder"):
        load_data("zoo:mnist(colour=1)", batch_size=1)


def test_digits_still_go_by_name_and_split():
    named = load_data("zoo:digits:train", batch_size=600)
    assert [tuple(inputs.shape) for inputs, _ in named.loader] == [(600, 1, 8, 8)] * 2
    assert load_data("zoo:digits", batch_size=10, split="train").name == "digits train"


def test_reviews_come_with_their_lengths(monkeypatch):
    tokens = torch.tensor([[2, 3, 0]], dtype=torch.int16)
    samples = Samples("reviews", tokens, torch.tensor([1]), ("no", "yes"), lengths=torch.tensor([2]))
    monkeypatch.setitem(DATA, "imdb", lambda split: samples)
    (batch,) = load_data("zoo:imdb", batch_size=4).loader
    assert batch["lengths"].tolist() == [2]
