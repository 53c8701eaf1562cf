"""``combine --over``: state files of different layers put side by side."""

import pytest

import neuralcov as nc
from neuralcov.coverage.combining import side_by_side
from tests.coverage.test_uniting import Net, measured


def test_files_of_layers_are_combined(run, tmp_path):
    criteria = [nc.NC(0.5), nc.NLC()]
    for name, layers in (("a", "up"), ("b", "down|head")):
        measured(layers, criteria).save(tmp_path / f"{name}.ncov")
    files = [tmp_path / "a.ncov", tmp_path / "b.ncov", "-o", tmp_path / "all.ncov"]
    code, out, _ = run("combine", *files, "--over", "layers")
    assert code == 0
    assert "NLC" in out
    united = nc.Coverage.load(tmp_path / "all.ncov", Net())
    assert united.values() == measured(None, criteria).values()
    for over, said in (("parts", "--over parts: expected inputs, layers or stages"), ("inputs", "lacks layer 'up'")):
        code, _, err = run("combine", *files, "--over", over)
        assert code == 2
        assert said in err.replace("\n", " ")
    with pytest.raises(nc.NeuralcovError, match=r"a\.ncov: layer 'up' is in two parts"):
        side_by_side([tmp_path / "all.ncov", tmp_path / "a.ncov"], "layers")
