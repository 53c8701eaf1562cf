"""Run the commands that pages on integrations begin with, and hold their files against what they are for."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.integrations.support import environment, install_entry_points

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "integrations"
MODELS = "from neuralcov import demo\n\nmodel = demo.train_digits(epochs=1, progress=False)\n"
DATA = "from neuralcov import demo\n\ndef train_loader():\n    return demo.digits('train').loader(100)\n"
TEST = """
import torch
from neuralcov import demo
from my_package.models import model

def test_digits():
    images = demo.digits("test").pixels()
    with torch.no_grad():
        assert model(images).shape == (len(images), 10)
"""


def first_block(page, language):
    return re.search(rf"```{language}\n(.*?)```", (PAGES / page).read_text(), re.DOTALL)[1]


def pytest_lines():
    return [line for line in first_block("pytest.md", "sh").splitlines() if line.startswith("pytest")]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    (folder / "my_package").mkdir()
    for name, content in {"__init__": "", "models": MODELS, "data": DATA}.items():
        (folder / "my_package" / f"{name}.py").write_text(content)
    (folder / "test_digits.py").write_text(TEST)
    install_entry_points(folder / "site")
    return folder


def test_the_page_begins_with_commands():
    assert len(pytest_lines()) == 4
    assert (PAGES / "pytest.md").read_text().startswith("# pytest\n\n```sh\n")


@pytest.mark.parametrize("line", pytest_lines())
def test_a_line_for_pytest(project, line):
    _, *options = shlex.split(line, comments=True)
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment(project / "site") | {"PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "597 inputs in 1 pass" in ended.stdout
    if "calibrate" in line:
        assert "LCC" in ended.stdout
    if "fail-under" in line:
        assert "met: NC(0.75)" in ended.stdout
    if "contexts" in line:
        assert "test_digits.py::test_digits" in ended.stdout


def test_the_step_of_the_page_on_ci_is_one_that_the_action_takes():
    action = yaml.safe_load((ROOT / "examples" / "ci" / "github" / "action.yml").read_text())
    (step,) = yaml.safe_load(first_block("ci.md", "yaml"))
    folder = step["uses"].partition("@")[0].removeprefix("neuralcov/neuralcov/")
    assert (ROOT / folder / "action.yml").is_file()
    required = {name for name, entry in action["inputs"].items() if entry.get("required")}
    assert required <= set(step["with"]) <= set(action["inputs"])
    told = (PAGES / "ci.md").read_text()
    assert all(f"`{name}`" in told for name in (*action["inputs"], *action["outputs"]))


def test_every_page_is_listed():
    listed = (PAGES / "README.md").read_text()
    assert all(f"]({page.name})" in listed for page in PAGES.glob("*.md") if page.name != "README.md")


@pytest.mark.skipif(not (ROOT / ".github").is_dir(), reason="not a checkout")
def test_what_is_run_by_hand_is_there():
    (job,) = yaml.safe_load((ROOT / ".github" / "workflows" / "by-hand.yml").read_text())["jobs"].values()
    (target,) = [step["run"].removeprefix("make ") for step in job["steps"] if "run" in step]
    recipe = (ROOT / "Makefile").read_text().partition(f"\n{target}:")[2].partition("\n\n")[0]
    paths = re.findall(r"tests/[\w/.]+", recipe)
    assert len(paths) == 3
    assert all((ROOT / path).is_file() for path in paths)
