"""How likely something new is, as a campaign estimates it: against all mutants there are, enumerated."""

import numpy as np
import pytest
import torch

import neuralcov as nc
from neuralcov.fuzz import image_mutations
from neuralcov.fuzz.mutations import MutationDraw


def chances_of_faults(net, digits, mutations):
    """Return, by root and wrong class, the chance that one mutant of one uniform mutation shows that fault."""
    images = digits.inputs / 16
    with torch.no_grad():
        right = net(images).argmax(1) == digits.labels
    chances = {}
    for mutation in mutations:
        each = 1 / (len(images) * len(mutations) * mutation.forms)
        for form in range(mutation.forms):
            made = mutation.apply(images, MutationDraw.of_batch(np.full(len(images), form)))
            with torch.no_grad():
                classes = net((made.clamp(0, 1) * 16).round() / 16).argmax(1)
            for root in torch.nonzero(right & (classes != digits.labels))[:, 0].tolist():
                key = root, int(classes[root])
                chances[key] = chances.get(key, 0.0) + each
    return chances


def everything(mutants, comparisons):
    """Accept all mutants."""
    return torch.ones(len(mutants), dtype=torch.bool)


@pytest.mark.parametrize("calls", [100, 400])
def test_the_chance_of_a_new_fault_is_that_of_those_not_seen(net, digits, calls):
    mutations = image_mutations(8)
    chances = chances_of_faults(net, digits, mutations)
    assert len(chances) > 30
    told, true = [], []
    for seed in range(25):
        # Nothing gains so much, so that every mutant is one mutation of a root input, each drawn by itself.
        campaign = nc.Fuzzer(
            nc.Coverage(net, [nc.NC(0.95)]), digits.inputs, digits.labels, levels=16, guide="coverage", min_gain=1e9,
            tries=1, wave=50, seed=seed, validity=everything, mutations=mutations,
        ).run(calls=calls)  # fmt: skip
        counts = campaign.state.counts
        assert counts.run == calls
        seen = {(key[0], key[1]) for key in counts.seen}
        assert seen <= set(chances)
        told.append(campaign.stats.new_fault_chance)
        true.append(sum(chance for key, chance in chances.items() if key not in seen))
    apart = np.array(told) - np.array(true)
    # Good and Turing's estimate has next to no bias: 1/calls at most.
    assert abs(apart.mean()) < 3 * apart.std(ddof=1) / len(apart) ** 0.5 + 1 / calls
    assert np.mean(true) > 5 * abs(apart.mean())
