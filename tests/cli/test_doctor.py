"""``neuralcov doctor`` against what the metadata of the installed package say."""

import json
from importlib.metadata import metadata, version

from neuralcov.cli.doctor import diagnose


def test_it_tells_versions_criteria_and_what_every_extra_lacks(run, tmp_path):
    code, out, _ = run("doctor", "--json", tmp_path / "found.json")
    assert code == 0
    told = json.loads((tmp_path / "found.json").read_text())
    assert told == json.loads(json.dumps(diagnose()))
    assert told["versions"]["torch"] == version("torch")
    assert {"NLC", "LCC", "NC"} <= set(told["criteria"])
    declared = set(metadata("neuralcov").get_all("Provides-Extra")) - {"dev", "all"}
    assert set(told["extras"]) == declared
    for extra, state in told["extras"].items():
        assert extra in out
        for name, number in state["has"].items():
            assert version(name) == number
    assert ("Every extra is complete." in out) == (not any(state["lacks"] for state in told["extras"].values()))


def test_short_help_and_completion(run):
    code, out, _ = run("-h")
    assert code == 0
    assert "doctor" in out
    assert "--show-completion" in out
