"""The page of a queue: pictures or texts of the first inputs, and why they stand there; names with HTML are text."""

import numpy as np
import torch

import neuralcov as nc
from neuralcov.rank.showing import views_of
from neuralcov.report.queue import QueuedInput, render_queue

EVIL = "<script>alert(1)</script>"


def test_the_first_inputs_are_shown_as_they_look(tmp_path):
    images = torch.rand(90, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    loader = [nc.Batch(part, ids=[f"{EVIL}{i}" for i in range(len(part))]) for part in images[20:].split(16)]
    queue = nc.rank(nc.Coverage(model, [nc.DSC()]), loader, training=[images[:20]])
    queue.page(tmp_path / "queue.html", loader)
    page = (tmp_path / "queue.html").read_text(encoding="utf-8")
    assert page.count("data:image/png") == 64
    assert page.count("<script>") == 1
    first = queue[0]
    assert "1: &lt;script&gt;" in page
    assert first.why in page
    said = int(model(images[20 + queue.positions[0]][None]).argmax())
    assert f"said {said}, score {first.score:.3f}" in page
    queue.page(tmp_path / "few.html", first=3, title="Without data")
    bare = (tmp_path / "few.html").read_text(encoding="utf-8")
    assert "data:image/png" not in bare
    assert bare.count("<li><p>") == 3


def test_texts_are_shown_where_metadata_hold_them():
    tokens = torch.arange(12).reshape(6, 2)
    loader = [
        nc.Batch(tokens[:4], metadata={"text": ["a", "b", "c", "d"]}),
        nc.Batch(tokens[4:], metadata={"text": ["e", "f"]}),
    ]
    found = views_of(loader, [5, 1])
    assert {row: view.text for row, view in found.items()} == {5: "f", 1: "b"}
    assert views_of([tokens[:4], tokens[4:]], [4])[4].text == "tokens 8 9"


def test_data_are_read_no_farther_than_needed():
    def batches():
        yield np.zeros((4, 2), dtype=np.float32)
        raise AssertionError("read on")

    assert set(views_of(batches(), [0, 3])) == {0, 3}


def test_the_page_escapes_names():
    page = render_queue(EVIL, 1, [QueuedInput(1, EVIL, EVIL, 0.5, EVIL, None, EVIL)], [EVIL])
    assert page.count("<script>") == 1
