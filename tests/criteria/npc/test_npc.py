import numpy as np
import pytest
import torch
from torch import nn

import neuralcov as nc
from neuralcov import demo
from tests.criteria.npc.test_kmeans import brute_force as clusters_of
from tests.criteria.npc.test_paths import brute_force as critical
from tests.support import WIDTHS, as_tensors, classes, suite


def explained(seed, size, flavour="smooth", right=0.7, count=3, widths=WIDTHS, spread=1.0):
    """Activations with relevance: ``right`` of the predictions are the labels, paths scatter about their class's."""
    rng = np.random.default_rng(seed)
    labels = classes(seed, size, count)
    predictions = np.where(rng.random(size) < right, labels, rng.integers(count, size=size))
    layers = suite(seed, size, flavour, widths, spread)
    leanings = np.random.default_rng(99)
    relevance = {}
    for name, width in widths.items():
        lean = leanings.normal(size=(count, 2, width))
        values = lean[predictions, rng.integers(2, size=size)] + 0.7 * rng.standard_normal((size, width))
        if flavour == "ties":
            values = np.round(values)
        relevance[name] = values.astype(np.float32)
    return nc.Activations(
        as_tensors(layers), torch.from_numpy(labels), torch.from_numpy(predictions), as_tensors(relevance)
    )


class BruteForce:
    """NPC from its definition: Python sets, loops and float64."""

    def __init__(self, training, alpha, beta, clusters, buckets, mode="structure", upper=None):
        self.alpha, self.clusters, self.buckets, self.mode = alpha, clusters, buckets, mode
        self.names = list(training.layers)
        labels, predictions = training.labels.tolist(), training.predictions.tolist()
        self.classes = sorted(set(labels))
        self.abstract, self.members = {}, {}
        for label in self.classes:
            rows = [i for i in range(training.size) if labels[i] == label == predictions[i]]
            if not rows:
                continue
            paths = [self.path(training, i) for i in rows]
            bits = np.array([[(n, j) in path for n, j in self.neurons(training)] for path in paths])
            found = clusters_of(bits, clusters)
            for k in sorted(set(found)):
                inside = [path for path, c in zip(paths, found, strict=True) if c == k]
                everywhere = set().union(*inside)
                share = {x: sum(x in path for path in inside) / len(inside) for x in everywhere}
                self.abstract.setdefault(label, {})[k] = {x for x in everywhere if share[x] >= beta}
                self.members[label, k] = [i for i, c in zip(rows, found, strict=True) if c == k]
        self.training = training
        if mode == "activation":
            self.upper = dict.fromkeys(self.names, upper) if upper else self.largest_distances()
        self.covered = set()

    def neurons(self, batch):
        return [(name, j) for name in self.names for j in range(batch.layers[name].shape[1])]

    def path(self, batch, i):
        return {(name, j) for name in self.names for j in critical(batch.relevance[name][i].tolist(), self.alpha)}

    def layer(self, path, name):
        return {j for n, j in path if n == name}

    def nearest(self, path, label):
        def likeness(k):
            theirs = self.abstract[label][k]
            return np.mean([jaccard(self.layer(path, name), self.layer(theirs, name)) for name in self.names])

        best = max(likeness(k) for k in self.abstract[label])
        return min(k for k in self.abstract[label] if likeness(k) == best)

    def distance(self, batch, i, label, k, name, leaving_out=None):
        neurons = sorted(self.layer(self.abstract[label][k], name))
        mine = batch.layers[name][i].double().numpy()[neurons]
        others = [m for m in self.members[label, k] if m != leaving_out]
        theirs = [self.training.layers[name][m].double().numpy()[neurons] for m in others]
        return min((np.sqrt(((mine - other) ** 2).sum()) for other in theirs), default=None)

    def largest_distances(self):
        largest = dict.fromkeys(self.names, 0.0)
        for (label, _), rows in self.members.items():
            for i in rows:
                k = self.nearest(self.path(self.training, i), label)
                for name in self.names:
                    distance = self.distance(self.training, i, label, k, name, leaving_out=i)
                    if distance is not None:
                        largest[name] = max(largest[name], distance)
        return largest

    def cells(self, batch, i):
        label = int(batch.predictions[i])
        path = self.path(batch, i)
        if label not in self.abstract:
            return None
        if self.mode == "structure":
            return {(label, k, self.bucket(jaccard(path, theirs))) for k, theirs in self.abstract[label].items()}
        k = self.nearest(path, label)
        found = set()
        for name in self.names:
            distance, upper = self.distance(batch, i, label, k, name), self.upper[name]
            if upper > 0 and distance <= upper:
                found.add((label, k, name, self.bucket(distance / upper)))
        return found

    def bucket(self, share):
        return min(int(np.floor(share * self.buckets)), self.buckets - 1)

    def observe(self, batch):
        for i in range(batch.size):
            self.covered |= self.cells(batch, i) or set()

    @property
    def all_cells(self):
        layers = len(self.names) if self.mode == "activation" else 1
        return len(self.classes) * self.clusters * layers * self.buckets

    @property
    def value(self):
        return len(self.covered) / self.all_cells


def jaccard(a, b):
    return len(a & b) / len(a | b) if a | b else 0.0


def measured(criterion, training, tests, batch=None):
    coverage = nc.Coverage.of_layers(training.layout.widths, [criterion])
    coverage.calibrate(activations=training)
    for start in range(0, tests.size, batch or max(1, tests.size)):
        coverage.update(activations=tests.take(slice(start, start + (batch or tests.size))))
    return coverage


def unused(coverage):
    """The value, whatever there is to warn of."""
    return next(iter(coverage.values(warn=False).values()))


SETTINGS = [
    {},
    {"alpha": 0.5, "beta": 0.5, "clusters": 2, "buckets": 7},
    {"alpha": 1.0, "beta": 1.0, "clusters": 1, "buckets": 1},
    {"alpha": 0.9, "beta": 0.2, "clusters": 3, "buckets": 10},
]


@pytest.mark.parametrize("flavour", ["smooth", "ties", "rectified", "scaled", "constant"])
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("mode", ["structure", "activation"])
def test_equals_brute_force(flavour, setting, mode):
    training, tests = explained(1, 60, flavour), explained(2, 41, flavour, spread=1.2)
    full = {"alpha": 0.7, "beta": 0.7, "clusters": 4, "buckets": 100, **setting}
    expected = BruteForce(training, **full, mode=mode)
    expected.observe(tests.take(slice(0, 30)))
    coverage = measured(nc.NPC(**setting, mode=mode), training, tests.take(slice(0, 30)), batch=7)
    assert unused(coverage) == pytest.approx(expected.value, rel=1e-12)
    assert expected.value > 0 or setting.get("beta") == 1.0
    gains = coverage.gain(activations=tests)[coverage.criteria[0].name].tolist()
    fresh = [len((expected.cells(tests, i) or set()) - expected.covered) for i in range(tests.size)]
    assert gains == pytest.approx([n / expected.all_cells for n in fresh], rel=1e-12)
    for row in coverage.by_layer():
        value = row.values[coverage.criteria[0].name]
        if mode == "structure":
            assert value is None
        else:
            cells = len([cell for cell in expected.covered if cell[2] == row.layer])
            assert value == pytest.approx(cells * len(expected.names) / expected.all_cells, rel=1e-12)


@pytest.mark.parametrize("mode", ["structure", "activation"])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_few_training_inputs(mode, size):
    """Fewer paths than clusters; in activation mode clusters of one input, with none to be compared with."""
    training, tests = explained(3, size, right=1.0), explained(4, 20)
    expected = BruteForce(training, 0.7, 0.7, 4, 10, mode)
    expected.observe(tests)
    coverage = measured(nc.NPC(buckets=10, mode=mode), training, tests)
    assert unused(coverage) == pytest.approx(expected.value, rel=1e-12)
    counts = coverage.states[0].counts.tolist()
    outside = sum(int(c) not in expected.abstract for c in tests.predictions)
    assert counts == [20 - outside, 0, outside]


def test_one_neuron_and_one_layer():
    training = explained(5, 30, widths={"a": 1})
    tests = explained(6, 20, widths={"a": 1})
    for mode in ("structure", "activation"):
        expected = BruteForce(training, 0.7, 0.7, 2, 5, mode)
        expected.observe(tests)
        assert unused(measured(nc.NPC(clusters=2, buckets=5, mode=mode), training, tests)) == expected.value


def test_an_upper_of_ones_own():
    training, tests = explained(1, 60), explained(2, 40)
    expected = BruteForce(training, 0.7, 0.7, 4, 100, "activation", upper=1.3)
    expected.observe(tests)
    found = unused(measured(nc.NPC(mode="activation", upper=1.3), training, tests))
    assert found == pytest.approx(expected.value, rel=1e-12)
    assert found != unused(measured(nc.NPC(mode="activation"), training, tests))


def test_training_inputs_fall_into_the_first_bucket():
    """Each lies at distance 0 from itself, if the path it is most like is that of its own cluster."""
    training = explained(1, 60, right=1.0)
    coverage = measured(nc.NPC(clusters=1, buckets=10, mode="activation"), training, training)
    assert unused(coverage) == pytest.approx(1 / 10)


def test_classes_without_a_path_are_left_out_and_counted():
    training, tests = explained(1, 30), explained(2, 20)
    tests.predictions[:4] = torch.tensor([-1, 3, 99, 3])
    coverage = measured(nc.NPC(), training, tests)
    with pytest.warns(nc.CoverageWarning, match="4 inputs were left out: their classes did not occur"):
        value = coverage.values()["NPC(0.7)"]
    assert value == unused(measured(nc.NPC(), training, tests.take(slice(4, 20))))
    assert not coverage.gain(activations=tests)["NPC(0.7)"][:4].any()
    only = measured(nc.NPC(), training, tests.take(slice(0, 4)))
    with pytest.raises(nc.NeuralcovError, match="could place none of 4 inputs"):
        only.values()


def test_a_class_never_classified_correctly_counts_in_the_divisor():
    training, tests = explained(1, 60), explained(2, 30)
    never = training.labels == 2
    training.predictions[never] = 0
    found = unused(measured(nc.NPC(buckets=10), training, tests))
    expected = BruteForce(training, 0.7, 0.7, 4, 10)
    expected.observe(tests)
    assert (expected.all_cells, sorted(expected.abstract)) == (3 * 4 * 10, [0, 1])
    assert found == pytest.approx(expected.value, rel=1e-12)


def test_relevance_that_is_not_finite_leaves_the_input_out():
    training, tests = explained(1, 30), explained(2, 20)
    tests.relevance["c"][7, 2] = torch.nan
    coverage = measured(nc.NPC(), training, tests)
    with pytest.warns(nc.CoverageWarning, match="1 inputs with NaN or infinite outputs"):
        value = coverage.values()["NPC(0.7)"]
    kept = torch.tensor([i for i in range(20) if i != 7])
    assert value == unused(measured(nc.NPC(), training, tests.take(kept)))


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({}, "NPC(0.7)"),
        ({"alpha": 0.5}, "NPC(0.5)"),
        ({"beta": 0.5, "mode": "activation", "upper": 2}, "NPC(0.7, beta=0.5, mode=activation, upper=2)"),
    ],
)
def test_names(arguments, name):
    assert nc.NPC(**arguments).name == name


def test_positional_arguments():
    assert nc.NPC(0.6, 0.5, 3, 20, "activation", 4.0).parameters == {
        "alpha": 0.6,
        "beta": 0.5,
        "clusters": 3,
        "buckets": 20,
        "mode": "activation",
        "upper": 4.0,
        "memory": "16GiB",
        "errors": False,
    }


@pytest.mark.parametrize(
    "arguments",
    [
        {"alpha": 0},
        {"alpha": 1.1},
        {"alpha": "most"},
        {"beta": 0},
        {"beta": 1.5},
        {"clusters": 0},
        {"clusters": 2.0},
        {"buckets": 0},
        {"mode": "weights"},
        {"upper": 1.0},
        {"mode": "activation", "upper": 0},
        {"mode": "activation", "upper": -1.0},
    ],
)
def test_arguments_out_of_range(arguments):
    with pytest.raises(nc.NeuralcovError, match=rf"NPC\({list(arguments)[-1]}="):
        nc.NPC(**arguments)


def test_before_calibration():
    coverage = nc.Coverage.of_layers(WIDTHS, [nc.NPC()])
    for attempt in (coverage.values, lambda: coverage.update(activations=explained(1, 3))):
        with pytest.raises(nc.NeuralcovError, match=r"NPC\(0.7\) needs calibration"):
            attempt()


def test_what_a_batch_lacks_is_named():
    training = explained(1, 30)
    coverage = nc.Coverage.of_layers(WIDTHS, [nc.NPC()])
    bare = nc.Activations(training.layers, training.labels, training.predictions)
    with pytest.raises(nc.NeuralcovError, match="paths need relevance"):
        coverage.calibrate(activations=bare)
    with pytest.raises(nc.NeuralcovError, match="calibrate with labels"):
        coverage.calibrate(activations=nc.Activations(training.layers, None, training.predictions, training.relevance))
    coverage.calibrate(activations=training)
    with pytest.raises(nc.NeuralcovError, match=r"NPC\(0.7\) needs relevance"):
        coverage.update(activations=bare)
    short = {name: values for name, values in training.relevance.items() if name != "b"}
    with pytest.raises(nc.NeuralcovError, match="the relevance lacks layer 'b'"):
        coverage.update(activations=nc.Activations(training.layers, None, training.predictions, short))
    wide = {**training.relevance, "b": torch.zeros(30, 4)}
    with pytest.raises(nc.NeuralcovError, match=r"relevance of layer 'b' has shape \(30, 4\): expected \(30, 1\)"):
        coverage.update(activations=nc.Activations(training.layers, None, training.predictions, wide))


def test_nothing_classified_correctly():
    training = explained(1, 30)
    training.predictions[:] = (training.labels + 1) % 3
    coverage = nc.Coverage.of_layers(WIDTHS, [nc.NPC()])
    with pytest.raises(nc.NeuralcovError, match="none of 30 training inputs was classified correctly"):
        coverage.calibrate(activations=training)


def test_a_structure_file_goes_on_by_itself(tmp_path):
    training, tests, more = explained(1, 60), explained(2, 20), explained(3, 20)
    coverage = measured(nc.NPC(), training, tests)
    coverage.save(tmp_path / "suite.ncov")
    loaded = nc.Coverage.load(tmp_path / "suite.ncov")
    assert loaded.values() == coverage.values()
    for each in (coverage, loaded):
        each.update(activations=more)
    assert loaded.values() == coverage.values()
    with pytest.raises(nc.NeuralcovError, match="is in both: it would count twice"):
        loaded.merge(coverage)


def test_an_activation_file_goes_on_with_its_calibration(tmp_path):
    training, tests, more = explained(1, 60), explained(2, 20), explained(3, 20)
    coverage = measured(nc.NPC(mode="activation"), training, tests)
    coverage.save(tmp_path / "suite.ncov")
    coverage.save_calibration(tmp_path / "training.ncal")
    alone = nc.Coverage.load(tmp_path / "suite.ncov")
    assert alone.values() == coverage.values()
    with pytest.raises(nc.NeuralcovError, match="holds no training inputs to compare with; load it with calibration="):
        alone.update(activations=more)
    loaded = nc.Coverage.load(tmp_path / "suite.ncov", calibration=tmp_path / "training.ncal")
    for each in (coverage, loaded):
        each.update(activations=more)
    assert loaded.values() == coverage.values()


def test_a_saved_calibration_serves_its_own_alpha_only(tmp_path):
    training, tests = explained(1, 60), explained(2, 20)
    first = nc.Coverage.of_layers(WIDTHS, [nc.NPC(), nc.NPC(beta=0.5, clusters=2), nc.NPC(0.4)])
    first.calibrate(activations=training)
    first.save_calibration(tmp_path / "training.ncal")
    ids = first.calibration_ids()
    assert ids["NPC(0.7)"] == ids["NPC(0.7, beta=0.5, clusters=2)"] != ids["NPC(0.4)"]
    second = nc.Coverage.of_layers(WIDTHS, [nc.NPC(0.4, clusters=2)])
    second.calibrate(tmp_path / "training.ncal")
    second.update(activations=tests)
    assert unused(second) == unused(measured(nc.NPC(0.4, clusters=2), training, tests))
    with pytest.raises(nc.NeuralcovError, match=r"holds no paths\(0.5\), which NPC\(0.5\) learns from"):
        nc.Coverage.of_layers(WIDTHS, [nc.NPC(0.5)]).calibrate(tmp_path / "training.ncal")
    with pytest.raises(nc.NeuralcovError, match=r"holds no traces, which NPC\(0.4, mode=activation\)"):
        nc.Coverage.of_layers(WIDTHS, [nc.NPC(0.4, mode="activation")]).calibrate(tmp_path / "training.ncal")


def test_the_order_of_layers_in_a_batch_does_not_matter():
    training, tests = explained(1, 60), explained(2, 20)
    turned = nc.Activations(
        dict(reversed(tests.layers.items())), None, tests.predictions, dict(reversed(tests.relevance.items()))
    )
    assert unused(measured(nc.NPC(), training, turned)) == unused(measured(nc.NPC(), training, tests))


class TestOnAModel:
    @pytest.fixture(scope="class")
    def net(self):
        return demo.train_digits(epochs=2, progress=False)

    @pytest.fixture(scope="class")
    def coverage(self, net):
        coverage = nc.Coverage(net, [nc.NPC(), nc.NC(0.5), nc.NPC(mode="activation")])
        coverage.calibrate(demo.digits("train").take(slice(0, 500)).batches(), progress=False)
        return coverage

    def test_the_test_set_covers_more_than_a_tenth_of_it(self, coverage):
        test = demo.digits("test")
        coverage.reset()
        coverage.assess(test.take(slice(0, 60)).batches(), progress=False)
        tenth = coverage.values()
        coverage.assess(test.batches(), progress=False)
        whole = coverage.values()
        assert 0 < tenth["NPC(0.7)"] < whole["NPC(0.7)"] < 1
        assert 0 < tenth["NPC(0.7, mode=activation)"] < whole["NPC(0.7, mode=activation)"] < 1

    def test_equals_brute_force_from_the_same_relevance(self, net, coverage):
        train, test = demo.digits("train"), demo.digits("test")
        from neuralcov.tap import Batch, Tap

        tap = Tap(net)
        training, _ = tap.run(Batch(train.pixels()[:300], train.labels[:300]), relevance=True)
        tests, _ = tap.run(Batch(test.pixels()[:40], test.labels[:40]), relevance=True)
        small = nc.Coverage(net, [nc.NPC(clusters=2)])
        small.calibrate([(train.pixels()[:300], train.labels[:300])], progress=False)
        small.update(test.pixels()[:40])
        expected = BruteForce(training, 0.7, 0.7, 2, 100)
        expected.observe(tests)
        assert small.values()["NPC(0.7, clusters=2)"] == pytest.approx(expected.value, rel=1e-12)

    def test_a_saved_file_goes_on_with_the_model(self, net, coverage, tmp_path):
        test = demo.digits("test")
        coverage.reset()
        coverage.update(test.pixels()[:50])
        coverage.save(tmp_path / "suite.ncov")
        coverage.save_calibration(tmp_path / "training.ncal")
        loaded = nc.Coverage.load(tmp_path / "suite.ncov", net, calibration=tmp_path / "training.ncal")
        gains = [each.gain(test.pixels()[50:80]) for each in (coverage, loaded)]
        for name, gain in gains[0].items():
            assert torch.equal(gains[1][name], gain)
        assert any(gain.any() for gain in gains[0].values())

    def test_labels_are_needed_to_calibrate_and_not_after(self, net):
        coverage = nc.Coverage(net, [nc.NPC()])
        train = demo.digits("train")
        with pytest.raises(nc.NeuralcovError, match=r"calibrate with labels, for example with a loader of"):
            coverage.calibrate([train.pixels()[:50]], progress=False)
        coverage.calibrate([(train.pixels()[:50], train.labels[:50])], progress=False)
        coverage.update(train.pixels()[50:60])
        assert coverage.values()["NPC(0.7)"] > 0

    def test_a_network_that_cannot_be_followed(self):
        class Attends(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.head = nn.Linear(3, 4), nn.Linear(4, 2)
                self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

            def forward(self, x):
                x = self.embed(x)
                return self.head(self.attention(x, x, x)[0].mean(1))

        coverage = nc.Coverage(Attends(), [nc.NPC()])
        with pytest.raises(nc.NeuralcovError, match=r"through module 'attention' \(MultiheadAttention\)"):
            coverage.calibrate([(torch.randn(4, 5, 3), torch.tensor([0, 1, 0, 1]))], progress=False)
