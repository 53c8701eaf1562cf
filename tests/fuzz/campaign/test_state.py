"""What holds of everything a campaign keeps: it is valid, was moved at most once, and its lineage leads to it."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import neuralcov as nc
from neuralcov.core.errors import InputError
from neuralcov.fuzz import Brightness, Contrast, PixelRule, Rotation, image_mutations, mutation, scaling, translation
from neuralcov.fuzz.search.candidates import follow
from tests.fuzz.support import Nothing

MUTATIONS = {
    "contrast": Contrast([0.5, 1.5]),
    "brightness": Brightness([20, 120]),
    "translation": translation([(1, 0), (0, -2)]),
    "scaling": scaling([0.8, 1.3]),
    "rotation": Rotation([-40, 15]),
    "own": mutation(lambda batch, generator: batch + 0.1 * torch.rand(batch.shape, generator=generator), name="own"),
    "own move": mutation(
        lambda batch, generator: batch.roll(int(torch.randint(3, (), generator=generator)), 3),
        geometric=True,
        name="own move",
    ),
}
SEEDS = torch.randint(0, 256, (6, 1, 6, 6), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


def small_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.ReLU(), nn.Linear(8, 3))


@settings(max_examples=25)
@given(
    st.sets(st.sampled_from(sorted(MUTATIONS)), min_size=1),
    st.integers(0, 2**63 - 1),
    st.integers(1, 9),
    st.floats(0.01, 1),
    st.floats(0.01, 1),
    st.sampled_from(["coverage", "random", "margin", "elites", "margin+coverage"]),
    st.booleans(),
)
def test_of_every_kept_mutant(names, seed, wave, alpha, beta, guide, as_floats):
    mutations = [MUTATIONS[name] for name in sorted(names)]
    seeds = SEEDS.float() / 255 if as_floats else SEEDS
    fuzzer = nc.Fuzzer(
        nc.Coverage(small_net(), [nc.NLC()]), seeds, mutations=mutations, guide=guide, wave=wave, seed=seed,
        tries=4, alpha=alpha, beta=beta,
    )  # fmt: skip
    campaign = fuzzer.run(iterations=25)
    corpus = fuzzer.search.state.corpus
    kept = np.arange(corpus.roots, len(corpus))
    lineages = [corpus.steps(int(entry)) for entry in kept]
    for entry, steps in zip(kept, lineages, strict=True):
        moves = [step for step in steps if mutations[step.mutation].geometric]
        assert len(moves) <= 1
        assert bool(moves) == corpus.entries["moved"][entry]
    if not len(kept):
        return
    roots = corpus.inputs(corpus.entries["root"][kept].astype(np.int64))
    rebuilt, references = follow(roots, lineages, mutations, fuzzer.input_format)
    assert torch.equal(rebuilt, campaign.inputs)
    assert torch.equal(references, corpus.comparisons(kept))
    if guide != "random":
        rule = PixelRule(alpha, beta, range=1 if as_floats else 255)
        assert rule(campaign.inputs, references).all()


def test_what_is_compared_is_the_moved_root():
    """A turned picture differs everywhere from its root, and not at all from the turned root."""
    fuzzer = nc.Fuzzer(
        nc.Coverage(small_net(), [nc.CC(1e-6)]), SEEDS, mutations=[Rotation([45]), Nothing()], alpha=0, beta=0.01,
        wave=4, tries=10, guide="coverage",
    )  # fmt: skip
    campaign = fuzzer.run(iterations=40)
    # Every seed is turned once, which is new; doing nothing is not, and a second turn is not allowed.
    assert campaign.outputs == 6
    assert fuzzer.search.state.corpus.entries["moved"][6:].all()


def test_moved_seeds_rest_where_every_mutation_moves():
    coverage = nc.Coverage(small_net(), [nc.CC(1e-6)])
    fuzzer = nc.Fuzzer(coverage, SEEDS, mutations=[Rotation([30, 60])], wave=4, tries=5)
    fuzzer.run(iterations=20)
    entries = fuzzer.search.state.corpus.entries
    assert (entries["parent"][6:] < 6).all()


def test_the_usual_mutations_grow_with_the_picture():
    shifts = next(found for found in image_mutations(64) if found.name == "translation").parameters
    assert (10, 10) in shifts
    assert [found.name for found in image_mutations() if found.geometric] == ["translation", "scaling", "rotation"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"wave": 0}, "wave=0: expected a whole number of at least 1"),
        ({"tries": 40_000}, "tries=40000: expected a whole number from 1 to 32767"),
        ({"seed": -1}, r"seed=-1: expected a whole number from 0 to 2\*\*63 - 1"),
        ({"min_gain": -0.1}, r"min_gain=-0\.1: expected a number of at least 0"),
        ({"min_gain": float("nan")}, "min_gain=nan: expected a number of at least 0"),
        ({"guide": "luck"}, "guide='luck': expected one of coverage, random, margin, elites, "),
        (
            {"mutation_choice": "best"},
            "mutation_choice='best': expected 'auto', 'uniform', 'bandit', 'forecast' or 'settings'",
        ),
        ({"time_limit": 0}, "time_limit=0: expected a number above 0"),
        ({"schedule": "old"}, "schedule='old': expected 'uniform', 'fresh' or 'picked'"),
        ({"alpha": 2}, "alpha=2: expected a share from 0 to 1"),
        ({"wave": 2.5}, r"wave=2\.5: expected a whole number of at least 1"),
        ({"schedule": 3}, "schedule=3: expected 'uniform', 'fresh', 'picked' or a Schedule"),
        ({"pictures": -1}, "pictures=-1: expected a whole number of at least 0, or None for all"),
        ({"checkpoint": "often"}, "checkpoint='often': expected a number of at least 0"),
        ({"mutations": []}, "expected at least one, and each of another name"),
        ({"mutations": [Nothing(), Nothing()]}, r"mutations \['nothing', 'nothing'\]: expected at least one, and each"),
        ({"mutations": [torch.relu]}, r"is no mutation: expected for example Contrast\(\[0.8, 1.2\]\)"),
        ({"labels": [1, 2]}, "2 labels for 6 inputs: expected one label per input"),
        ({"labels": [-1] * 6}, "a label -1: expected classes from 0 on"),
        ({"checks": [len, len]}, "checks of the same name 'len': pass them as a mapping"),
        ({"checks": {"exception": len}}, r"checks named \['exception'\]: expected"),
    ],
)
def test_wrong_settings(settings, message):
    with pytest.raises(InputError, match=message):
        nc.Fuzzer(nc.Coverage(small_net(), [nc.NLC()]), SEEDS, **settings)


def test_inputs_without_usual_mutations_and_no_limit():
    coverage = nc.Coverage(nn.Linear(3, 2), [nc.NLC()])
    with pytest.raises(InputError, match=r"shape \(2, 3\) have no usual mutations: pass mutations="):
        nc.Fuzzer(coverage, torch.rand(2, 3))
    with pytest.raises(InputError, match="expected at least one input"):
        nc.Fuzzer(coverage, torch.rand(0, 3))
    with pytest.raises(InputError, match="no limit: give iterations=, calls=, seconds=, faults= or until_new="):
        nc.Fuzzer(nc.Coverage(small_net(), [nc.NLC()]), SEEDS).run()
