"""What the package exports without importing it: all of it, and the right objects."""

import ast
import inspect
import pickle
import subprocess
import sys

import pytest

import neuralcov as nc
from neuralcov.core import lazy


def run(script):
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)


def test_importing_the_package_imports_nothing_else():
    script = "import sys; before = set(sys.modules); import neuralcov; print(*set(sys.modules) - before)"
    ended = run(script)
    found = {name.partition(".")[0] for name in ended.stdout.split()}
    assert "neuralcov" in found
    assert found.isdisjoint({"torch", "numpy", "safetensors", "typer", "rich", "PIL", "filelock"})


def test_every_name_is_that_of_its_module():
    """The type checker reads other lines than the interpreter: both must name the same."""
    (block,) = [node for node in ast.parse(inspect.getsource(nc)).body if isinstance(node, ast.If)]
    told = {alias.name: node.module for node in block.body for alias in node.names}
    assert set(told) == set(nc.__all__) - {"__version__"}
    for name, module in told.items():
        assert getattr(nc, name) is getattr(sys.modules[module], name)
        assert name in dir(nc)


def test_star():
    found = {}
    exec("from neuralcov import *", found)
    assert set(nc.__all__) - {"__version__"} <= set(found)


@pytest.mark.parametrize(
    "first",
    [
        "import neuralcov.rank",
        "from neuralcov.rank import scores",
        "from neuralcov.rank.rank import rank as other",
        "neuralcov.select, neuralcov.minimise",
        "import neuralcov.cli.app",
    ],
)
def test_a_function_stands_above_the_folder_of_its_name(first):
    ended = run(
        f"import neuralcov\n{first}\nfrom neuralcov import rank\n"
        "print(callable(neuralcov.rank), rank is neuralcov.rank)"
    )
    assert ended.stdout.split() == ["True", "True"], ended.stderr


def test_folders_are_there_without_being_imported():
    assert run("import neuralcov; neuralcov.criteria.NC, neuralcov.coverage.Coverage").returncode == 0


def test_an_unknown_name():
    with pytest.raises(AttributeError, match="module 'neuralcov' has no attribute 'nlc'"):
        nc.nlc  # noqa: B018
    assert not hasattr(nc, "nlc")


def test_criteria_are_pickled():
    assert pickle.loads(pickle.dumps(nc.NC(0.5))).name == "NC(0.5)"


@pytest.mark.parametrize(
    "script",
    [
        "from neuralcov.coverage import Coverage\nprint(Coverage.load({path!r}).values())",
        "from neuralcov.sources.names import criterion_from_text\nprint(criterion_from_text('lvc').name)",
        "from neuralcov.core.find_criterion import criterion_class\nprint(criterion_class('nlc').__name__)",
    ],
)
def test_files_and_names_find_criteria_that_nobody_imported(tmp_path, script):
    path = tmp_path / "a.ncov"
    cov = nc.Coverage.of_layers({"a": 2}, [nc.NC(0.5), nc.NLC()])
    cov.update(activations={"a": [[0.0, 1.0], [2.0, 0.5]]})
    cov.save(path)
    ended = run(script.format(path=str(path)))
    assert ended.returncode == 0, ended.stderr


def test_other_packages_may_use_it(tmp_path, monkeypatch):
    folder = tmp_path / "lazypack"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "from neuralcov.core.lazy import export_lazily\nexport_lazily(__name__, {'f': 'lazypack.f'}, ['g'])\n"
    )
    (folder / "f.py").write_text("def f(): return 1\n")
    (folder / "g.py").write_text("value = 2\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import lazypack
    import lazypack.f

    assert (lazypack.f(), lazypack.g.value) == (1, 2)
    assert {"f", "g"} <= set(dir(lazypack))
    assert lazy.export_lazily.__doc__


def test_the_package_travels_by_name():
    """As engines such as Ray and Dask send functions that use it."""
    assert pickle.loads(pickle.dumps(nc)) is nc
