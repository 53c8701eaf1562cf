"""The lab's LCC against plain Python that follows the definition input by input."""

import hashlib
import math
from collections import Counter, defaultdict
from statistics import mean, median

import pytest
import torch

from neuralcov import Activations
from neuralcov.testing.oracles.kinds import jackknife
from neuralcov_lab.experiments.lcc.figures import Measure, Weighting, trimmed_mean
from neuralcov_lab.experiments.lcc.maps import Cut, Map
from neuralcov_lab.experiments.lcc.projections import Directions, project

MASK = (1 << 64) - 1
LAYERS = {"conv": 5, "fc": 3, "flat": 2}


def mix(number):
    number = (number + 0x9E3779B97F4A7C15) & MASK
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & MASK
    return number ^ (number >> 31)


def batch_of(count, seed, spread=1.0):
    random = torch.Generator().manual_seed(seed)
    layers = {name: spread * torch.randn(count, width, generator=random) for name, width in LAYERS.items()}
    layers["flat"] = torch.full((count, LAYERS["flat"]), 0.25)
    present = {"fc": torch.rand(count, generator=random) < 0.9}
    decisions = (layers["conv"][:, 0] > 0).long() + (layers["fc"][:, 0] > 1).long()
    return Activations(layers, predictions=decisions, present=present)


class Plain:
    """LCC by dictionaries."""

    def __init__(self, training, cut):
        self.cut, self.training = cut, training
        count, seed = cut.directions.count, cut.directions.seed
        self.boxes = {}
        for name in ("conv", "fc"):
            width = LAYERS[name]
            key = int.from_bytes(hashlib.sha256(f"neuralcov.LCC/{seed}/{name}".encode()).digest()[:8], "little")
            signs = [[1 if mix((key + i * count + j) & MASK) >> 63 else -1 for j in range(count)] for i in range(width)]
            offset = [(mix((key + width * count + j) & MASK) >> 11) * 2.0**-53 for j in range(count)]
            places = self._places(training, name, signs)
            centre = [mean(row[j] for row in places.values()) for j in range(count)]
            spread = [math.sqrt(mean((row[j] - centre[j]) ** 2 for row in places.values())) for j in range(count)]
            self.boxes[name] = (signs, offset, centre, spread)
        self.table = self.kinds(training)

    def _places(self, batch, name, signs):
        present = batch.present.get(name, torch.ones(batch.size, dtype=torch.bool)).tolist()
        rows = batch.layers[name].double().tolist()
        return {
            number: [sum(s[j] * a for s, a in zip(signs, row, strict=True)) for j in range(len(signs[0]))]
            for number, row in enumerate(rows)
            if present[number]
        }

    def kinds(self, batch):
        """Return, by layer, each input's box and decision."""
        found = {}
        for name, (signs, offset, centre, spread) in self.boxes.items():
            found[name] = {
                number: (
                    tuple(
                        math.floor(self.cut.resolution * (p - c) / s + u)
                        for p, c, s, u in zip(row, centre, spread, offset, strict=True)
                    ),
                    int(batch.predictions[number]) if self.cut.decision else None,
                )
                for number, row in self._places(batch, name, signs).items()
            }
        return found

    def layer(self, suite, counts, weighting):
        """Return value, off-map share and the number of new decisions of the kinds that inputs show."""
        known_boxes = {box for box, _ in counts}
        total = 0.0
        for kind in set(suite):
            if kind in counts:
                total += counts[kind] ** -weighting.exponent
            else:
                total += weighting.new_decision if kind[0] in known_boxes else weighting.novel
        off_map = sum(kind[0] not in known_boxes for kind in suite) / len(suite)
        fresh = sum(kind not in counts and kind[0] in known_boxes for kind in set(suite)) / len(set(suite))
        return total / sum(c**-weighting.exponent for c in counts.values()), off_map, fresh

    def expected(self, counts, inputs):
        once, twice = (sum(c == r for c in counts.values()) for r in (1, 2))
        discount = once / (once + 2 * twice) if once + 2 * twice else 0.0
        known = 1 - once / sum(counts.values())
        rest = sum(c - discount for c in counts.values())
        share = sum(
            c**-0.5 * (1 - (1 - (known * (c - discount) / rest if rest else 0.0)) ** inputs) for c in counts.values()
        )
        return share / sum(c**-0.5 for c in counts.values())

    def bias(self, name):
        folds = self.training.folds(10).tolist()
        ratios, off_map = [], []
        for fold in range(10):
            own = [kind for number, kind in self.table[name].items() if folds[number] == fold]
            rest = Counter(kind for number, kind in self.table[name].items() if folds[number] != fold)
            if own:
                value, off, _ = self.layer(own, rest, Weighting())
                ratios.append(value / self.expected(rest, len(own)))
                off_map.append(off)
        return mean(ratios), mean(off_map)

    def figures(self, batch, rows, weighting):
        shown = self.kinds(batch)
        found = defaultdict(list)
        for name in shown:
            suite = [shown[name][number] for number in rows if number in shown[name]]
            counts = Counter(self.table[name].values())
            value, off, fresh = self.layer(suite, counts, weighting)
            bias, expected_off = self.bias(name)
            found["value"].append(value)
            found["relative"].append(value / (bias * self.expected(counts, len(suite))))
            found["off_map"].append(off)
            found["expected_off_map"].append(expected_off)
            found["new_decisions"].append(fresh)
            found["next"].append(sum(c == 1 for c in Counter(suite).values()) / len(suite))
        return {name: median(values) for name, values in found.items()}


CUTS = [Cut(), Cut(0.8, Directions(3, 2)), Cut(0.3, Directions(2), decision=False)]


@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_figures_are_those_of_the_definition(cut):
    training, test = batch_of(300, 1), batch_of(80, 2, 1.3)
    ground = Map.learn(project([training], [cut.directions]), cut)
    measure = Measure(
        ground, ground.place(project([test.take(slice(0, 50)), test.take(slice(50, 80))], [cut.directions]))
    )
    plain = Plain(training, cut)
    for rows in (list(range(80)), [3, 3, 4, 5, 60, 71, 72, 3]):
        found = measure.figures(torch.tensor(rows))
        for name, value in plain.figures(test, rows, Weighting()).items():
            assert getattr(found, name) == pytest.approx(value, rel=1e-9, abs=1e-12), name
    assert measure.figures() == measure.figures(torch.arange(80))


@pytest.mark.parametrize("weighting", [Weighting(0.25, 0.5, 1.0), Weighting(1.0, 0.0, 0.25), Weighting(0.0)], ids=str)
def test_weights_of_variants(weighting):
    cut = Cut(0.8, Directions(3))
    training, test = batch_of(200, 1), batch_of(60, 2, 1.3)
    ground = Map.learn(project([training], [cut.directions]), cut)
    measure = Measure(ground, ground.place(project([test], [cut.directions])), [Weighting(), weighting])
    rows = list(range(0, 60, 2))
    plain = Plain(training, cut)
    layers = measure.layers(torch.tensor(rows))
    for place, some in enumerate((Weighting(), weighting)):
        assert float(layers[place].median()) <= plain.figures(test, rows, some)["value"] + 1e-12
        assert float(layers[place].mean()) == pytest.approx(plain.figures(test, rows, some)["value"])  # two layers


def test_errors_leave_out_one_fold_after_the_other():
    cut = Cut(0.8, Directions(3))
    training, test = batch_of(200, 1), batch_of(120, 2)
    ground = Map.learn(project([training], [cut.directions]), cut)
    measure = Measure(ground, ground.place(project([test], [cut.directions])))
    folds = test.folds(10)
    left = [measure.figures((folds != fold).nonzero()[:, 0]) for fold in range(10)]
    # A fold is as large as the kinds that its inputs show are many; the flat layer shows none.
    sizes = [int((folds == fold).sum() + ((folds == fold) & test.present["fc"]).sum()) for fold in range(10)]
    for name in ("value", "relative"):
        expected = jackknife(getattr(measure.figures(), name), [getattr(figures, name) for figures in left], sizes)
        assert getattr(measure.errors(), name) == pytest.approx(expected)


def test_fresh_share_counts_inputs_whose_kind_was_not_met():
    cut = Cut(0.8, Directions(3))
    training, test = batch_of(200, 1), batch_of(60, 2)
    ground = Map.learn(project([training], [cut.directions]), cut)
    measure = Measure(ground, ground.place(project([test], [cut.directions])))
    kinds = Plain(training, cut).kinds(test)
    for layer, share in zip(kinds, measure.fresh(torch.arange(40), torch.arange(40, 60)), strict=True):
        before = {kind for number, kind in kinds[layer].items() if number < 40}
        after = [kind for number, kind in kinds[layer].items() if number >= 40]
        assert float(share) == pytest.approx(sum(kind not in before for kind in after) / len(after))


def test_trimmed_mean_leaves_out_a_quarter_at_either_end():
    assert trimmed_mean(torch.tensor([9.0, 1.0, 2.0, 3.0, -5.0])) == 2.0
