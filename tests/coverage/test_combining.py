"""Many state files merged into one coverage, in the memory of two."""

import pytest
import torch

import neuralcov as nc
from neuralcov.coverage.combining import combine, expanded

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")
WIDTHS = {"a": 5, "b": 7, "c": 5}
CRITERIA = [
    nc.NLC(),
    nc.NLC(rule="all"),
    nc.NLC(rule="all", classes=3),
    nc.LVC(),
    nc.LVC(groups=3),
    nc.KMNC(5),
    nc.CC(1),
]


def batch(seed, size=12):
    generator = torch.Generator().manual_seed(seed)
    layers = {name: torch.randn(size, width, generator=generator) for name, width in WIDTHS.items()}
    return {"activations": layers, "labels": torch.arange(size) % 3}


def coverage(*seeds):
    cov = nc.Coverage.of_layers(WIDTHS, CRITERIA)
    cov.calibrate(activations=batch(100, 200)["activations"])
    for seed in seeds:
        cov.update(**batch(seed))
    return cov


@pytest.fixture
def files(tmp_path):
    for seed in range(5):
        coverage(seed).save(tmp_path / f"part-{seed}.ncov")
    return [tmp_path / f"part-{seed}.ncov" for seed in range(5)]


def test_merging_in_place_gives_what_merging_gives(files):
    before = [file.read_bytes() for file in files]
    found = combine(files, skipped=pytest.fail)
    plain = nc.Coverage.load(files[0])
    for file in files[1:]:
        plain.merge(nc.Coverage.load(file))
    assert found.values() == plain.values()
    assert found.inputs == 60
    whole = coverage(*range(5))
    for criterion in CRITERIA:
        if {"NLC", "CC(1)"}.isdisjoint([criterion.name]):
            assert found.values()[criterion.name] == pytest.approx(whole.values()[criterion.name], rel=1e-12)
    assert [file.read_bytes() for file in files] == before


def test_what_is_merged_in_stays_as_it_is(files):
    total, part = nc.Coverage.load(files[0]), nc.Coverage.load(files[1])
    total.own_states()
    kept, snapshot = part.values(), total.snapshot()
    before = total.values()
    total.merge(part)
    total.merge(nc.Coverage.load(files[2]))
    assert part.values() == kept
    total.restore(snapshot)
    assert total.values() == before


def test_a_file_twice_counts_once_and_patterns_are_expanded(files, tmp_path):
    (tmp_path / "part-1-again.ncov").write_bytes(files[1].read_bytes())
    told = []
    found = combine(expanded([str(tmp_path / "part-*.ncov")]), skipped=told.append)
    assert found.inputs == 60
    assert len(told) == 1
    assert "part-1" in told[0]
    assert "all of its 12 inputs are there already" in told[0]
    assert expanded([str(files[3]), str(tmp_path / "part-[12].ncov")]) == [str(files[number]) for number in (3, 1, 2)]
    with pytest.raises(nc.NeuralcovError, match="no file fits this pattern"):
        expanded([str(tmp_path / "*.nothing")])
    assert expanded(["not-there.ncov"]) == ["not-there.ncov"]


def test_an_overlap_is_refused_with_the_file_that_has_it(tmp_path):
    one, other = coverage(0, 1), coverage(1, 2)
    one.save(tmp_path / "one.ncov")
    other.save(tmp_path / "other.ncov")
    files = [tmp_path / "one.ncov", tmp_path / "other.ncov"]
    with pytest.raises(nc.NeuralcovError, match=r"other\.ncov: about 50% of the inputs are in both"):
        combine(files, skipped=pytest.fail)
    assert combine(files, overlap="allow", skipped=pytest.fail).inputs == 48
