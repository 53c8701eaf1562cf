"""Evidence of which one field was changed, with a new digest: noticed where anything else can tell."""

import copy
import datetime
import hashlib
import json

import pytest

import neuralcov as nc
from neuralcov import demo
from neuralcov.core.container import canonical
from neuralcov.core.errors import InputError, MismatchError, StateFileError
from neuralcov.results.evidence import read_evidence
from neuralcov.results.gate import judge_gate
from neuralcov.results.policy import Policy
from neuralcov.results.verification import verdicts_again, verify

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")
# Words about the measurement, when it was made, and what was asked: a signature is what vouches for these.
WORDS = {
    "identity.calibration.name", "identity.file", "identity.model.class", "identity.model.name",
    "identity.suite.keys", "identity.suite.name", "made", "procedure.seed", "results.findings", "results.model",
    "results.suite", "results.weights", "thresholds.limit", "thresholds.reason", "thresholds.requirement",
    "tolerance.absolute", "tolerance.relative", "verdict.checks", "verdict.schema", "verdict.suite",
}  # fmt: skip
# By these the last digits of numbers may differ: figures are compared within the tolerance then, and that is said.
DIGITS = ("procedure.batch_size", "procedure.device", "procedure.order", "procedure.precision", "software.")


def measured(net):
    cov = nc.Coverage(net, [nc.LCC(), nc.KMNC(100), nc.SNAC()])
    cov.calibrate(demo.digits("train").batches(), held_out=0.3)
    cov.assess(demo.digits("test").batches(), slices=["class"])
    cov.note_procedure(batch_size=100)
    return cov


@pytest.fixture(scope="module")
def both():
    """Evidence with a gate, and a second measurement of the same."""
    net = demo.train_digits(progress=False)
    first, again = measured(net), measured(net)
    policy = Policy(least={"LCC.relative": 0.8}, most={"LCC.off_map": 0.2})
    verdict = judge_gate(first.results(), policy, datetime.date(2026, 1, 1))
    return first.evidence().judged(policy, verdict), again.evidence(), again.results()


def leaves(content, path=()):
    parts = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, part in parts:
        yield from leaves(part, (*path, key))
    if not isinstance(content, (dict, list)):
        yield path


def changed(content, path):
    """Return the file's bytes with one field changed by next to nothing, and a digest that fits."""
    content = copy.deepcopy(content)
    *way, last = path
    part = content
    for key in way:
        part = part[key]
    old = part[last]
    if isinstance(old, bool):
        part[last] = not old
    elif isinstance(old, (int, float)):
        part[last] = old + 1 if isinstance(old, int) else old * (1 + 1e-12) + 1e-12
    else:
        part[last] = f"{old}x"
    content["sha256"] = hashlib.sha256(canonical(content).encode()).hexdigest()
    return canonical(content).encode()


def noticed(data, again, results):
    try:
        stated = read_evidence(data, "e.json")
        found = verify(stated, again, "e.json")
        agree = found.agrees and all(figure.agrees for figure in verdicts_again(stated, results))
    except (StateFileError, MismatchError, InputError):
        return "refused"
    return "differs" if not agree else "nothing" if found.exact else "within tolerance"


def test_every_field_that_was_changed(both):
    stated, again, results = both
    assert noticed(stated.to_text().encode(), again, results) == "nothing"
    content = json.loads(stated.to_text())
    del content["sha256"]
    found = {path: noticed(changed(content, path), again, results) for path in leaves(content)}
    assert len(found) > 300
    names = {path: ".".join(str(key) for key in path[:3] if not isinstance(key, int)) for path in found}
    assert {names[path] for path, how in found.items() if how == "nothing"} <= WORDS
    assert all(names[path].startswith(DIGITS) for path, how in found.items() if how == "within tolerance")
    # Every number that was measured, of all that were compared.
    for path, how in found.items():
        if path[0] == "results" and path[1] in ("values", "details", "layers", "sanity", "references", "slices"):
            assert how in ("differs", "refused"), path


def test_a_verdict_that_its_checks_do_not_give(both):
    stated, again, results = both
    content = json.loads(stated.to_text())
    del content["sha256"]
    assert noticed(changed(content, ("verdict", "met")), again, results) == "refused"
    content["results"]["sanity"]["alarms"] = [{"name": "unlike", "sentence": "all are"}]
    with pytest.raises(StateFileError, match="the alarm unlike stands, and the verdict does not say so"):
        read_evidence(changed(content, ("made",)), "e.json")
