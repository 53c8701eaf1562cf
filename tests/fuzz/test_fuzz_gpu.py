"""What must be shown on a GPU: the same mutants as on a CPU, campaigns that resume to the bit, few waits."""

import warnings

import numpy as np
import pytest
import torch

import neuralcov as nc
from neuralcov.fuzz import image_mutations
from neuralcov.fuzz.campaign.folder import CampaignFolder
from neuralcov.fuzz.campaign.reader import open_campaign
from neuralcov.fuzz.mutations import MutationDraw
from tests.fuzz.support import coverage_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("mutation", image_mutations(), ids=lambda mutation: mutation.name)
def test_mutants_are_those_of_the_cpu(mutation):
    images = torch.rand(64, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    draw = MutationDraw.of_batch(np.arange(64) % len(mutation.parameters))
    here, there = mutation.apply(images, draw), mutation.apply(images.cuda(), draw).cpu()
    torch.testing.assert_close(here, there, atol=1e-5, rtol=0)


def fuzzer(net, digits, folder, criterion):
    coverage = coverage_of(net.cuda(), [criterion])
    return nc.Fuzzer(coverage, digits.inputs, digits.labels, levels=16, wave=32, folder=folder)


@pytest.fixture
def reproducible():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.use_deterministic_algorithms(True, warn_only=True)
        yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("reproducible")
@pytest.mark.parametrize("criterion", [nc.NLC(), nc.NC(0.95)], ids=lambda criterion: criterion.name)
def test_a_campaign_resumes_to_the_bit(digits_net, digits, tmp_path, criterion):
    try:
        whole = fuzzer(digits_net, digits, tmp_path / "whole", criterion).run(iterations=150)
        fuzzer(digits_net, digits, tmp_path / "cut", criterion).run(iterations=150)
        folder = CampaignFolder(tmp_path / "cut")
        packs = [len(content) + 16 for content in folder.log.read()]
        folder.log.path.write_bytes(folder.log.path.read_bytes()[: sum(packs[: len(packs) // 2]) + 5])
        fuzzer(digits_net, digits, tmp_path / "start", criterion).run(iterations=0)
        for path in (tmp_path / "cut" / "coverage").iterdir():
            path.unlink()
        first = next((tmp_path / "start" / "coverage").iterdir())
        (tmp_path / "cut" / "coverage" / first.name).write_bytes(first.read_bytes())
        again = fuzzer(digits_net, digits, tmp_path / "cut", criterion).resume(iterations=150)
        assert again.exact
        assert torch.equal(again.inputs, whole.inputs)
        assert again.values == whole.values
        assert open_campaign(tmp_path / "cut").state.counts.faults == len(whole.faults)
    finally:
        digits_net.cpu()
