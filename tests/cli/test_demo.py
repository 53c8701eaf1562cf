import torch
from PIL import Image

from neuralcov import demo
from neuralcov.cli.demo import demo_suites, fuzz_digits, fuzz_figures, fuzz_words, ranks_rightly
from neuralcov.fuzz.campaign.reader import open_campaign


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
        campaign = fuzz_digits(digits_net, test, tmp_path / "campaign", iterations=150)
    assert campaign.iterations == 150
    assert campaign.stats.seconds < 20
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
    said = fuzz_words(campaign, tmp_path / "faults.png")
    assert f"{len(campaign.faults)} of those are misread though their origin is not" in said
    assert fuzz_figures(campaign)["faults"] == len(campaign.faults)
    assert open_campaign(tmp_path / "campaign").state.counts.faults == len(campaign.faults)


def test_a_search_without_a_fault_says_so(digits_net, tmp_path):
    one = demo.digits("test").take(slice(0, 1))
    campaign = fuzz_digits(digits_net, one, tmp_path / "campaign", iterations=0)
    assert "no fault among them" in fuzz_words(campaign, tmp_path / "faults.png")
    assert not (tmp_path / "faults.png").exists()
