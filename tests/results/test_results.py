import json

import torch

import neuralcov as nc
from neuralcov.report import layer_table, value_table


def result(**more):
    coverage = nc.Coverage.of_layers({"a": 3, "b": 2}, [nc.NC(0.5), nc.NLC()])
    coverage.update(activations={"a": torch.randn(5, 3), "b": torch.randn(5, 2)})
    return coverage, coverage.results(model="m", suite="s", inputs=5, **more)


def test_everything_is_read_off(tmp_path):
    coverage, found = result(before={"NC(0.5)": 0.0, "NLC": 0.0})
    assert found.values == coverage.values()
    assert found.increase == coverage.values()
    found.write(tmp_path / "deep" / "result.json")
    written = json.loads((tmp_path / "deep" / "result.json").read_text())
    assert written["schema"] == 1
    assert written["values"] == coverage.values()
    assert [row["layer"] for row in written["layers"]] == ["a", "b"]


def test_numbers_json_does_not_know_become_null():
    _, found = result()
    odd = {**found.__dict__, "values": {"NLC": float("nan"), "NC(0.5)": float("inf")}}
    assert type(found)(**odd).to_json()["values"] == {"NLC": None, "NC(0.5)": None}


def test_tables():
    _, found = result()
    table = value_table(found)
    assert [column.header for column in table.columns] == ["criterion", "value", "beside it"]
    assert table.row_count == 2
    layers = layer_table(found)
    assert [column.header for column in layers.columns] == ["layer", "neurons", "NC(0.5)", "NLC"]
    assert layers.row_count == 2
