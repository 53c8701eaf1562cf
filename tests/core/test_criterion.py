import importlib
import importlib.util
import sys
from dataclasses import dataclass

import pytest

import neuralcov as nc
from neuralcov.sources.names import criterion_from_text


def test_gain_by_definition_serves_criteria_without_their_own():
    from neuralcov.core.criterion import Criterion
    from tests.support import as_tensors, covered, suite

    coverage = covered(nc.NC(0.5), suite(1, 5))
    candidates = nc.Activations(as_tensors(suite(2, 4)))
    state = coverage.states[0]
    default = Criterion.gain(nc.NC(0.5), state, candidates)
    assert default.tolist() == nc.NC(0.5).gain(state, candidates).tolist()
    assert Criterion.gain(nc.NC(0.5), state, candidates.take(slice(0, 0))).shape == (0,)


# One name, one criterion: files and command lines go by it.


@pytest.fixture
def registry(monkeypatch):
    from neuralcov.core.criterion import Criterion

    known = dict(Criterion.known)
    monkeypatch.setattr(Criterion, "known", known)
    return known


def defined(name, module="users.own"):
    """Run the definition of a criterion as a module of that name would."""
    body = f"@dataclass(frozen=True, eq=False)\nclass {name}(nc.NBC):\n    pass\n"
    scope = {"__name__": module, "nc": nc, "dataclass": dataclass}
    exec(body, scope)
    return scope[name]


@pytest.mark.parametrize("name", ["NC", "Nc", "BitmapCriterion"])
def test_a_second_class_of_one_name_is_refused(registry, name):
    before = dict(registry)
    with pytest.raises(nc.NeuralcovError, match=rf"users\.own\.{name} has the name of the criterion neuralcov\."):
        defined(name)
    assert registry == before
    assert type(criterion_from_text("nc:0.5")) is nc.NC


def test_users_do_not_take_each_others_names_either(registry):
    first = defined("Rare")
    with pytest.raises(nc.NeuralcovError, match=r"users\.other\.Rare has the name of the criterion users\.own\.Rare"):
        defined("Rare", "users.other")
    assert registry["rare"] is first


def test_a_definition_that_is_run_again_replaces_itself(registry):
    for module in ("users.own", "__main__"):
        name = "Again" + module.strip("_").replace(".", "")
        defined(name, module)
        again = defined(name, module)
        assert registry[name.lower()] is again


def test_a_reloaded_module_replaces_its_own(registry, tmp_path, monkeypatch):
    (tmp_path / "mine_reloaded.py").write_text(
        "from dataclasses import dataclass\nimport neuralcov as nc\n"
        "@dataclass(frozen=True, eq=False)\nclass MineReloaded(nc.NBC):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("mine_reloaded")
    first = module.MineReloaded
    assert importlib.reload(module).MineReloaded is not first
    assert registry["minereloaded"] is module.MineReloaded
    # The same file run as a script as well, under another name.
    spec = importlib.util.spec_from_file_location("mine_as_script", tmp_path / "mine_reloaded.py")
    script = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "mine_as_script", script)
    spec.loader.exec_module(script)
    assert registry["minereloaded"] is script.MineReloaded


def test_names_with_an_underscore_are_not_registered(registry):
    before = dict(registry)
    defined("_NC")
    assert registry == before
