"""Rules of others: every switch against a plain reimplementation, campaign by campaign; the presets."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch

import neuralcov as nc
from neuralcov.core.errors import InputError
from neuralcov.fuzz import FuzzSettings, PixelRule, image_mutations
from neuralcov.fuzz.campaign.log import stages
from neuralcov.fuzz.mutations import MutationDraw
from neuralcov.fuzz.mutations.usual import blur_kernels
from neuralcov.fuzz.randomness import wave_generator
from neuralcov.fuzz.rules import PAPER, PUBLISHED, RULES
from tests.fuzz.support import Lighter, coverage_of, fuzzer_of

PLAIN = FuzzSettings(guide="coverage", mutation_choice="uniform", stack=1, wave=1, tries=6, rounds=6, seed=3)


class Redrawn(Lighter):
    """Changes every pixel by a lot, as styles do."""

    redraws = True

    def __init__(self):
        super().__init__((0.5, 0.6))
        self.name = "style"


def algorithm(coverage, digits, mutations, rules, iterations):
    """Algorithm 1 in plain Python, with every rule of others spelled out; one seed at a time."""
    if rules.initial == "seeds":
        coverage.update(digits.inputs / 16)
    queue = [{"image": image, "origin": image, "moved": False, "picked": 0, "kept": 0} for image in digits.inputs]
    wave, kept = 0, []
    listed = [(mutation, form) for mutation in mutations for form in range(mutation.forms)]

    def sampled(chance):
        if rules.schedule.kind == "uniform":
            return queue[int(chance * len(queue))]
        counted = {"picked": "picked", "fresh": "kept"}[rules.schedule.kind]
        weights = [max(1 - entry[counted] / 5, 0.01) for entry in queue]
        total, upto = chance * sum(weights), 0.0
        for entry, weight in zip(queue, weights, strict=True):
            upto += weight
            if total < upto:
                return entry
        return queue[-1]

    def drawn(some, chance, second):
        if rules.mutation_choice == "settings":
            mutation = [mutation for mutation, _ in listed if mutation in some]
            mutation = mutation[int(chance * len(mutation))]
        else:
            mutation = some[int(chance * len(some))]
        return mutation, int(second * mutation.forms)

    def change(mutation, image, form):
        made = mutation.apply(image[None] / 16, MutationDraw.of_batch(np.array([form])))[0]
        return (made.clamp(0, 1) * 16).round().byte()

    def valid(mutation, mutant, origin):
        if rules.exempt_styles and mutation.redraws:
            return True
        difference = (mutant.int() - origin.int()).abs()
        whole = difference if rules.counted == "values" else difference.amax(0)
        changed, largest = int((whole > 0).sum()), int(difference.max())
        return changed < rules.alpha * whole.numel() or largest < rules.beta * 16

    for _ in range(iterations):
        numbers = wave_generator(rules.seed, wave)
        parent = sampled(numbers.random())
        for tried in range(1, rules.tries + 1):
            allowed = [one for one in mutations if not (rules.move_once and parent["moved"] and one.geometric)]
            mutation, form = drawn(allowed, numbers.random(), numbers.random())
            mutant = change(mutation, parent["image"], form)
            origin = parent["image"] if rules.compared == "parent" else parent["origin"]
            if rules.compared == "moved" and mutation.geometric:
                origin = change(mutation, origin, form)
            good = valid(mutation, mutant, origin)
            gains = good and float(next(iter(coverage.gain(mutant[None] / 16).values()))) > 0
            if good or tried % rules.rounds == 0 or tried == rules.tries:
                wave += 1
                numbers = wave_generator(rules.seed, wave)
            if gains:
                coverage.update(mutant[None] / 16)
                parent["kept"] += 1
                moved = parent["moved"] or mutation.geometric
                queue.append({"image": mutant, "origin": origin, "moved": moved, "picked": 0, "kept": 0})
                kept.append(mutant)
                break
        parent["picked"] += 1
    return torch.stack(kept)


SWITCHES = [
    {"alpha": 0.4, "beta": 0.8},
    {"compared": "root"},
    {"compared": "parent"},
    {"move_once": False},
    {"move_once": False, "compared": "root"},
    {"exempt_styles": True},
    {"border": "white"},
    {"identities": True},
    {"mutation_choice": "settings"},
    {"initial": "given"},
    {"schedule": "picked"},
    {"schedule": "fresh"},
]


def usual(settings):
    return [*image_mutations(8, identities=settings.identities, border=settings.border), Redrawn()]


def begun(net, settings, train):
    coverage = coverage_of(net, [nc.NLC()])
    if settings.initial == "given":
        for start in range(0, 100, 50):
            coverage.update(train[start : start + 50])
    return coverage


@pytest.fixture(scope="module")
def train():
    from neuralcov import demo

    return demo.digits("train").pixels()[:100]


@pytest.mark.parametrize("switch", SWITCHES, ids=lambda switch: "-".join(f"{k}={v}" for k, v in switch.items()))
def test_each_rule_is_what_a_plain_loop_does(net, digits, train, switch):
    settings, few = PLAIN.changed(**switch), digits.take(slice(0, 12))
    campaign = nc.Fuzzer(
        begun(net, settings, train), few.inputs, few.labels, levels=16, mutations=usual(settings), settings=settings
    ).run(iterations=40)
    expected = algorithm(begun(net, settings, train), few, usual(settings), settings, 40)
    assert campaign.outputs >= 5
    assert torch.equal(campaign.inputs, expected)
    # The switch does something: without it other inputs are kept.
    if "move_once" not in switch:
        other = nc.Fuzzer(
            begun(net, PLAIN, train), few.inputs, few.labels, levels=16, mutations=usual(PLAIN), settings=PLAIN
        ).run(iterations=40)
        assert other.inputs.shape != expected.shape or not torch.equal(other.inputs, expected)


@pytest.mark.parametrize("name", ["published", "paper"])
def test_rule_sets_are_what_a_plain_loop_does(net, digits, train, name):
    settings, few = RULES[name].changed(wave=1, tries=6, rounds=6, seed=5), digits.take(slice(0, 12))
    campaign = nc.Fuzzer(
        begun(net, settings, train), few.inputs, few.labels, levels=16, mutations=usual(settings), settings=settings
    ).run(iterations=40)
    assert torch.equal(campaign.inputs, algorithm(begun(net, settings, train), few, usual(settings), settings, 40))


def test_the_sets_are_named_and_say_what_the_issue_of_each_is(net, digits):
    assert (PUBLISHED.alpha, PUBLISHED.beta, PAPER.alpha, PAPER.beta) == (0.4, 0.8, 0.2, 0.4)
    assert nc.Fuzzer(coverage_of(net, [nc.NLC()]), digits.inputs, levels=16, rules="paper").settings == PAPER
    changed = nc.Fuzzer(coverage_of(net, [nc.NLC()]), digits.inputs, levels=16, rules="published", beta=0.5).settings
    assert changed == dataclasses.replace(PUBLISHED, beta=0.5)
    with pytest.raises(InputError, match="rules='old': expected 'ours', 'published', 'paper'"):
        nc.Fuzzer(coverage_of(net, [nc.NLC()]), digits.inputs, levels=16, rules="old")
    with pytest.raises(InputError, match="both rules= and settings= were given"):
        nc.Fuzzer(coverage_of(net, [nc.NLC()]), digits.inputs, levels=16, rules="paper", settings=PAPER)


def test_values_count_channels_by_themselves():
    generator = torch.Generator().manual_seed(0)
    origin = torch.randint(0, 256, (60, 3, 4, 5), generator=generator, dtype=torch.uint8)
    touched = torch.rand(60, 3, 4, 5, generator=generator) < torch.rand(60, 1, 1, 1, generator=generator)
    mutants = torch.where(touched, torch.randint(0, 256, touched.shape, generator=generator), origin).byte()
    found = {}
    for counted in ("positions", "values"):
        rule = PixelRule(0.4, 0.3, counted=counted)
        expected = []
        for one, other in zip(mutants.int().numpy(), origin.int().numpy(), strict=True):
            apart = np.abs(one - other)
            changed = np.count_nonzero(apart) if counted == "values" else np.count_nonzero(apart.any(0))
            expected.append(changed < 0.4 * (60 if counted == "values" else 20) or apart.max() < 0.3 * 255)
        assert rule(mutants, origin).tolist() == expected
        found[counted] = sum(expected)
    assert 0 < found["positions"] < found["values"] < 60


@pytest.mark.parametrize("wrong_seeds", [False, True])
def test_inputs_that_were_wrong_before_any_mutation(net, digits, wrong_seeds):
    labels = digits.labels.clone()
    labels[::3] = (labels[::3] + 1) % 10  # wrong by our own making
    coverage = coverage_of(net, [nc.NC(0.95)])
    fuzzer = nc.Fuzzer(coverage, digits.inputs, labels, levels=16, guide="random", wrong_seeds=wrong_seeds, wave=24)
    campaign = fuzzer.run(iterations=200)
    with torch.no_grad():
        right = net(digits.inputs / 16).argmax(1) == labels
        classes = net(campaign.inputs / 16).argmax(1)
    entries = campaign.state.corpus.entries[campaign.state.corpus.roots :]
    roots = entries["root"].astype(int)
    wrong = (classes != labels[roots]) & (right[roots] | wrong_seeds)
    assert campaign.stats.faulty_kept == int(wrong.sum())
    assert int((~right[roots] & (classes != labels[roots])).sum()) > 20


def test_a_white_border_is_that_of_a_plain_resize(digits):
    images = digits.inputs[:6] / 16
    mutation = image_mutations(8, border="white")[3]
    assert mutation.name == "scaling"
    assert mutation.identity()["border"] == "white"
    for form, factor in enumerate(mutation.parameters):
        found = mutation.apply(images, MutationDraw.of_batch(np.full(6, form)))
        # Bilinear by hand, white outside.
        for row in range(8):
            for column in range(8):
                y, x = (row - 3.5) / factor + 3.5, (column - 3.5) / factor + 3.5
                top, left = math.floor(y), math.floor(x)
                total = torch.zeros(6)
                for at, down in ((top, 1 - (y - top)), (top + 1, y - top)):
                    for by, across in ((left, 1 - (x - left)), (left + 1, x - left)):
                        inside = 0 <= at < 8 and 0 <= by < 8
                        total += down * across * (images[:, 0, at, by] if inside else torch.ones(6))
                assert torch.allclose(found[:, 0, row, column], total, atol=1e-5)


def test_identities_change_nothing(digits):
    images = digits.inputs[:4] / 16
    plain = {mutation.name: mutation.forms for mutation in image_mutations(8)}
    for mutation in image_mutations(8, identities=True):
        same = [
            form
            for form in range(mutation.forms)
            if torch.allclose(mutation.apply(images, MutationDraw.of_batch(np.full(4, form))), images, atol=1e-6)
        ]
        assert len(same) == mutation.forms - plain[mutation.name]
    assert sum(mutation.forms for mutation in image_mutations(8, identities=True)) == sum(plain.values()) + 3


def test_windows_and_shifts_grow_with_the_picture():
    for side in (32, 64, 224):
        by_name = {mutation.name: mutation for mutation in image_mutations(side)}
        assert max(max(map(abs, moved)) for moved in by_name["translation"].parameters) == round(5 * side / 32)
        kernels = dict.fromkeys(name for name, _ in blur_kernels(side))
        assert list(kernels) == ["box", "gaussian", "median", "bilateral"]
        assert ("box", 6 * side // 32) in blur_kernels(side)
        assert max(size for name, size in blur_kernels(side) if name == "gaussian") == 2 * (3 * side // 32) + 1
    assert blur_kernels(32)[:4] == [("box", 3), ("box", 4), ("box", 5), ("box", 6)]


@pytest.mark.parametrize("guide", ["coverage", "random", "margin", "elites"])
def test_several_mutations_at_once_are_those_of_the_lineage(net, digits, guide):
    """What a stack made is made anew, one mutation after the other, from the root."""
    fuzzer = fuzzer_of(net, digits, [nc.NC(0.95)], wave=24, guide=guide, stack=4)
    campaign = fuzzer.run(iterations=150)
    corpus = campaign.state.corpus
    depths = []
    with fuzzer.coverage.tap():
        record, _ = fuzzer.search.advance(None, lambda: 0.0)
    for rows, _ in stages(record.candidates):
        depths.append(len(rows))
    assert len(depths) >= 3
    assert all(mine > theirs for mine, theirs in itertools.pairwise(depths))
    rule = PixelRule(0.2, 0.4, range=16)
    checked = 0
    for row in range(corpus.roots, len(corpus)):
        image = origin = digits.inputs[int(corpus.entries["root"][row])]
        moves = 0
        for step in corpus.steps(row):
            mutation = fuzzer.mutations[step.mutation]
            draw = MutationDraw.of_batch(np.array([step.setting]))
            image = (mutation.apply(image[None] / 16, draw)[0].clamp(0, 1) * 16).round().byte()
            if mutation.geometric:
                moves += 1
                origin = (mutation.apply(origin[None] / 16, draw)[0].clamp(0, 1) * 16).round().byte()
        assert torch.equal(image, corpus.inputs(np.array([row]))[0])
        assert moves <= 1
        assert guide == "random" or bool(rule(image[None], origin[None]))
        checked += 1
    assert checked >= 5
    again = fuzzer.replay(campaign.faults)
    assert all(entry.rebuilt and entry.reproduced for entry in again)
    assert any(entry.smaller for entry in fuzzer.shrink(campaign.faults))
