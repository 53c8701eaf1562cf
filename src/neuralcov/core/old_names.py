"""Schema 1: the names that records had in its files, where they stood by module path, and those they have now.

Files are never rewritten: this table stays as long as schema 1 is read.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

SCHEMA_1 = {
    "neuralcov.core.abstract:AbstractPaths": "abstract-paths",
    "neuralcov.core.abstract:Members": "path-members",
    "neuralcov.core.buckets:BucketSet": "bucket-set",
    "neuralcov.core.criterion:State": "state",
    "neuralcov.core.greedy:Clusters": "clusters",
    "neuralcov.core.keys:KeySet": "key-set",
    "neuralcov.core.moments:Moments": "moments",
    "neuralcov.core.paths:PathRows": "path-rows",
    "neuralcov.core.paths:Paths": "paths",
    "neuralcov.core.ranges:Ranges": "ranges",
    "neuralcov.core.reference:Reference": "calibration",
    "neuralcov.core.sample:Sample": "sample",
    "neuralcov.core.signs:SignPairs": "sign-pairs",
    "neuralcov.core.slots:Ticks": "bitmap",
    "neuralcov.core.surprise:Buckets": "buckets",
    "neuralcov.core.traces:Traces": "traces",
    "neuralcov.core.volume:Yardstick": "training-covariance",
    "neuralcov.criteria.cc:CCState": "cc",
    "neuralcov.criteria.lvc:LVCFit": "lvc-learnt",
    "neuralcov.criteria.lvc:LVCState": "lvc",
    "neuralcov.criteria.nlc:LayerSpread": "layer-covariance",
    "neuralcov.criteria.nlc:NLCState": "nlc",
    "neuralcov.criteria.npc:NPCFit": "npc-learnt",
    "neuralcov.criteria.npc:NPCState": "npc",
    "neuralcov.criteria.ss:SSState": "ss",
    "neuralcov.criteria.tknp:Patterns": "patterns",
}


def with_declared_names(structure: Any, known: Container[str]) -> Any:
    """Return a tree of schema 1 with records under the names they declare today.

    A record whose form has changed since may be ``known`` by its old name.
    """
    if isinstance(structure, list):
        return [with_declared_names(item, known) for item in structure]
    if not isinstance(structure, dict) or "record" not in structure:
        return structure
    name = structure["record"]
    fields = {field: with_declared_names(part, known) for field, part in structure["fields"].items()}
    return {"record": name if name in known else SCHEMA_1.get(name, name), "fields": fields}


def from_schema_1(header: Mapping[str, Any], known: Container[str]) -> dict[str, Any]:
    """Return the header of a state file of schema 1 as schema 2 would have it.

    All definitions are the first; the model, the inputs and the rest of the provenance are unknown.
    """
    entries = [
        {
            "name": entry["class"],
            "definition": 1,
            "parameters": entry["parameters"],
            "calibration": entry["calibration"],
            "learnt": with_declared_names(entry["fitted"], known),
            "state": with_declared_names(entry["state"], known),
        }
        for entry in header["criteria"]
    ]
    return {
        "criteria": entries,
        "layout": header["layout"],
        "modules": header["modules"],
        "inputs": None,
        "provenance": {},
    }
