"""``neuralcov selftest``: every criterion takes part, and what is wrong is found."""

import hashlib
import json
import subprocess
import sys

import pytest
import torch

import neuralcov as nc
from neuralcov.cli.selftest import chosen_criteria
from neuralcov.core.container import canonical
from neuralcov.core.criterion import Criterion
from neuralcov.core.find_criterion import criterion_class
from neuralcov.testing import check_criterion
from neuralcov.testing.selftest import find_oracle, try_criterion


def test_every_criterion_takes_part_with_brute_force():
    known = {criterion_class(name) for name in Criterion.known}
    ours = {cls for cls in known if cls and cls.__module__.startswith("neuralcov.criteria")}
    chosen = chosen_criteria()
    assert ours <= {type(criterion) for criterion in chosen}
    assert all(find_oracle(c) for c in chosen if type(c) in ours)
    assert find_oracle(nc.NPC(clusters=4)) is None


def test_without_hypothesis_or_pytest_all_holds_and_the_record_says_so(tmp_path):
    code = (
        "import sys; sys.modules.update(hypothesis=None, pytest=None)\n"
        "sys.argv = ['neuralcov', 'selftest', '--cases', '1', '--record', 'record.json']\n"
        "from neuralcov.cli.app import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    text = (tmp_path / "record.json").read_text()
    record = json.loads(text)
    told = record.pop("sha256")
    assert (told, record["passed"]) == (hashlib.sha256(canonical(record).encode()).hexdigest(), True)
    assert text == canonical({**record, "sha256": told}) + "\n"
    assert record["software"]["neuralcov"] == nc.__version__
    assert all(len(each["trials"]) >= 23 for each in record["criteria"] if each["known"])


def test_laws_say_what_they_need_where_hypothesis_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(nc.NeuralcovError, match=r"neuralcov\[testing\]"):
        check_criterion(nc.NC())


def test_a_wrong_value_is_found_by_brute_force_alone(monkeypatch):
    # Twice as large obeys most laws: only brute force knows how large it should be.
    value = nc.SNAC.value
    monkeypatch.setattr(nc.SNAC, "value", lambda self, state: 2 * value(self, state))
    gain = nc.SNAC.gain
    monkeypatch.setattr(nc.SNAC, "gain", lambda self, state, batch: 2 * gain(self, state, batch))
    failures = try_criterion(nc.SNAC(), cases=1).failures
    assert "brute force" in [trial.check for trial in failures]
    assert "by brute force" in next(trial.failure for trial in failures if trial.check == "brute force")


def test_something_wrong_ends_with_1(run, monkeypatch, tmp_path):
    monkeypatch.setattr("neuralcov.cli.selftest.chosen_criteria", lambda: [nc.NC(0.5), nc.SNAC()])
    code, out, _ = run("selftest", "--cases", "1")
    assert (code, "all 46 checks of 2 criteria hold" in out) == (0, True), out
    monkeypatch.setattr(nc.NC, "merge", lambda self, a, b: a)
    monkeypatch.setattr(nc.SNAC, "value", lambda self, state: torch.tensor(1 / 0))
    code, out, _ = run("selftest", "--cases", "1", "--record", tmp_path / "r.json")
    assert (code, "DIFFERS: NC(0.5): merge exact" in out, "ZeroDivisionError" in out) == (1, True, True), out
    assert json.loads((tmp_path / "r.json").read_text())["passed"] is False
