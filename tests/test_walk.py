"""A new user's first hour: the built wheel in an empty environment, a model of their own, a report, a failing gate.

Takes a minute or two and needs what pip needs to find torch: run it with ``-m slow``. PIP_CONSTRAINT counts.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent

SHOP = '''
"""Tell whether a parcel fits: a model and data such as anybody has."""

import sys

import numpy as np
import torch
from torch import nn


def build():
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))


def parcels(seed, size):
    x = torch.rand(size, 4, generator=torch.Generator().manual_seed(seed))
    return x, (x.sum(1) * 1.5).long().clamp(1, 3) - 1


def train():
    torch.manual_seed(0)
    net, (x, y) = build(), parcels(1, 3000)
    steps = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(300):
        steps.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        steps.step()
    torch.save(net.state_dict(), "weights.pt")
    np.savez("train.npz", x=x, y=y)
    x, y = parcels(2, 800)
    np.savez("test.npz", x=x, y=y)
    few = y < 2
    np.savez("few.npz", x=x[few], y=y[few])
    np.savez("unscaled.npz", x=255 * x, y=y)


if __name__ == "__main__":
    train()
'''
IN_PYTHON = """
import numpy as np, torch
import neuralcov as nc
import shop

net = shop.build()
net.load_state_dict(torch.load("weights.pt", weights_only=True))
train, test = (torch.from_numpy(np.load(f"{name}.npz")["x"]) for name in ("train", "test"))
cov = nc.Coverage(net, [nc.LCC(), nc.KMNC(100)])
cov.calibrate(train.split(100), held_out=0.3)
cov.assess(test.split(100))
print(cov)
cov.report("report.html")
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """An environment that holds the built wheel and what pip installs with it, and a folder to work in."""
    folder = tmp_path_factory.mktemp("walk")
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV", "COLUMNS"))}
    wheel = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder / "dist"), str(ROOT)]
    subprocess.run(wheel, check=True, env=ours, timeout=600)
    (built,) = (folder / "dist").glob("neuralcov-*.whl")
    venv.create(folder / "env", with_pip=True)
    scripts = folder / "env" / ("Scripts" if os.name == "nt" else "bin")
    subprocess.run([scripts / "python", "-m", "pip", "install", "-q", built], check=True, env=ours, timeout=1800)
    (folder / "work").mkdir()
    (folder / "work" / "shop.py").write_text(SHOP)

    def run(program, *arguments, code=0, folder=folder / "work"):
        done = subprocess.run(
            [scripts / program, *map(str, arguments)], cwd=folder, env=ours, capture_output=True, text=True,
            timeout=600, check=False,
        )  # fmt: skip
        assert done.returncode == code, f"{arguments}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done.stdout, done.stderr

    run("python", "shop.py")
    return folder, built, run


MEASURE = "measure", "shop:build", "--weights", "weights.pt", "--calibrate", "npz:train.npz"


def test_what_is_installed(place):
    folder, built, run = place
    where, _ = run("python", "-c", "import neuralcov; print(neuralcov.__file__)")
    assert Path(where.strip()).is_relative_to(folder / "env")
    listed, _ = run("python", "-m", "pip", "list", "--format", "json")
    installed = {entry["name"].lower() for entry in json.loads(listed)}
    assert not installed & {"hypothesis", "pytest", "onnx", "kornia"}
    with zipfile.ZipFile(built) as archive:
        named = json.loads(archive.read("neuralcov/testing/qualification.json"))
    assert named == json.loads((ROOT / "src/neuralcov/testing/qualification.json").read_text(encoding="utf-8"))


def test_from_the_wheel_to_a_failing_gate(place):
    folder, _, run = place
    work = folder / "work"
    out, _ = run("neuralcov", *MEASURE, "--data", "npz:test.npz", "--held-out", "0.3", "--slices", "class",
                 "--save", "suite.ncov", "--evidence", "evidence.json")  # fmt: skip
    told = " ".join(out.replace("│", " ").split())
    assert "as varied as training data" in told
    assert "held-out training inputs" in told
    assert "ALARM" not in out
    assert "800 inputs" in run("neuralcov", "show", "suite.ncov")[0]
    gate = "gate", "suite.ncov", "--min", "LCC.relative=0.8", "--min", "accuracy=0.9"
    assert "gate met" in run("neuralcov", *gate)[0]
    # Not met: too much is asked; a class is missing; somebody forgot to scale.
    out, _ = run("neuralcov", "gate", "suite.ncov", "--min", "LCC.relative=1.5", code=1)
    assert "gate NOT met" in out
    for name, alarm in (("few", "alarm:classes"), ("unscaled", "alarm:unlike")):
        run("neuralcov", *MEASURE, "--data", f"npz:{name}.npz", "--save", f"{name}.ncov")
        out, _ = run("neuralcov", "gate", f"{name}.ncov", "--min", "inputs=100", code=1)
        assert f"NOT MET: {alarm}" in out
    run("neuralcov", "compare", "suite.ncov", "few.ncov")
    out, _ = run("neuralcov", "verify", "evidence.json", "shop:build", "--weights", "weights.pt",
                 "--data", "npz:test.npz", "--calibrate", "npz:train.npz")  # fmt: skip
    assert "compared to the bit" in out
    # A mistake ends in one sentence.
    _, err = run("neuralcov", *MEASURE, "--data", "npz:nowhere.npz", code=2)
    assert err.count("neuralcov:") == 1
    assert (work / "suite.ncov").stat().st_size > 1000


def test_a_report_in_python(place):
    folder, _, run = place
    out, _ = run("python", "-c", IN_PYTHON)
    assert "KMNC(100)" in out
    page = (folder / "work" / "report.html").read_text(encoding="utf-8")
    assert "as varied as training data" in page
    assert "default-src &#39;none&#39;" in page
    assert "http://" not in page.replace("http://www.w3.org/", "")


def test_the_package_tests_itself(place):
    _, _, run = place
    out, _ = run("neuralcov", "selftest", "--cases", "1")
    assert "criteria hold" in out


def commands(page):
    """Return the commands of a page: lines indented by four spaces, joined where one ends in a backslash."""
    text = re.sub(r"^( *)```.*?^\1```$", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    lines = re.findall(r"^    (\S(?:.*\\\n)*.*)$", text, flags=re.MULTILINE)
    return [shlex.split(line.replace("\\\n", " "), comments=True) for line in lines]


def blocks(page, language):
    """Return the code blocks of a page in a language."""
    return re.findall(
        rf"^```{language}\n(.*?)^```$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


def test_the_tutorial(place):
    """Every file and command of the tutorial, in its order, in a folder that holds nothing else."""
    folder, _, run = place
    work = folder / "tutorial"
    work.mkdir()
    model, in_python = blocks("docs/tutorial.md", "python")
    (policy,) = blocks("docs/tutorial.md", "toml")
    (work / "shop.py").write_text(model)
    (work / "policy.toml").write_text(policy)
    done = []
    for program, *arguments in commands("docs/tutorial.md"):
        no = "few.ncov" in arguments and arguments[0] == "gate"
        done.append((arguments[0], run(program, *arguments, code=1 if no else 0, folder=work)[0]))
    expected = "shop.py measure measure measure report gate gate gate rank compare measure verify"
    assert [name for name, _ in done] == expected.split()
    told = " ".join(text for _, text in done)
    for words in ("ALARM classes", "ALARM unlike", "gate met", "gate NOT met", "NOT MET: alarm:classes", "agrees"):
        assert words in told, words
    assert (work / "queue.csv").read_text().count("\n") > 100
    out, _ = run("python", "-c", in_python, folder=work)
    assert "as varied as training data" in out
    assert (work / "report.html").stat().st_size > 10_000


def test_the_first_page(place):
    """The README's and the first page's commands, but for cloning and installing, which this fixture has done."""
    folder, _, run = place
    words = [command for page in ("README.md", "docs/start.md") for command in commands(page)]
    assert ["git", "clone", "https://github.com/neuralcov/neuralcov"] in words
    assert ["pip", "install", "./neuralcov"] in words
    out, _ = run("neuralcov", "demo")
    assert "So, is the test set of this network fine?" in out
    assert (folder / "work" / "demo-results" / "report.html").is_file()
    run("neuralcov", "doctor")
    run("neuralcov", "selftest")
