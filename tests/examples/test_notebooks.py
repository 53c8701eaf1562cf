"""Scripts in cells and their notebooks hold the same, and both run from the first line to the last."""

import json

import pytest
from tools.notebooks import notebook, scripts

from tests.examples.running import FOLDER, run

NAMES = [path.stem for path in scripts()]
SAID = {
    "first_measurement": ("as varied as training data", "KMNC(100)", "shown by no other"),
    "what_to_label": ("the first 10% hold", "mistakes"),
    "find_faults": ("different faults", "rebuilt"),
}


def test_there_is_an_example_of_each_kind():
    assert set(NAMES) == set(SAID)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_made_from_its_script(name):
    written = (FOLDER / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8")
    assert written == notebook((FOLDER / f"{name}.py").read_text(encoding="utf-8")), "run python -m tools.notebooks"
    assert all(cell.get("outputs", []) == [] for cell in json.loads(written)["cells"])


@pytest.mark.parametrize("name", NAMES)
def test_a_script_runs(name, tmp_path):
    out = run(f"{name}.py", folder=tmp_path)
    assert all(words in out for words in SAID[name])


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs(name, tmp_path):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    read = nbformat.read(FOLDER / "notebooks" / f"{name}.ipynb", as_version=4)
    nbformat.validate(read)
    done = nbclient.NotebookClient(read, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in done.cells if cell.cell_type == "code" for output in cell.outputs]
    text = "".join(output.get("text", "") for output in outputs)
    assert all(words in text for words in SAID[name])
