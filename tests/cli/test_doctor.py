"""``neuralcov doctor`` against what the metadata of the installed package say."""

import json
from importlib.metadata import metadata, version

from neuralcov.cli.doctor import diagnose


def test_it_tells_versions_criteria_and_what_every_extra_lacks(run, tmp_path):
    code, out, _ = run("doctor", "--json", tmp_path / "found.json")
    assert code == 0
    told = json.loads((tmp_path / "found.json").read_text())
    now = json.loads(json.dumps(diagnose()))
    for found in (told, now):
        assert all(place.pop("free") > 0 for place in found["caches"].values())
    assert told == now
    assert told["versions"]["torch"] == version("torch")
    assert {"NLC", "LCC", "NC"} <= set(told["criteria"])
    declared = set(metadata("neuralcov").get_all("Provides-Extra")) - {"dev", "all"}
    assert set(told["extras"]) == declared
    for extra, state in told["extras"].items():
        assert extra in out
        for name, number in state["has"].items():
            assert version(name) == number
    assert ("Every extra is complete." in out) == (not any(state["lacks"] for state in told["extras"].values()))


def test_caches_are_where_the_environment_says(run, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "models"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    code, out, _ = run("doctor")
    assert code == 0
    found = diagnose()["caches"]
    assert found["models of Hugging Face"]["folder"] == str(tmp_path / "models")
    assert not found["models of Hugging Face"]["exists"]
    assert found["training traces beyond memory="]["folder"] == str(tmp_path)
    assert found["training traces beyond memory="]["exists"]
    assert "not made yet" in out


def test_short_help_and_completion(run):
    code, out, _ = run("-h")
    assert code == 0
    assert "doctor" in out
    assert "--show-completion" in out
