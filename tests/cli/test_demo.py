import numpy as np
import torch
from PIL import Image

from neuralcov import demo
from neuralcov.cli.demo import (
    demo_suites,
    fuzz_digits,
    fuzz_figures,
    fuzz_words,
    gentle_mutations,
    ranks_rightly,
    report_suite,
)
from neuralcov.fuzz.campaign.reader import open_campaign
from neuralcov.fuzz.mutations.mutation import MutationDraw
from neuralcov.sources.samples import Samples


def test_suites_are_what_they_are_called():
    test = demo.digits("test")
    suites = demo_suites(test)
    assert suites["test"] is test
    assert len(suites["a tenth"]) == len(test) // 10
    assert suites["one class"].labels.unique().tolist() == [3]
    noisy = suites["noisy copies"]
    assert len(noisy) == len(test)
    assert len(noisy.inputs.flatten(1).unique(dim=0)) == len(test)
    originals = test.pixels()
    nearest = torch.cdist(noisy.pixels().flatten(1), originals.flatten(1), p=float("inf")).min(1)
    assert nearest.values.max() <= 0.1 + 1e-6
    assert len(nearest.indices.unique()) == 10


def test_ranking():
    assert ranks_rightly({"test": 2.0, "a tenth": 1.0})
    assert not ranks_rightly({"test": 2.0, "a tenth": 2.0})


def test_real_faults_are_found_and_drawn(digits_net, tmp_path):
    test = demo.digits("test")
    (tmp_path / "campaign").mkdir()
    for _ in range(2):  # the second demo in a folder takes the place of the first
        campaign = fuzz_digits(digits_net, test, tmp_path / "campaign", calls=600)
    assert 600 <= campaign.stats.judged < 664  # whole waves
    assert len(campaign.faults) >= 10
    mutants, origins = (
        torch.stack(images).float() / 16
        for images in zip(*((fault.input, test.inputs[fault.root]) for fault in campaign.faults), strict=True)
    )
    labels = torch.tensor([int(test.labels[fault.root]) for fault in campaign.faults])
    with torch.no_grad():
        assert (digits_net(origins).argmax(1) == labels).all()
        assert (digits_net(mutants).argmax(1) != labels).all()
    with Image.open(tmp_path / "faults.png") as picture:
        assert picture.width > 400
    said = fuzz_words(campaign, len(test))
    assert f"{campaign.stats.judged} in all, and misread {campaign.stats.roots} of the 597 digits that way: " in said
    assert fuzz_figures(campaign)["faults"] == len(campaign.faults)
    assert open_campaign(tmp_path / "campaign").state.counts.faults == len(campaign.faults)


def test_a_search_without_a_fault_says_so(digits_net, tmp_path):
    one = demo.digits("test").take(slice(0, 1))
    campaign = fuzz_digits(digits_net, one, tmp_path / "campaign", calls=64)
    assert fuzz_words(campaign, 1).endswith("and misread none")
    assert not (tmp_path / "faults.png").exists()


def test_changes_are_such_as_a_person_accepts():
    """No digit loses a row or column, as it does when it is moved by a whole pixel."""
    dot = torch.zeros(1, 1, 8, 8)
    dot[..., 3:5, 3:5] = 1.0
    for mutation in gentle_mutations():
        draw = MutationDraw.of_batch(mutation.choose(np.linspace(0, 0.999, 16)))
        changed = mutation.apply(dot.expand(16, -1, -1, -1), draw) if mutation.geometric else None
        if changed is not None:
            weights = changed / changed.sum((2, 3), keepdim=True)
            centre = (weights.sum(2) * torch.arange(8)).sum(-1) - 3.5
            assert centre.abs().max() < 0.5


def test_the_answer_is_about_this_network(digits_net, tmp_path):
    answer = report_suite(digits_net, demo.digits("test"), tmp_path / "report.html")
    assert answer.startswith("No alarm. The network meets ")
    assert "597 test digits" in (tmp_path / "report.html").read_text(encoding="utf-8")
    inverted = demo.digits("test").pixels().neg().add(1)
    odd = report_suite(digits_net, Samples("inverted", inverted, demo.digits("test").labels, ()), tmp_path / "odd.html")
    assert odd.startswith("An alarm stands: see the page.")
