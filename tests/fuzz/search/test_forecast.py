"""The forecast: what it learns, against a plain loop; what mutants are worth; that only what may be is chosen."""

import numpy as np
import pytest
import torch

import neuralcov as nc
import neuralcov.fuzz
from neuralcov.fuzz.campaign.experience import Experience, distance
from neuralcov.fuzz.campaign.log import APPLIED, KEPT, NO_GAIN
from neuralcov.fuzz.mutations import MutationDraw
from neuralcov.fuzz.search.forecast import Forecast
from neuralcov.fuzz.search.guides import form_worths
from tests.fuzz.support import fuzzer_of

FORMS = (3, 0, 2)
ENTRY = np.dtype([("root", np.int32), ("margin", np.float32), ("depth", np.int32)])


def applied(mutations, settings):
    table = np.zeros(len(mutations), APPLIED)
    table["mutation"], table["setting"] = mutations, settings
    return table


def experience_of(draw, runs, roots=4):
    """Some experience of mutants by one mutation each, with what it was made of."""
    found = Experience(roots, FORMS)
    entries = np.zeros(runs, ENTRY)
    entries["root"], entries["margin"] = draw.integers(0, roots, runs), draw.random(runs)
    margins = draw.random(runs).astype(np.float32) * 2 - 1
    margins[draw.random(runs) < 0.1] = np.nan
    mutations = draw.integers(0, len(FORMS), runs)
    settings = np.array([draw.integers(0, max(1, FORMS[which])) for which in mutations])
    new = (margins < 0) & (draw.random(runs) < 0.5)
    stage = (np.arange(runs), applied(mutations, settings))
    found.learn(draw.integers(0, 9, runs), entries, margins, new, iter([stage]))
    return found, entries, margins, mutations, settings


def test_what_forms_take_and_roots_lose_is_that_of_a_plain_loop():
    found, entries, margins, mutations, settings = experience_of(np.random.default_rng(0), 60)
    forecast = Forecast.of(found)
    seen = []
    for row in np.flatnonzero(~np.isnan(margins)):
        taken = float(distance(entries["margin"][row]) - distance(margins[row]))
        seen.append((int(entries["root"][row]), (int(mutations[row]), int(settings[row])), taken))
    mean = sum(taken for *_, taken in seen) / len(seen)
    weakness, takes = dict.fromkeys(range(4), 0.0), {}
    for _ in range(3):
        for form in {form for _, form, _ in seen}:
            mine = [taken - weakness[root] for root, other, taken in seen if other == form]
            takes[form] = (sum(mine) + 4 * mean) / (len(mine) + 4)
        for root in weakness:
            mine = [taken - takes[form] for other, form, taken in seen if other == root]
            weakness[root] = sum(mine) / (len(mine) + 1.5)
    for form, value in takes.items():
        assert forecast.taken[form] == pytest.approx(value)
    assert forecast.weakness == pytest.approx(list(weakness.values()))
    left = [taken - takes[form] - weakness[root] for root, form, taken in seen]
    assert forecast.spread == pytest.approx(max(0.5, np.std(left)))


def test_mutants_of_several_mutations_teach_nothing_of_each():
    found = Experience(2, FORMS)
    entries = np.zeros(2, ENTRY)
    entries["margin"] = 0.9
    margins, new = np.array([0.5, -0.5], np.float32), np.array([False, True])
    stages = [(np.array([0, 1]), applied([0, 0], [1, 2])), (np.array([1]), applied([2], [0]))]
    found.learn(np.array([0, 1]), entries, margins, new, iter(stages))
    assert found.form_runs.sum() == 3
    assert found.taken.latest(9) == pytest.approx([distance(np.float32(0.9)) - distance(np.float32(0.5))])
    assert found.tried(np.array([0, 1]))[:, 0].tolist()[0][:3] == [False, True, False]
    assert not found.tried(np.array([1])).any()


def test_the_worth_is_greatest_where_a_form_just_about_suffices():
    forecast = Forecast.of(experience_of(np.random.default_rng(1), 200)[0])
    excess = np.linspace(-6, 4, 41)
    chance, worth = forecast.chance(excess), forecast.worth(excess)
    assert (np.diff(chance, axis=0) > 0).all()
    inner = worth - np.where(forecast.exists, forecast.surprises, 0)
    assert inner[:, forecast.exists] == pytest.approx((chance * (1 - chance) ** 2.5)[:, forecast.exists])
    assert not worth[:, ~forecast.exists].any()
    for allowed in ([True, True, True], [False, True, False]):
        best = worth[:, np.array(allowed)].max((1, 2))
        assert forecast.best_worth(excess, allowed) == pytest.approx(best, rel=0.02)


def test_faults_that_margins_say_nothing_of_are_worth_something_too():
    found = Experience(1, FORMS)
    entries = np.zeros(40, ENTRY)
    entries["margin"] = 1.0
    checked = np.arange(40) % 2 == 0
    mutations = np.where(checked, 2, 0)
    margins, stage = np.full(40, 0.99, np.float32), (np.arange(40), applied(mutations, np.zeros(40)))
    found.learn(np.zeros(40, np.int64), entries, margins, checked, iter([stage]))
    forecast = Forecast.of(found)
    worth = forecast.worth(forecast.excess(np.array([1.0]), np.array([0])))[0]
    assert np.unravel_index(worth.argmax(), worth.shape) == (2, 0)


def test_forms_that_were_tried_are_not_drawn_again_and_none_that_moves_what_was_moved(net, digits):
    settings = {"guide": "margin", "mutation_choice": "forecast"}
    fuzzer = fuzzer_of(net, digits.take(slice(0, 6)), [nc.NC(0.95)], wave=6, **settings)
    fuzzer.run(iterations=0)
    drawn, again, even = set(), 0, 0
    with fuzzer.coverage.tap():
        for _ in range(30):
            state = fuzzer.search.state
            weights = form_worths(state, np.arange(len(state.corpus)))
            assert weights.sum((1, 2)) == pytest.approx(1)
            record, _ = fuzzer.search.advance(None, lambda: 0.0)
            rows = record.candidates
            for row in rows[(rows["verdict"] == KEPT) | (rows["verdict"] == NO_GAIN)]:
                key = tuple(int(row[name]) for name in ("parent", "mutation", "setting"))
                assert not (state.corpus.entries["moved"][key[0]] and state.geometric[key[1]])
                again += key in drawn
                even += 1
                drawn.add(key)
    # Only the tenth that is drawn evenly meets one again.
    assert even > 100
    assert again < 0.15 * even


def test_a_form_that_was_not_acceptable_is_not_drawn_again_for_the_same_parent_in_a_wave(net, digits):
    """Where nothing is acceptable, all tries of a wave go to different forms."""
    few = nc.fuzz.image_mutations(8)[:2]
    tries = sum(mutation.forms for mutation in few)
    settings = {"guide": "margin", "mutation_choice": "forecast", "mutations": few, "tries": tries, "rounds": tries}
    made = []

    def refuse(mutants, comparisons):
        made.append(mutants)
        return torch.zeros(len(mutants), dtype=torch.bool)

    fuzzer_of(net, digits.take(slice(0, 1)), [nc.NC(0.95)], wave=1, validity=refuse, **settings).run(iterations=1)
    assert len(made) == tries
    distinct = {bytes(mutant.numpy().tobytes()) for mutant in made}
    everything = set()
    for mutation in few:
        for form in range(mutation.forms):
            changed = mutation.apply(digits.inputs[:1] / 16, MutationDraw.of_batch(np.array([form])))
            everything.add(bytes((changed.clamp(0, 1) * 16).round().to(torch.uint8).numpy().tobytes()))
    assert distinct == everything


def test_misread_mutants_are_counted_by_what_their_root_had_led_to(net, digits):
    """As a plain loop over the log counts them; a fault is new once."""
    fuzzer = fuzzer_of(net, digits, [nc.NC(0.95)], wave=24, guide="margin")
    fuzzer.run(iterations=0)
    state, seen, found = fuzzer.search.state, set(), np.zeros(len(digits.inputs), int)
    misread, anew = np.zeros(4, int), np.zeros(4, int)
    with fuzzer.coverage.tap():
        for _ in range(12):
            record, _ = fuzzer.search.advance(None, lambda: 0.0)
            before = found.copy()
            for row in record.candidates[record.candidates["margin"] < 0]:
                root = int(state.corpus.entries["root"][row["parent"]])
                new = bool(row["fault_types"]) and (root, int(row["prediction"])) not in seen
                if new:
                    seen.add((root, int(row["prediction"])))
                misread[min(before[root], 3)] += 1
                anew[min(before[root], 3)] += new
                found[root] += new
    assert state.experience.misread.tolist() == misread.tolist()
    assert state.experience.misread_anew.tolist() == anew.tolist()
    assert (misread[:2] > 10).all()
    assert misread[1] > anew[1] > 0
