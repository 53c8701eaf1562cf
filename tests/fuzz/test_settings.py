"""One object of settings for the class, the folder and the command."""

import dataclasses
import inspect
import json

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import neuralcov as nc
from neuralcov.cli.fuzz import run
from neuralcov.cli.fuzz_options import Rules, with_settings
from neuralcov.core.errors import CampaignError, InputError, MismatchError
from neuralcov.fuzz import FuzzSettings, Schedule
from neuralcov.fuzz.campaign.folder import CampaignFolder
from neuralcov.fuzz.rules import PUBLISHED
from tests.fuzz.support import fuzzer_of

NAMES = [entry.name for entry in dataclasses.fields(FuzzSettings)]


def test_an_object_and_its_fields_say_the_same(net, digits):
    plain = {"guide": "coverage"}
    settings = FuzzSettings(wave=8, tries=5, schedule="fresh", **plain)
    by_object = fuzzer_of(net, digits, [nc.NLC()], settings=settings)
    by_fields = fuzzer_of(net, digits, [nc.NLC()], wave=8, tries=5, schedule=Schedule("fresh"))
    both = fuzzer_of(net, digits, [nc.NLC()], settings=FuzzSettings(wave=8, schedule="fresh", **plain), tries=5)
    assert by_object.settings == by_fields.settings == both.settings == settings
    with pytest.raises(TypeError, match="there is no argument or setting 'waves'; settings are guide, "):
        fuzzer_of(net, digits, [nc.NLC()], waves=8)


def test_settings_come_back_from_json():
    settings = FuzzSettings(wave=np.int64(7), min_gain=np.float64(0.5), schedule=Schedule("fresh", 2.0), pictures=None)
    again = FuzzSettings.from_json(json.loads(json.dumps(settings.to_json())))
    assert again == settings
    assert FuzzSettings.from_json({"wave": 3}) == FuzzSettings(wave=3)
    with pytest.raises(InputError, match="tries=True: expected a whole number from 1 to 32767"):
        FuzzSettings(tries=True)


def test_the_first_setting_that_differs_is_named():
    stored = FuzzSettings(tries=9, seed=4, checkpoint=1.0, pictures=1).to_json()
    assert FuzzSettings(seed=4).first_difference(stored) == "tries"
    assert FuzzSettings(tries=9).first_difference(stored) == "seed"
    assert FuzzSettings(tries=9, seed=4).first_difference(stored) is None
    assert FuzzSettings(tries=1).first_difference({}) is None
    plain = FuzzSettings(guide="coverage", mutation_choice="uniform").to_json()
    assert FuzzSettings(guide="coverage").first_difference(plain) is None
    assert FuzzSettings(guide="coverage", mutation_choice="bandit").first_difference(plain) == "mutation_choice"
    assert [FuzzSettings(guide=guide).chosen_by for guide in ("coverage", "random")] == ["uniform"] * 2
    assert [FuzzSettings(guide=guide).chosen_by for guide in ("margin", "elites+coverage")] == ["forecast"] * 2


def test_the_command_has_an_option_for_every_setting():
    parameters = inspect.signature(run).parameters
    assert set(NAMES) <= set(parameters)
    assert "settings" not in parameters
    assert all(parameters[name].default == getattr(FuzzSettings(), name) for name in NAMES if name != "schedule")


def test_the_command_takes_what_a_person_gives_and_the_rest_from_the_rules():
    given = {}
    app = typer.Typer()

    @app.command()
    @with_settings
    def command(*, settings: FuzzSettings, other: int = 1, rules: Rules = None) -> None:
        given.update(settings=settings, other=other)

    def settings_of(*words):
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output
        return given["settings"]

    assert settings_of("--wave", "5", "--other", "2") == FuzzSettings(wave=5)
    assert given["other"] == 2
    assert settings_of("--rules", "published") == PUBLISHED
    # The value that is the default elsewhere counts if somebody gives it.
    assert settings_of("--rules", "published", "--beta", "0.4", "--no-identities") == dataclasses.replace(
        PUBLISHED, beta=0.4, identities=False
    )
    assert isinstance(CliRunner().invoke(app, ["--rules", "old"]).exception, InputError)


def as_schema_1(folder, order=None):
    """Write a campaign's configuration as the first version did."""
    config = json.loads((folder / "config.json").read_text())
    settings, validity = config.pop("settings"), config.pop("validity")
    later = ("alpha", "beta", "checkpoint", "pictures")
    rules = {name: value for name, value in settings.items() if name not in later}
    notes = {} if order is None else {"order": order}
    config = {**config, "schema": 1, "rules": {**rules, "refresh": 1, "validity": validity}, "notes": notes}
    (folder / "config.json").write_text(json.dumps(config))


def test_a_folder_of_schema_1_goes_on_with_its_settings_only(net, digits, tmp_path):
    folder = CampaignFolder(tmp_path / "c")
    fuzzer_of(net, digits, [nc.NLC()], wave=8, folder=folder.path, pictures=3).run(iterations=8)
    as_schema_1(folder.path, {"model": "demo:digits", "wave": 8, "pictures": 3, "checkpoint": 5.0})
    plain = FuzzSettings(guide="coverage")
    assert folder.settings() == plain.changed(wave=8, pictures=3, checkpoint=5.0)
    for changes, name in (({"rounds": 2}, "rounds 8, this one 2"), ({"beta": 0.5}, r"beta 0\.4, this one 0\.5")):
        with pytest.raises(MismatchError, match=f"the campaign there has {name}; give it what it had"):
            fuzzer_of(net, digits, [nc.NLC()], wave=8, folder=folder.path, **changes).resume(iterations=9)
    again = fuzzer_of(net, digits, [nc.NLC()], wave=8, folder=folder.path, pictures=None, checkpoint=1.0)
    assert again.resume(iterations=16).iterations == 16


def test_settings_that_cannot_be_read(net, digits, tmp_path):
    folder = CampaignFolder(tmp_path / "c")
    fuzzer_of(net, digits, [nc.NLC()], wave=8, folder=folder.path).run(iterations=0)
    config = folder.config()
    for changed in ({"wave": 0}, {"speed": 3}):
        folder.write_json("config.json", {**config, "settings": {**config["settings"], **changed}})
        with pytest.raises(CampaignError, match=r"config\.json: settings cannot be read \(.*(wave=0|'speed')"):
            folder.settings()
