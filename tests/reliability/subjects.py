"""What is damaged, and what reads it: states, calibrations, campaigns, images, archives, plain data."""

import contextlib
import gzip
import hashlib
import io
import json
import shutil
import struct
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save as save_tensors

import neuralcov as nc
from neuralcov.cli.fuzz_output import show_campaign
from neuralcov.cli.fuzz_setup import names_of
from neuralcov.cli.fuzz_trust import stored_seeds
from neuralcov.cli.policy import read_policy
from neuralcov.coverage.store import load_calibration
from neuralcov.fuzz.campaign.folder import CampaignFolder
from neuralcov.fuzz.campaign.reader import open_campaign
from neuralcov.results.evidence import read_evidence
from neuralcov.results.table_file import read_table
from neuralcov.sources.data import image_folder
from neuralcov.sources.models import read_weights
from neuralcov.sources.npz import read_npz
from neuralcov_lab.data.mnist import read_idx
from neuralcov_lab.experiments.jobs import JobFolder
from neuralcov_lab.experiments.scales import SCALES
from neuralcov_lab.fetching.archives import extract
from neuralcov_lab.fetching.cache import is_complete
from tests.reliability.mutation import damaged, damaged_tree

GOLDEN = Path(__file__).parents[1] / "golden"
CPU = torch.device("cpu")


@dataclass(frozen=True, eq=False)
class Subject:
    """Hold one kind of file: examples by name, how one is damaged, and what reads it.

    ``read`` is given the name, the damaged bytes and an empty folder; it gives what must not differ from what the
    sound file gave, or ``None`` where only errors are looked at.
    """

    name: str
    examples: dict[str, bytes]
    read: Callable[[str, bytes, Path], object]
    signed: bool = False

    def damage(self, name: str, content: bytes, dice) -> bytes:
        if self.signed:
            return _damage_signed(content, dice)
        if name.endswith(".json") and dice.random() < 0.5:
            with contextlib.suppress(ValueError):
                return json.dumps(damaged_tree(json.loads(content), dice)).encode()
        return damaged(content, list(self.examples.values()), dice)


def subjects():
    """Return every kind of file that is damaged."""
    states = {path.name: path.read_bytes() for path in [*GOLDEN.glob("schema-2/*.ncov"), *GOLDEN.glob("lcc/*.ncov")]}
    calibrations = {"lcc.ncal": (GOLDEN / "lcc" / "training.ncal").read_bytes(), "small.ncal": _small_calibration()}
    old = {path.name: path.read_bytes() for path in (GOLDEN / "schema-1").glob("*.ncov")}
    return [
        Subject("states", states, _read_state),
        Subject("states, signed anew", states, _use_state, signed=True),
        Subject("calibrations", calibrations, _read_calibration),
        Subject("calibrations, signed anew", calibrations, _use_calibration, signed=True),
        Subject("states of schema 1", old, _use_state, signed=True),
        Subject("calibrations of schema 1", _old_calibration(), _use_calibration, signed=True),
        Subject("campaigns", _campaign("schema-2"), _read_campaign),
        Subject("campaigns of schema 1", _campaign("schema-1"), partial(_read_campaign, schema="schema-1")),
        Subject("images", _images(), _read_image),
        Subject("archives", _archives(), _read_archive),
        Subject("plain data", _plain_data(), _read_plain),
    ]


def _damage_signed(content, dice):
    """Change a header as somebody would who can write checksums too."""
    length = int.from_bytes(content[:8], "little")
    entries = json.loads(content[8 : 8 + length])
    header = json.loads(entries["__metadata__"]["header"])
    metadata = entries.pop("__metadata__")
    if dice.random() < 0.7:
        header = damaged_tree(header, dice)
    else:
        entries = damaged_tree(entries, dice)
        entries = entries if isinstance(entries, dict) else {}
    entries["__metadata__"] = metadata
    text = json.dumps(header)
    entries["__metadata__"]["header"] = text
    entries["__metadata__"]["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    head = json.dumps(entries).encode()
    return len(head).to_bytes(8, "little") + head + content[8 + length :]


def _read_state(name, content, folder):
    coverage = nc.Coverage.from_bytes(content)
    return coverage.values(), [row.values for row in coverage.by_layer()], coverage.inputs


def _use_state(name, content, folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        coverage = nc.Coverage.from_bytes(content)
        coverage.values(), coverage.by_layer(), coverage.details()
        coverage.results().to_json()
        coverage.to_bytes()


def _small_calibration():
    """Return a calibration of every statistic, of layers of two and three neurons."""
    random = torch.Generator().manual_seed(0)
    criteria = [nc.KMNC(4), nc.LVC(), nc.LSC(1), nc.NPC(clusters=2, buckets=3), nc.LCC()]
    coverage = nc.Coverage.of_layers({"a": 2, "b": 3}, criteria)
    data = {"a": torch.randn(30, 2, generator=random), "b": torch.randn(30, 3, generator=random)}
    labels = torch.arange(30) % 3
    relevance = {name: rows.abs() for name, rows in data.items()}
    batch = nc.Activations(layers=data, labels=labels, predictions=labels, relevance=relevance)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        coverage.calibrate(activations=[batch])
    path = Path("/dev/shm" if Path("/dev/shm").is_dir() else "/tmp") / f"small-{id(coverage)}.ncal"
    try:
        coverage.save_calibration(path)
        return path.read_bytes()
    finally:
        path.unlink(missing_ok=True)


def _read_calibration(name, content, folder):
    (folder / "x.ncal").write_bytes(content)
    found = load_calibration(folder / "x.ncal", CPU).calibration
    return found.identity(found.of_training), found.seen, found.excluded


def _use_calibration(name, content, folder):
    (folder / "x.ncal").write_bytes(content)
    found = load_calibration(folder / "x.ncal", CPU).calibration
    found.identity(found.of_training)


def _old_calibration():
    return {"training.ncal": (GOLDEN / "schema-1" / "training.ncal").read_bytes()}


def _campaign(schema):
    top = GOLDEN / schema / "images"
    return {
        str(path.relative_to(top)): path.read_bytes()
        for path in sorted(top.rglob("*"))
        if path.suffix in (".json", ".jsonl", ".log", ".safetensors", ".ncov") and "faults" not in path.parts
    }


def _read_campaign(name, content, folder, schema="schema-2"):
    place = folder / "campaign"
    shutil.copytree(GOLDEN / schema / "images", place)
    (place / name).write_bytes(content)
    (place / "coverage" / "backup.ncov").write_bytes(b"stray")
    found = open_campaign(place)
    with contextlib.redirect_stdout(io.StringIO()):
        show_campaign(found)
    kept = CampaignFolder(place)
    kept.repair()
    latest = kept.latest_coverage()
    if latest is not None:
        nc.Coverage.load(latest[1])
    stored_seeds(place)
    with contextlib.suppress(nc.NeuralcovError):  # of Python alone, as the golden one is
        names_of(place)


def _images():
    random = np.random.default_rng(0)
    found = {}
    for ending in ("png", "jpg", "bmp", "webp", "ppm", "gif", "tiff"):
        file = io.BytesIO()
        kind = {"jpg": "JPEG", "tiff": "TIFF"}.get(ending, ending.upper())
        Image.fromarray(random.integers(0, 256, (9, 7, 3), dtype=np.uint8)).save(file, kind)
        found[f"x.{ending}"] = file.getvalue()
    return found


def _read_image(name, content, folder):
    (folder / "a").mkdir()
    (folder / "a" / name).write_bytes(content)
    image_folder(folder)


def _archives():
    """Return archives with files, links and paths that lead outside."""
    found = {}
    for ending, mode in (("tgz", "w:gz"), ("tar.gz", "w:gz")):
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode=mode) as tarred:
            for name in ("package/a", "package/b"):
                entry = tarfile.TarInfo(name)
                entry.size = 200
                tarred.addfile(entry, io.BytesIO(bytes(range(200))))
        found[f"x.{ending}"] = file.getvalue()
    # Not packed, so that what is damaged is the tar file itself.
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tarred:
        for name, kind in (("package/a", tarfile.REGTYPE), ("package/b", tarfile.SYMTYPE), ("../out", tarfile.REGTYPE)):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, "/etc/passwd" if kind == tarfile.SYMTYPE else ""
            tarred.addfile(entry)
    found["plain.tar.gz"] = file.getvalue()
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("package/a", bytes(200))
        zipped.writestr("package/b", b"text" * 50)
    found["x.whl"] = file.getvalue()
    tarred = found["x.tar.gz"]
    head = b"data.tar.gz".ljust(16) + b"0".ljust(12) + b"0".ljust(6) * 2 + b"100644".ljust(8)
    found["x.deb"] = b"!<arch>\n" + head + str(len(tarred)).encode().ljust(10) + b"`\n" + tarred
    file = io.BytesIO()
    images = np.arange(4 * 3 * 5 * 5, dtype=np.uint8).reshape(4, 3, 5, 5)
    np.savez_compressed(file, inputs=images, labels=np.arange(4), ids=np.array(["a", "b", "c", "d"]))
    found["pictures.npz"] = file.getvalue()
    file = io.BytesIO()
    np.savez(file, input_ids=np.ones((3, 6), np.int64), attention_mask=np.ones((3, 6), np.int64), y=np.arange(3))
    found["texts.npz"] = file.getvalue()
    idx = b"\0\0\x08\x03" + struct.pack(">3I", 2, 3, 4) + bytes(24)
    found |= {"x-idx3-ubyte": idx, "x-idx3-ubyte.gz": gzip.compress(idx)}
    return found


def _read_archive(name, content, folder):
    path = folder / name
    path.write_bytes(content)
    if name.endswith(".npz"):
        for _ in read_npz(path, 2).loader:
            pass
    elif "idx" in name:
        read_idx(path)
    else:
        extract(path, {"package/a": "a", "package/b": "b"}, folder / "into")


def _plain_data():
    coverage = nc.Coverage.from_bytes((GOLDEN / "schema-2" / "nc.ncov").read_bytes())
    weights = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.zeros(3, dtype=torch.int64)}
    file = io.BytesIO()
    torch.save(weights, file)
    described = {"experiments": ["x"], "parameters": {}, "work": 1, "rank": 0, "kind": "k"}
    plan = {"scale": SCALES["smoke"].to_json(), "cells": {"a": described}}
    cell = {"name": "a", "status": "done", "result": {}, "seconds": 1, "seed": 0, **described}
    return {
        "evidence.json": coverage.evidence(coverage.results()).to_text().encode(),
        "table.csv": b"id,class,excluded,NC(0.75).first,NC(0.75).gain\na,1,,3,0.5\nb,2,not finite,,\n",
        "table.jsonl": b'{"id":"a","class":1,"excluded":""}\n{"id":"b","class":2,"excluded":"x"}\n',
        "policy.toml": b'[min]\n"LCC.relative" = 0.9\n[[waivers]]\ngate = "x"\nreason = "y"\nowner = "z"\n'
        b"expires = 2030-01-01\n",
        "plan.json": json.dumps(plan).encode(),
        "cell.json": json.dumps(cell).encode(),
        "complete.json": b'{"files":{"x":{"bytes":3,"sha256":"00"}},"package":"p"}',
        "weights.safetensors": save_tensors(weights),
        "weights.pt": file.getvalue(),
    }


def _read_plain(name, content, folder):
    path = folder / name
    path.write_bytes(content)
    if name == "evidence.json":
        return read_evidence(content, "evidence.json").to_text()
    if name.startswith("table"):
        read_table(path)
    elif name == "policy.toml":
        read_policy(path)
    elif name == "plan.json":
        JobFolder(folder).plan()
    elif name == "cell.json":
        (folder / "cells").mkdir()
        (folder / "cells" / "cell.json").write_bytes(content)
        JobFolder(folder).read("cell")
    elif name == "complete.json":
        is_complete(folder)
    else:
        read_weights(path)
    return None
