"""What state files hold of ``assess``: small parts as JSON in the header, large ones as tensors under ``results.``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neuralcov.core.container import Container
from neuralcov.core.layout import Layout
from neuralcov.coverage.sections.assessed import Assessed
from neuralcov.coverage.sections.neurons import NeuronExtremes
from neuralcov.coverage.words import Words
from neuralcov.results.galleries import View
from neuralcov.results.input_table import InputTable
from neuralcov.results.sections import GrowthCurve, SuiteMap
from neuralcov.results.slices import SliceTable

_AT = "results."
_WORDS, _TEXT, _NUMBERS = "words", "text", "numbers"


def assessed_to_json(told: Assessed, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Return what a header holds, and add the tensors; empty where nothing was told."""
    content: dict[str, Any] = {}
    if told.slices:
        content["slices"] = [table.to_json() for table in told.slices]
    if told.growth:
        content["growth"] = {name: asdict(curve) for name, curve in told.growth.items()}
    if told.extremes is not None:
        content["extremes"] = True
        tensors[f"{_AT}least"], tensors[f"{_AT}most"] = told.extremes.least, told.extremes.most
    if told.spectra:
        content["spectra"] = {name: list(shares) for name, shares in told.spectra.items()}
    if told.map is not None:
        content["map"] = {"layer": told.map.layer, "explained": list(told.map.explained), "named": told.map.named}
        for name, points in (("training", told.map.training), ("suite", told.map.suite)):
            tensors[f"{_AT}map.{name}"] = torch.tensor(points, dtype=torch.float32).reshape(-1, 2)
        tensors[f"{_AT}map.of"] = _text_tensor([told.map.classes, told.map.wrong])
    if told.table is not None:
        content["table"] = [
            [name, _add_column(f"{_AT}table.{place}", column, tensors)]
            for place, (name, column) in enumerate(told.table.columns.items())
        ]
        content["nearest"] = [[row, why] for row, why in told.nearest.items()]
        content["views"] = [[row, view.text] for row, view in told.views.items()]
        for row, view in told.views.items():
            if view.picture is not None:
                tensors[f"{_AT}picture.{row}"] = torch.frombuffer(bytearray(view.picture), dtype=torch.uint8)
    if told.notes:
        content["notes"] = list(told.notes)
    return content


def read_assessed(content: Mapping[str, Any], file: Container, layout: Layout) -> Assessed:
    """Read what a state file holds; refuse what cannot be."""
    table = None
    if "table" in content:
        table = InputTable(
            {str(name): _column(kind, f"{_AT}table.{n}", file) for n, (name, kind) in enumerate(content["table"])}
        )
        if len({len(column) for column in table.columns.values()}) > 1 or "id" not in table.columns:
            raise file.error("the table of inputs has columns of unequal length")
    views = {}
    for row, text in content.get("views", ()):
        name = f"{_AT}picture.{int(row)}"
        picture = bytes(file.read(name).numpy().tobytes()) if name in file.tensors else None
        views[int(row)] = View(picture, None if text is None else str(text))
    nearest = {int(row): str(why) for row, why in content.get("nearest", ())}
    rows = 0 if table is None else len(table)
    if any(not 0 <= row < rows for row in (*views, *nearest)):
        raise file.error("results name an input that the table of inputs does not have")
    return Assessed(
        slices=tuple(SliceTable.from_json(sliced) for sliced in content.get("slices", ())),
        table=table,
        growth={str(name): _curve(curve) for name, curve in content.get("growth", {}).items()},
        extremes=_extremes(file, layout) if content.get("extremes") else None,
        spectra={str(name): tuple(map(float, shares)) for name, shares in content.get("spectra", {}).items()},
        map=_map(content["map"], file) if "map" in content else None,
        views=views,
        nearest=nearest,
        notes=tuple(str(note) for note in content.get("notes", ())),
    )


def _curve(content: Mapping[str, Any]) -> GrowthCurve:
    errors, cost = content["errors"], content["cost"]
    ahead = tuple((int(n), float(x), None if e is None else float(e)) for n, x, e in content["forecast"])
    return GrowthCurve(
        tuple(map(int, content["sizes"])),
        tuple(map(float, content["values"])),
        None if errors is None else tuple(map(float, errors)),
        str(content["order"]),
        ahead,
        None if cost is None else float(cost),
    )


def _extremes(file: Container, layout: Layout) -> NeuronExtremes:
    least, most = (file.read(f"{_AT}{name}") for name in ("least", "most"))
    for tensor in (least, most):
        if tuple(tensor.shape) != (layout.neurons,) or tensor.dtype != torch.float32:
            raise file.error(f"extremes of neurons have shape {tuple(tensor.shape)}, expected {layout.neurons} numbers")
    return NeuronExtremes(least, most)


def _map(content: Mapping[str, Any], file: Container) -> SuiteMap:
    first, second = content["explained"]
    points = []
    for name in ("training", "suite"):
        tensor = file.read(f"{_AT}map.{name}")
        if tensor.ndim != 2 or tensor.shape[1] != 2:
            raise file.error(f"the map has points of shape {tuple(tensor.shape)}, expected pairs")
        points.append(tuple((float(x), float(y)) for x, y in tensor.tolist()))
    classes, wrong = _text(f"{_AT}map.of", file)
    return SuiteMap(
        str(content["layer"]),
        (float(first), float(second)),
        points[0],
        points[1],
        tuple(map(str, classes)),
        tuple(map(bool, wrong)),
        tuple((str(name), float(x), float(y)) for name, x, y in content.get("named", ())),
    )


def _add_column(name: str, column: Any, tensors: dict[str, Tensor]) -> str:
    """Add a column as the tensor that suits it; return of which kind that is."""
    if isinstance(column, Words):
        tensors[name] = torch.from_numpy(column.numbers.copy())
        return f"{_WORDS} {'' if column.nothing is None else column.nothing}".strip()
    if isinstance(column, np.ndarray):
        tensors[name] = torch.from_numpy(np.ascontiguousarray(column))
        return _NUMBERS
    tensors[name] = _text_tensor(list(column))
    return _TEXT


def _column(kind: str, name: str, file: Container) -> Any:
    if kind == _TEXT:
        return _text(name, file)
    numbers = file.read(name).numpy()
    if kind == _NUMBERS:
        return numbers
    word, _, nothing = str(kind).partition(" ")
    if word != _WORDS:
        raise file.error(f"a column of inputs of the kind {kind!r} is not known: upgrade neuralcov")
    return Words(numbers, int(nothing) if nothing else None)


def _text_tensor(content: Any) -> Tensor:
    text = json.dumps(content, ensure_ascii=True, separators=(",", ":"))
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)


def _text(name: str, file: Container) -> Any:
    return json.loads(file.read(name).numpy().tobytes().decode())
