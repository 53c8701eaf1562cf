import json
from dataclasses import replace

import pytest
import torch

import neuralcov as nc
from neuralcov.report import layer_tables, slice_tables, value_table
from neuralcov.results import SliceRow, SliceTable


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


def test_slices_are_shown_three_criteria_at_a_time_and_counts_without_decimals():
    names = ("A", "B", "C", "D")
    rows = [SliceRow(text, 3, dict.fromkeys(names, float(number)), dict.fromkeys(names, 1.0)) for number, text in
            enumerate("xyz")]  # fmt: skip
    _, found = result()
    values = dict.fromkeys(names, 0.5)
    sliced = replace(found, values=values, slices=(SliceTable("weather", tuple(rows)),))
    first, second = slice_tables(sliced)
    assert [column.header for column in first.columns] == ["weather", "inputs", "A", "lost", "B", "lost", "C", "lost"]
    assert [column.header for column in second.columns] == ["weather", "inputs", "D", "lost"]
    assert list(second.columns[3].cells) == ["1", "1", "1"]
    shorter, _ = slice_tables(sliced, most=2)
    assert (shorter.row_count, shorter.title) == (2, "by weather, the largest 2 of 3: alone, and lost without it")
    assert sliced.slices[0]["y"].alone["A"] == 1.0
    with pytest.raises(KeyError, match="no slice 'w' by weather: there are x, y, z"):
        sliced.slices[0]["w"]


def test_tables():
    _, found = result()
    table = value_table(found)
    assert [column.header for column in table.columns] == ["criterion", "value", "beside it"]
    assert table.row_count == 2
    (layers,) = layer_tables(found)
    assert [column.header for column in layers.columns] == ["layer", "neurons", "NC(0.5)", "NLC"]
    assert layers.row_count == 2
