"""Read the files for continuous integration, and run what they run, on the demo's model."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from safetensors.torch import save_file

from tests.integrations.support import environment, install_entry_points

CI = Path(__file__).parents[2] / "examples" / "ci"
ACTION = yaml.safe_load((CI / "github" / "action.yml").read_text())
WORKFLOW = yaml.safe_load((CI / "github" / "workflow.yml").read_text())
GITLAB = yaml.safe_load((CI / "gitlab-ci.yml").read_text())["neuralcov"]


@pytest.fixture
def machine(tmp_path, digits_net):
    """A folder with weights, and programs that a runner has: ours, and ones that note what they are asked for."""
    install_entry_points(tmp_path / "site")
    programs = tmp_path / "bin"
    programs.mkdir()
    note = f'printf "%s\\n" "$0" "$@" >> {tmp_path}/asked\n'
    scripts = {
        "neuralcov": f'exec {sys.executable} -m neuralcov "$@"\n',
        "gh": note + f'case "$*" in *--paginate*) cat {tmp_path}/earlier 2>/dev/null || true;; esac\n',
        "curl": note,
    }
    for name, script in scripts.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}")
        (programs / name).chmod(0o755)
    save_file(digits_net.state_dict(), tmp_path / "weights.safetensors")
    return tmp_path


def shell(machine, script, variables):
    """Run a step as a runner does."""
    path = {"PATH": f"{machine / 'bin'}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "200"}
    everything = os.environ | environment(machine / "site") | path | variables
    command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script]
    return subprocess.run(command, cwd=machine, env=everything, capture_output=True, text=True, check=False)


def run_action(machine, *, event="push", **given):
    """Run the steps of the action; return how they ended, by name."""
    known = {f"inputs.{name}": given.get(name, entry.get("default", "")) for name, entry in ACTION["inputs"].items()}
    known |= {"github.event_name": event, "github.repository": "me/mine", "github.event.pull_request.number": "7"}
    known |= {"github.token": "secret", "steps.report.outputs.met": ""}
    output, summary = machine / "output", machine / "summary"

    def filled(text):
        return re.sub(r"\$\{\{ *([\w.]+) *\}\}", lambda found: known[found[1]], text)

    known = {name: filled(value) if name != "inputs.install" else value for name, value in known.items()}
    ended = {}
    for step in ACTION["runs"]["steps"]:
        if "if" in step:
            conditions = re.findall(r"([\w.]+) == '(\w+)'", step["if"])
            assert " && ".join(f"{name} == '{value}'" for name, value in conditions) == step["if"]
            if not all(known[name] == value for name, value in conditions):
                continue
        if "run" not in step:
            assert filled(step["with"]["path"]) == "neuralcov"
            assert (machine / "neuralcov" / "report.html").is_file()
            continue
        assert "${{" not in step["run"], "what users give reaches a shell by variables alone"
        variables = {name: filled(value) for name, value in step.get("env", {}).items()}
        files = {"GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(summary)}
        ended[step["name"]] = found = shell(machine, step["run"], variables | files)
        if output.is_file():
            told = dict(line.split("=", 1) for line in output.read_text().splitlines())
            known |= {f"steps.report.outputs.{name}": value for name, value in told.items()}
        if found.returncode:
            break
    return ended


GIVEN = {
    "model": "demo:digits",
    "data": "demo:digits",
    "calibrate": "demo:digits",
    "weights": "weights.safetensors",
    "install": "",
}


def test_the_action_measures_judges_and_comments(machine):
    ended = run_action(machine, event="pull_request", min="LCC.relative=0.9\naccuracy=0.9\n", **GIVEN)
    assert [found.returncode for found in ended.values()] == [0] * 5, [found.stderr for found in ended.values()]
    assert (machine / "output").read_text() == "met=true\n"
    summary = (machine / "summary").read_text()
    assert "LCC" in summary
    assert "demo:digits" in summary
    assert (machine / "neuralcov" / "comment.md").read_text() == "<!-- neuralcov -->\n" + summary
    asked = (machine / "asked").read_text()
    assert "--method\nPOST\nrepos/me/mine/issues/7/comments\n" in asked
    assert "body=@neuralcov/comment.md" in asked
    # The next run replaces the comment.
    (machine / "earlier").write_text("4711\n4712\n")
    (machine / "asked").unlink()
    comment = next(step for step in ACTION["runs"]["steps"] if step["name"] == "Comment on the pull request")
    variables = {"COMMENTS": "repos/me/mine/issues/7/comments", "EDITED": "repos/me/mine/issues/comments"}
    assert shell(machine, comment["run"], variables | {"FOLDER": "neuralcov"}).returncode == 0
    assert "--method\nPATCH\nrepos/me/mine/issues/comments/4711\n" in (machine / "asked").read_text()


def test_the_action_fails_after_it_has_told(machine):
    (machine / "policy.toml").write_text("[min]\naccuracy = 0.9999\n")
    ended = run_action(machine, policy="policy.toml", **GIVEN)
    assert [found.returncode for found in ended.values()] == [0, 0, 0, 1]
    assert list(ended)[-1] == "Fail if not everything is met"
    assert (machine / "output").read_text() == "met=false\n"
    assert "accuracy" in (machine / "summary").read_text()
    assert not (machine / "asked").exists()


def test_the_action_stops_at_an_error(machine):
    ended = run_action(machine, min="NLC=1", **GIVEN)
    assert list(ended)[-1] == "Judge and report"
    assert ended["Judge and report"].returncode == 2
    assert "NLC" in ended["Judge and report"].stderr
    ended = run_action(machine, **(GIVEN | {"data": "folder:nowhere"}))
    assert list(ended)[-1] == "Measure"
    assert ended["Measure"].returncode == 2


def test_the_workflow_gives_the_action_what_it_takes():
    (use,) = [step for step in WORKFLOW["jobs"]["coverage"]["steps"] if "examples/ci/github" in step.get("uses", "")]
    required = {name for name, entry in ACTION["inputs"].items() if entry.get("required")}
    assert required <= set(use["with"]) <= set(ACTION["inputs"])
    assert WORKFLOW["permissions"]["pull-requests"] == "write"
    assert set(WORKFLOW[True]) == {"pull_request", "push"}  # YAML reads `on` as a truth


def run_gitlab(machine, **given):
    """Run the job's scripts; return how the main one ended."""
    own = {name: value for name, value in GITLAB["variables"].items() if name.startswith("NEURALCOV_")}
    variables = own | {"NEURALCOV_INSTALL": "", "NEURALCOV_MODEL": "main:build", "NEURALCOV_DATA": "demo:digits"}
    variables |= {"NEURALCOV_CALIBRATE": "demo:digits"} | given
    (machine / "main.py").write_text(
        "from safetensors.torch import load_file\nfrom neuralcov import demo\n\n"
        "def build():\n    net = demo.DigitsNet()\n    net.load_state_dict(load_file('weights.safetensors'))\n"
        "    return net\n"
    )
    ended = shell(machine, "\n".join([*GITLAB["before_script"], *GITLAB["script"]]), variables)
    after = shell(machine, "\n".join(GITLAB["after_script"]), variables)
    assert after.returncode == 0, after.stderr
    return ended, after


def test_the_gitlab_job(machine):
    note = {
        "NEURALCOV_TOKEN": "t",
        "CI_MERGE_REQUEST_IID": "5",
        "CI_API_V4_URL": "https://git/api",
        "CI_PROJECT_ID": "3",
    }
    ended, after = run_gitlab(machine, **note)
    assert ended.returncode == 0, ended.stderr
    reports = GITLAB["artifacts"]["reports"]
    cases = ElementTree.parse(machine / reports["junit"]).getroot().findall(".//testcase")
    assert [case.get("name") for case in cases] == ["LCC.relative"]
    assert "# EOF" in (machine / reports["metrics"]).read_text()
    assert after.stdout == (machine / "neuralcov" / "summary.md").read_text()
    asked = (machine / "asked").read_text().splitlines()
    assert asked[-1] == "https://git/api/projects/3/merge_requests/5/notes"
    assert asked[asked.index("--data-urlencode") + 1] == "body@neuralcov/summary.md"
    assert json.loads((machine / "neuralcov" / "suite.json").read_text())["values"]["LCC"] > 0


def test_the_gitlab_job_fails_if_not_met(machine):
    ended, after = run_gitlab(machine, NEURALCOV_MIN="accuracy=0.9999")
    assert ended.returncode == 1
    assert "accuracy" in after.stdout
    assert not (machine / "asked").exists()
