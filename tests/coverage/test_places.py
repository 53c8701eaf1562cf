"""States, calibrations and reports travel: by URL, through open files, as bytes."""

import io
import json

import fsspec
import pytest
import torch
from torch import nn

import neuralcov as nc
from neuralcov.core.errors import InputError, MissingExtraError, StateFileError
from neuralcov.results.table_file import read_table

INPUTS = torch.randn(60, 6, generator=torch.Generator().manual_seed(1))
CRITERIA = [nc.NLC(), nc.KMNC(10), nc.LCC(), nc.DSC(0.1)]
pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


@pytest.fixture(autouse=True)
def memory():
    found = fsspec.filesystem("memory")
    found.store.clear()
    return found


@pytest.fixture
def coverage():
    found = nc.Coverage(network(), CRITERIA)
    found.calibrate([INPUTS])
    found.update(INPUTS[:30] + 0.5)
    return found


@pytest.fixture(params=["memory", "file", "object"])
def place(request, tmp_path):
    """A name or an open file, and how to come back to its beginning."""
    names = {"memory": "memory://runs/x", "file": f"{tmp_path.as_uri()}/x", "object": io.BytesIO()}
    found = names[request.param]
    return found, (lambda: found.seek(0)) if request.param == "object" else (lambda: None)


def test_a_state_comes_back(coverage, place, tmp_path):
    where, rewind = place
    coverage.save(where)
    coverage.save(tmp_path / "plain.ncov")
    rewind()
    loaded = nc.Coverage.load(where, network())
    assert loaded.values() == coverage.values() == nc.Coverage.load(tmp_path / "plain.ncov").values()
    rewind()
    fresh = nc.Coverage(network(), CRITERIA)
    fresh.calibrate([INPUTS])
    fresh.load_state(where)
    assert fresh.values() == coverage.values()


def test_a_calibration_comes_back(coverage, place):
    where, rewind = place
    coverage.save_calibration(where)
    rewind()
    fresh = nc.Coverage(network(), CRITERIA)
    fresh.calibrate(where)
    fresh.update(INPUTS[:30] + 0.5)
    assert fresh.values() == coverage.values()
    rewind()
    loaded = nc.Coverage.from_bytes(coverage.to_bytes(), network(), calibration=where)
    scores = coverage.scores(INPUTS)["DSC(0.1)"]
    assert torch.equal(loaded.scores(INPUTS)["DSC(0.1)"], scores)


def test_traces_beyond_memory_stay_on_disk(place):
    where, rewind = place
    criteria = [nc.DSC(0.1, memory=800)]
    first, second = (nc.Coverage(network(), criteria) for _ in range(2))
    first.calibrate([INPUTS])
    first.save_calibration(where)
    rewind()
    second.calibrate(where)
    assert torch.equal(second.scores(INPUTS + 1)["DSC(0.1)"], first.scores(INPUTS + 1)["DSC(0.1)"])


def test_reports_and_tables(coverage, memory):
    coverage.report("memory://out/report.json")
    assert json.loads(memory.cat("/out/report.json"))
    page = io.BytesIO()
    coverage.report(page, format="html")
    assert b"<script" in page.getvalue()
    with pytest.raises(InputError, match="its ending tells no format"):
        coverage.report(io.BytesIO())
    coverage.results().write("memory://out/result.json")
    assert json.loads(memory.cat("/out/result.json"))["inputs"] == 30
    coverage.assess([INPUTS], per_input=True, progress=False)
    coverage.per_input().write("memory://out/table.csv")
    assert read_table("memory://out/table.csv")["id"] == [str(name) for name in coverage.per_input()["id"]]
    with pytest.raises(InputError, match=r"^memory://out/none.csv: there is no such file"):
        read_table("memory://out/none.csv")


def test_a_bucket_makes_no_folder(coverage, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for write in (coverage.save, coverage.save_calibration, coverage.report, coverage.results().write):
        with pytest.raises(MissingExtraError, match="pip install s3fs"):
            write("s3://bucket/suite.json")
    assert not list(tmp_path.iterdir())


def test_what_is_not_there_is_one_sentence(memory, tmp_path):
    with pytest.raises(StateFileError, match=r"^memory://none.ncov: there is no such file$"):
        nc.Coverage.load("memory://none.ncov")
    memory.pipe("/foreign.ncov", b"hello")
    with pytest.raises(StateFileError, match=r"^memory://foreign.ncov: not a neuralcov file"):
        nc.Coverage.load("memory://foreign.ncov")
    with pytest.raises(StateFileError, match=r"^the file: not a neuralcov file"):
        nc.Coverage.load(io.BytesIO(b"hello"))
    with pytest.raises(InputError, match="binary mode"):
        nc.Coverage.load(io.StringIO("hello"))


def test_a_file_that_is_damaged_on_the_way(coverage, memory):
    coverage.save("memory://a.ncov")
    whole = memory.cat("/a.ncov")
    memory.pipe("/a.ncov", whole[:-20])
    with pytest.raises(StateFileError, match="cut short"):
        nc.Coverage.load("memory://a.ncov")
