"""Suites broken on purpose raise the alarms they should, on a network that was really trained."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import neuralcov as nc
from neuralcov import demo

TEST = demo.digits("test")
X, Y = TEST.pixels(), TEST.labels


def batches(x, y=None, size=100):
    return [(x[i : i + size], y[i : i + size]) if y is not None else x[i : i + size] for i in range(0, len(x), size)]


@pytest.fixture(scope="module")
def calibrated():
    cov = nc.Coverage(demo.train_digits(progress=False), [nc.LCC(), nc.SNAC()])
    cov.calibrate(demo.digits("train").batches())
    return cov


def suites():
    random = torch.Generator().manual_seed(0)
    return {
        "test": (X, Y, set()),
        "half": (X[::2], Y[::2], set()),
        "twenty": (X[:20], Y[:20], set()),
        "unscaled": (16 * X, Y, {"unlike", "scale"}),
        "centred": (2 * X - 1, Y, {"unlike", "scale"}),
        "inverted": (1 - X, Y, {"unlike", "accuracy"}),
        "noise": (torch.rand(X.shape, generator=random), Y, {"unlike", "accuracy"}),
        "transposed": (X.transpose(2, 3), Y, {"unlike", "accuracy"}),
        "mirrored": (X.flip(3), Y, {"accuracy"}),
        "wrong labels": (X, (Y + 1) % 10, {"accuracy"}),
        "five classes": (X[Y < 5], Y[Y < 5], {"classes"}),
        "one class": (X[Y == 3], Y[Y == 3], {"classes"}),
        "each twice": (X[:299].repeat(2, 1, 1, 1), Y[:299].repeat(2), {"duplicates"}),
    }


@pytest.mark.filterwarnings("ignore::neuralcov.core.errors.CoverageWarning")
@pytest.mark.parametrize("name", suites())
def test_alarms(calibrated, name):
    x, y, alarms = suites()[name]
    cov = calibrated.fork()
    cov.assess(batches(x, y))
    found = cov.results(suite=name).sanity
    assert {alarm.name for alarm in found.alarms} == alarms
    assert found.inputs == len(x)
    assert found.accuracy == float((cov.model(x).argmax(1) == y).double().mean())
    assert found.never_seen == tuple(sorted(set(range(10)) - set(y.tolist())))
    assert found.duplicates == len(x) - len(torch.unique(x.flatten(1), dim=0))
    kinds = cov.criteria[0].kinds(cov.run(x)[0]).flatten(1)
    assert found.near_duplicates + found.duplicates == len(x) - len(torch.unique(kinds, dim=0))


@pytest.mark.filterwarnings("ignore::neuralcov.core.errors.CoverageWarning")
def test_without_labels_and_without_lcc(calibrated):
    cov = calibrated.fork()
    cov.assess(batches(16 * X))
    found = cov.sanity()
    assert (found.accuracy, found.classes, found.by) == (None, 10, "decision")
    assert [alarm.name for alarm in found.alarms] == ["unlike", "scale"]
    plain = nc.Coverage(calibrated.model, [nc.NC(0.75)])
    plain.assess(batches(X, Y))
    found = plain.sanity()
    assert found.accuracy == pytest.approx(0.9816, abs=1e-4)
    assert (found.unlike, found.near_duplicates, found.duplicates, found.alarms) == (None, None, 0, ())
    # What criteria did not ask for, they do not get.
    assert plain.run(X[:5], predictions=False)[0].predictions is None


@pytest.mark.filterwarnings("ignore::neuralcov.core.errors.CoverageWarning")
def test_wrong_weights():
    torch.manual_seed(1)
    cov = nc.Coverage(demo.DigitsNet().eval(), [nc.LCC()])
    cov.calibrate(demo.digits("train").batches())
    cov.assess(TEST.batches())
    (alarm,) = cov.sanity().alarms
    assert alarm.name == "accuracy"
    assert "where guessing among 10 classes gives 10 %: are these the right weights and labels?" in alarm.sentence


@pytest.mark.filterwarnings("ignore::neuralcov.core.errors.CoverageWarning")
def test_swapped_colours():
    def coloured(samples):
        x = samples.pixels()
        return torch.cat([x, 0.5 * x, 0.3 * (1 - x)], dim=1)

    train = demo.digits("train")
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 24, 3), nn.ReLU(), nn.Flatten(), nn.Linear(384, 10)
    )
    optimiser = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(6):
        for x, y in zip(coloured(train).split(64), train.labels.split(64), strict=True):
            optimiser.zero_grad()
            functional.cross_entropy(net(x), y).backward()
            optimiser.step()
    cov = nc.Coverage(net.eval(), [nc.LCC()])
    cov.calibrate(batches(coloured(train), train.labels))
    cov.assess(batches(coloured(TEST), Y))
    assert cov.sanity().alarms == ()
    cov.reset()
    cov.assess(batches(coloured(TEST).flip(1), Y))
    assert "unlike" in {alarm.name for alarm in cov.sanity().alarms}


def scenes(count, seed):
    """Images whose colours vary together, red more than blue, as outdoors; half of them are of the other class."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 2
    light = 0.5 + 0.1 * torch.randn(count, 1, 1, 1, generator=random)
    tint = torch.tensor([0.06, 0.0, -0.06])[None, :, None, None] * (1 + torch.randn(count, 1, 1, 1, generator=random))
    x = light + tint + 0.05 * torch.randn(count, 3, 8, 8, generator=random)
    x[labels == 1, :, 2:6, 2:6] += 0.4
    return x, labels


@pytest.mark.filterwarnings("ignore::neuralcov.core.errors.CoverageWarning")
@pytest.mark.parametrize(
    ("prepare", "alarms"),
    [
        (lambda x: x, set()),
        (lambda x: x[:, [0, 2, 1]], {"channels"}),
        (lambda x: x.flip(1), {"channels"}),
        (lambda x: 255 * x, {"scale"}),
        (lambda x: 2 * x - 1, {"scale"}),
        (lambda x: (x - 0.5) / 0.25, {"scale"}),
        # Another time of day is no fault.
        (lambda x: 0.8 * x, set()),
    ],
)
def test_scale_and_colours_are_those_of_training_data(prepare, alarms):
    # A network that looks at brightness alone, up to a factor: nothing inside it tells of colours or scale.
    torch.manual_seed(0)
    net = nn.Sequential(nn.InstanceNorm2d(3), nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)).eval()
    cov = nc.Coverage(net, [nc.SNAC()])
    cov.calibrate(batches(*scenes(1000, 0)))
    x, _ = scenes(400, 1)
    cov.assess(batches(prepare(x)))
    found = cov.sanity()
    assert {alarm.name for alarm in found.alarms} - {"classes"} == alarms
    assert found.deviation == pytest.approx(float(prepare(x).var((0, 2, 3), correction=0).mean().sqrt()), rel=1e-4)
    assert found.mean == pytest.approx(float(prepare(x).mean()), abs=1e-4 * found.deviation)


@pytest.mark.filterwarnings("ignore::neuralcov.core.errors.CoverageWarning")
def test_a_small_network_that_cannot_tell_inputs_apart_has_no_copies():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 3)).eval()
    cov = nc.Coverage(net, [nc.LCC()])
    cov.calibrate([torch.rand(3000, 2)])
    fresh = torch.rand(800, 2)
    cov.assess([fresh])
    found = cov.sanity()
    assert found.near_duplicates > 0.5 * 800
    assert found.alarms == ()
    cov.reset()
    # A hundred inputs, each eight times but for noise that moves nothing.
    cov.assess([fresh[:100].repeat(8, 1) + 1e-6 * torch.rand(800, 2)])
    found = cov.sanity()
    # Hardly any to the bit.
    assert found.duplicates < 20
    assert [alarm.name for alarm in found.alarms] == ["duplicates"]


@pytest.mark.filterwarnings("ignore::neuralcov.core.errors.CoverageWarning")
def test_files_and_merging_keep_it(calibrated, tmp_path):
    whole, first, second = calibrated.fork(), calibrated.fork(), calibrated.fork()
    whole.assess(batches(X, Y))
    first.assess(batches(X[:200], Y[:200]))
    second.assess(batches(X[200:], Y[200:]))
    first.merge(second)
    assert first.sanity() == whole.sanity()
    whole.save(tmp_path / "a.ncov")
    assert nc.Coverage.load(tmp_path / "a.ncov").sanity() == whole.sanity()
    assert nc.Coverage.from_bytes(whole.to_bytes(), whole.model).sanity() == whole.sanity()
    whole.save_calibration(tmp_path / "a.ncal")
    again = nc.Coverage(whole.model, [nc.LCC(), nc.SNAC()])
    again.calibrate(tmp_path / "a.ncal")
    again.assess(batches(X, Y))
    assert again.sanity() == whole.sanity()
    snapshot = whole.snapshot()
    before = whole.sanity()
    whole.update(X[:50], Y[:50])
    assert whole.sanity().duplicates == 50
    whole.restore(snapshot)
    assert whole.sanity() == before
    # Inputs that are not admitted are not counted.
    admitted = calibrated.fork()
    taken = admitted.admit(X[:100], Y[:100])
    assert admitted.sanity().judged == int(taken.sum())


def test_outputs_that_look_like_probabilities_tell_no_accuracy():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1), nn.Sigmoid())
    cov = nc.Coverage(model, [nc.NC(0.5)])
    cov.assess([(torch.randn(50, 4), torch.arange(50) % 2)])
    assert cov.sanity().accuracy is None
    assert cov.sanity().classes == 2
