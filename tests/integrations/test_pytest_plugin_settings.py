"""The pytest plugin: fixtures, several models, settings, and what is refused."""

import pytest

import neuralcov as nc
from neuralcov.integrations import pytest_models, pytest_session  # noqa: F401
from tests.integrations.plugin_support import TESTS, assessed, make_suite, rows, run, values

pytest_plugins = ["pytester"]


pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.core.errors.CoverageWarning")


@pytest.fixture
def suite(pytester, monkeypatch):
    return make_suite(pytester, monkeypatch)


FIXTURES = """
import pytest, torch, net

@pytest.fixture(scope="{scope}")
def network():
    yield net.make({seed})

@pytest.mark.parametrize("part", range(4))
def test_part(part, network, neuralcov_labels):
    rows = slice(15 * part, 15 * part + 15)
    with torch.no_grad():
        for half in (slice(0, 10), slice(10, 15)):
            network(net.data[rows][half])
            neuralcov_labels(net.labels[rows][half])
"""


@pytest.mark.parametrize("scope", ["session", "module", "function"])
def test_a_fixture_gives_the_model(suite, scope):
    suite.makepyfile(test_net=FIXTURES.format(scope=scope, seed=0))
    criteria = "NC(0.75), LCC, NLC, CC(1), LVC, DSC(0.1)"
    options = ("--neuralcov-criteria", criteria, "--neuralcov-calibrate", "net:train", "--neuralcov-save", "a.ncov")
    ended = run(suite, "--neuralcov", "fixture:network", *options, "--neuralcov-contexts", "c.csv")
    assert ended.ret == 0
    assert values(suite.path / "a.ncov") == assessed(criteria).values()
    assert [row["inputs"] for row in rows(suite.path / "c.csv")] == ["15"] * 4


def test_a_fixture_with_other_weights_is_refused(suite):
    suite.makepyfile(test_net=FIXTURES.format(scope="function", seed="torch.randint(1 << 30, ()).item()"))
    ended = run(suite, "--neuralcov", "fixture:network")
    assert ended.ret == 1
    ended.assert_outcomes(passed=1, errors=3)
    ended.stdout.fnmatch_lines(["*InputError: --neuralcov fixture:network gave another model than before: *"])


def test_a_cached_factory(suite):
    suite.makepyfile(test_net=TESTS.replace("net.model(", "net.cached()("))
    ended = run(suite, "--neuralcov", "net:cached", "--neuralcov-save", "a.ncov")
    assert ended.ret == 0
    assert values(suite.path / "a.ncov") == assessed("NC(0.75), TKNC(10)", calibrate=False).values()


def test_several_models(suite):
    suite.makepyfile(
        test_net="""
        import pytest, net

        def test_both(neuralcov_coverages, neuralcov_labels):
            net.model(net.data)
            neuralcov_labels(net.labels, model="net:model")
            net.other(net.data[:20])
            assert [cov.inputs for cov in neuralcov_coverages.values()] == [0, 0]  # the last pass waits for labels
            net.model(net.data), net.other(net.data[:20])
            assert [cov.inputs for cov in neuralcov_coverages.values()] == [60, 20]

        def test_which(neuralcov_labels):
            with pytest.raises(ValueError, match="2 models are measured: name one of net:model, net:other"):
                neuralcov_labels(net.labels)
            with pytest.raises(ValueError, match="'net:no' is not measured: name one of net:model, net:other"):
                neuralcov_labels(net.labels, model="net:no")
        """
    )
    models = ("--neuralcov", "net:model", "--neuralcov", "net:other")
    ended = run(suite, *models, "--neuralcov-save", "{model}.ncov")
    assert ended.ret == 0
    assert nc.Coverage.load(suite.path / "net_model.ncov").inputs == 120
    assert nc.Coverage.load(suite.path / "net_other.ncov").inputs == 40
    ended.stdout.fnmatch_lines(["*neuralcov: net:model*", "*neuralcov: net:other*"])
    ended = run(suite, *models, "--neuralcov-save", "a.ncov")
    assert ended.ret == 4
    ended.stderr.fnmatch_lines(["ERROR: a.ncov: 2 models would write it: put {model} into its name"])


def test_settings_in_pyproject(suite):
    suite.makepyprojecttoml(
        """
        [tool.neuralcov.pytest]
        models = "net:model"
        criteria = ["KMNC(5)", "SNAC"]
        layers = "0|2"
        calibrate = "net:train"
        save = "out/a.ncov"
        report = "out/a.json"
        contexts = "out/a.csv"
        fail_under = { "inputs" = 61 }
        allow_alarm = { "classes" = "a small suite" }
        """
    )
    ended = run(suite)
    assert ended.ret == 0
    assert not (suite.path / "out").exists()
    ended = run(suite, "--neuralcov")
    assert ended.ret == 1
    ended.stdout.fnmatch_lines(["NOT MET: inputs is 60, asked for ≥ 61"])
    saved = nc.Coverage.load(suite.path / "out/a.ncov")
    assert (list(saved.values()), list(saved.layout)) == (["KMNC(5)", "SNAC"], ["0", "2"])
    assert {path.name for path in (suite.path / "out").iterdir()} == {"a.ncov", "a.json", "a.csv"}
    over = ("--neuralcov-fail-under", "inputs=60", "--neuralcov-criteria", "NC(0.5)", "--neuralcov-save", "b.ncov")
    ended = run(suite, *over, "--neuralcov")
    assert ended.ret == 0
    assert list(values(suite.path / "b.ncov")) == ["NC(0.5)"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("model = 'net:model'", "'model' is not known; there are models, criteria, "),
        ("models = 3", "models = 3: expected a text, or a list of these"),
        ("fail_under = 3", "fail_under = 3: expected a table"),
        ("fail_under = { 'NC(0.75)' = 'much' }", "'much' is no number"),
        ("save = 3", "save = 3: expected a text"),
        ("", "--neuralcov names no model"),
    ],
)
def test_wrong_settings(suite, line, said):
    suite.makepyprojecttoml(f"[tool.neuralcov.pytest]\n{line}\n")
    ended = run(suite, "--neuralcov" if not line or "model" in line else "--neuralcov=net:model")
    assert ended.ret == 4
    assert said in ended.stderr.str()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--neuralcov=net"], "--neuralcov 'net': expected package.module:model or fixture:NAME"),
        (["--neuralcov=nowhere:model"], "--neuralcov nowhere:model: there is no module 'nowhere' to import"),
        (["--neuralcov=net:no"], "--neuralcov net:no: net has no 'no'"),
        (["--neuralcov=net:number"], "--neuralcov net:number is a int: expected a torch.nn.Module"),
        (["--neuralcov=net:train"], "--neuralcov net:train gave a list: expected a torch.nn.Module"),
        (["--neuralcov=net:make"], "--neuralcov net:make gives a new model at every call"),
        (["--neuralcov=test_fix:fix"], "--neuralcov test_fix:fix is a fixture: write --neuralcov fixture:fix"),
        (["--neuralcov=net:model", "--neuralcov=net:model"], "--neuralcov net:model: given 2 times: give it once"),
        (["--neuralcov=net:model", "--neuralcov-criteria=nope"], "'nope': no criterion is called 'nope'"),
        (["--neuralcov=net:model", "--neuralcov-layers=nope"], "'nope'"),
        (["--neuralcov=net:model", "--neuralcov-fail-under=0.2"], "--neuralcov-fail-under '0.2': expected NAME=NUMBER"),
        (["--neuralcov=net:model", "--neuralcov-calibrate=no.ncal"], "data 'no.ncal': expected"),
        (["--neuralcov=net:model", "--neuralcov-report=a.pdf"], "'a.pdf': its ending tells no format"),
        (["--neuralcov=net:model", "--neuralcov-contexts=a.pdf"], "expected a name that ends in .csv or .jsonl"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_wrong_use_is_told_in_one_sentence(suite, options, said):
    suite.makepyfile(test_fix="import pytest\n\n@pytest.fixture\ndef fix():\n    return 1\n")
    ended = run(suite, *options)
    assert ended.ret == 4
    lines = [line for line in ended.stderr.str().splitlines() if line.startswith("ERROR: ")]
    assert len(lines) == 1
    assert said in lines[0]


@pytest.mark.parametrize(
    ("model", "test", "said"),
    [
        ("net:other", "net.model(net.data)", "no test ran this model: name the very object that tests call"),
        ("fixture:absent", "net.model(net.data)", "--neuralcov fixture:absent: no test requested this fixture"),
        ("net:model", "net.model[0](net.data)", "no test ran the model itself, but parts of it such as '0'"),
    ],
)
def test_a_run_in_which_nothing_was_heard_fails(suite, model, test, said):
    suite.makepyfile(test_net=f"import net\n\ndef test():\n    {test}\n")
    ended = run(suite, "--neuralcov", model, "--neuralcov-save", "a.ncov")
    assert ended.ret == 1
    assert said in ended.stdout.str()
    assert not (suite.path / "a.ncov").exists()


def test_an_unknown_figure_costs_no_file(suite):
    ended = run(suite, "--neuralcov", "net:model", "--neuralcov-fail-under", "LCC=1", "--neuralcov-save", "a.ncov")
    assert ended.ret == 1
    ended.stdout.fnmatch_lines(["ERROR: 'LCC' is no figure of tests: it has *"])
    assert nc.Coverage.load(suite.path / "a.ncov").inputs == 60


def test_passes_in_training_mode_and_outside_are_told(suite):
    suite.makepyfile(
        test_net="import net\n\ndef test():\n    net.model.train()\n    net.model(net.data)\n    net.model[0](net.data)"
    )
    ended = run(suite, "--neuralcov", "net:model")
    ended.stdout.fnmatch_lines(
        ["1 of 1 pass was in training mode*", "layers such as '0' were also called outside a pass*"]
    )


def test_what_ends_early_is_not_judged(suite):
    asked = ("--neuralcov", "net:model", "--neuralcov-fail-under", "inputs=1000")
    assert run(suite, *asked, "--collect-only").ret == 0
    assert run(suite, *asked, "-k", "nothing_like_it").ret == 5
    suite.makepyfile(test_a="def test_fails():\n    assert False\n")
    ended = run(suite, *asked, "-x")
    assert ended.ret == 1
    assert "gate" not in ended.stdout.str()


def test_no_hook_is_left_behind(suite):
    suite.makeconftest(
        """
        def pytest_sessionfinish(session):
            import net
            left = [m for m in net.model.modules() if m._forward_hooks or (m._forward_pre_hooks and m is not net.model)]
            assert not left and len(net.model._forward_pre_hooks) == 1
        """
    )
    ended = run(suite, "--neuralcov", "net:model", "--neuralcov-contexts")
    assert ended.ret == 0


def test_a_test_that_trains_the_model_is_refused_by_name(suite):
    suite.makepyfile(
        test_net="""
        import net, torch

        def test_first():
            net.model(net.data)

        def test_trains():
            net.model(net.data).sum().backward()
            with torch.no_grad():
                for parameter in net.model.parameters():
                    parameter -= 0.1 * parameter.grad

        def test_after():
            net.model(net.data)
        """
    )
    ended = run(suite, "--neuralcov", "net:model", "--neuralcov-save", "a.ncov")
    ended.assert_outcomes(passed=2, failed=1)
    ended.stdout.fnmatch_lines(["*test_after*", "*MismatchError: the weights changed since the first of these inputs*"])
    assert ended.ret == 1
