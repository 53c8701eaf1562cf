"""What criteria are said to take, beside what states, and what calibration learnt, really take."""

import re
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import neuralcov as nc
from neuralcov.core.cost import Workload, cost_of, largest_layer, require_memory, tensor_bytes
from neuralcov.core.errors import HyperParameterError, MemoryBudgetError
from neuralcov.core.layout import Layout
from neuralcov.core.memory import available_bytes, parse_bytes
from neuralcov.criteria import ALL
from neuralcov.statistics.moments import Moments

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")

WIDTHS = {"a": 5, "b": 9, "c": 5, "d": 1, "e": 70}
FIXED = [
    nc.NC(),
    nc.NC(0.2, errors=True),
    nc.KMNC(7),
    nc.KMNC(1, errors=True),
    nc.NBC(),
    nc.SNAC(errors=True),
    nc.TKNC(3),
    nc.NPC(clusters=2, buckets=7),
    nc.NPC(clusters=2, buckets=7, errors=True),
    nc.NPC(0.5, 0.6, 2, 4, "activation"),
    nc.NLC(),
    nc.NLC(rule="all"),
    nc.NLC(classes=3),
    nc.LVC(),
    nc.LVC(groups=3),
]
GROWING = [nc.TKNP(2), nc.SS(), nc.CC(1e-9), nc.LCC(), nc.LSC(1e-6, 0.5, by=None, min_variance=0), nc.MDSC(1e-6)]
GROWING += [nc.TKNP(2, sketch=16), nc.LCC(sketch=16)]


def batch(size, seed):
    numbers = torch.Generator().manual_seed(seed)
    layers = {name: torch.randn(size, width, generator=numbers) for name, width in WIDTHS.items()}
    classes = torch.arange(size) % 3
    relevance = {name: torch.rand(values.shape, generator=numbers) for name, values in layers.items()}
    return nc.Activations(layers, labels=classes, predictions=classes, relevance=relevance)


def measured(criterion, inputs, training=120):
    coverage = nc.Coverage.of_layers(WIDTHS, [criterion])
    if criterion.learns:
        coverage.calibrate(activations=batch(training, 0))
    coverage.update(activations=batch(inputs, 1))
    (state,) = coverage._measurement.collection.states
    return state, coverage._measurement.learnt.calibration


@pytest.mark.parametrize("criterion", FIXED, ids=lambda criterion: criterion.name)
def test_states_of_a_fixed_size_take_what_is_said(criterion):
    state, _ = measured(criterion, 40)
    cost = cost_of(criterion, Layout(WIDTHS), Workload(40, 120, 3))
    assert cost.state == tensor_bytes(state)
    assert not cost.grows


@pytest.mark.parametrize("criterion", GROWING, ids=lambda criterion: criterion.name)
@pytest.mark.parametrize("inputs", [3, 90])
def test_states_that_grow_take_no_more_than_is_said(criterion, inputs):
    state, _ = measured(criterion, inputs)
    cost = cost_of(criterion, Layout(WIDTHS), Workload(inputs, 120, 3))
    assert cost.grows
    # Where every input shows something of its own it is as much; few are alike in the narrow layers.
    assert 0.3 * cost.state < tensor_bytes(state.compact()) <= cost.state
    if isinstance(criterion, nc.TKNP | nc.LSC | nc.MDSC):
        assert tensor_bytes(getattr(state, "seen", state).compact()) == 24 * len(state.seen.compact().keys)


@pytest.mark.parametrize(
    "criterion",
    [nc.KMNC(), nc.LVC(), nc.DSC(0.1), nc.LSC(1, layers="a|e", by=None), nc.NPC(clusters=2)],
    ids=lambda criterion: criterion.name,
)
def test_what_is_gathered_of_training_data(criterion):
    _, calibration = measured(criterion, 20)
    said = cost_of(criterion, Layout(WIDTHS), Workload(20, 120, 3)).gathered
    real = sum(tensor_bytes(calibration[statistic]) for statistic in criterion.learns)
    # Paths also keep the list of classes.
    assert real == pytest.approx(said, abs=3 * 8)


def test_projections_before_they_are_counted():
    (statistic,) = nc.LCC().learns
    rows = statistic.observe(statistic.init(Layout(WIDTHS)), batch(120, 0))
    said = cost_of(nc.LCC(), Layout(WIDTHS), Workload(20, 120, 3)).gathered
    assert tensor_bytes(rows) == pytest.approx(said, rel=0.02)


def test_what_lvc_learns():
    coverage = nc.Coverage.of_layers(WIDTHS, [nc.LVC()])
    coverage.calibrate(activations=batch(120, 0))
    said = cost_of(nc.LVC(), Layout(WIDTHS)).learnt
    whitening = sum(tensor_bytes(t.whitening) for t in coverage.criteria[0].learnt.training)
    assert said == whitening == 8 * sum(width**2 for width in WIDTHS.values())


def test_nothing_is_allocated():
    layout = Layout({"embedding": 10_000_000, "lm_head": 5_000_000})
    for cls in ALL:
        assert cost_of(cls(), layout).state > 0


def test_figures_by_hand():
    layout = Layout({"up": 11_008, "down": 4_096})
    assert cost_of(nc.NC(), layout).state == 11_008 + 4_096 + 24
    assert cost_of(nc.KMNC(100), layout).state == 101 * (11_008 + 4_096) + 24
    # Covariance, mean, count and spread.
    squares = 8 * (11_008**2 + 4_096**2)
    assert cost_of(nc.NLC(), layout).state == squares + 8 * (11_008 + 4_096) + 4 * 8 + 24
    assert cost_of(nc.DSC(0.1), layout, Workload(training_inputs=1000)).gathered == 1000 * (4 * 15_104 + 16)
    assert largest_layer(nc.NLC(), layout)[0] == "up"


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_every_criterion_has_a_limit(cls):
    assert cls(memory="1 GB").name == cls().name
    with pytest.raises(HyperParameterError, match="memory='lots': expected a size"):
        cls(memory="lots")


@pytest.mark.parametrize(
    "criterion",
    [nc.NLC(memory=1000), nc.LVC(memory=1000), nc.NC(memory=10), nc.KMNC(memory=100), nc.NLC(classes=9, memory=9_000)],
    ids=lambda criterion: criterion.name,
)
def test_what_exceeds_the_limit_is_refused_by_the_layers_name(criterion):
    coverage = nc.Coverage.of_layers({"fc1": 3, "lm_head": 30}, [nc.TKNC(), criterion])
    given = {"fc1": torch.zeros(4, 3), "lm_head": torch.zeros(4, 30)}
    use = coverage.calibrate if criterion.learns else coverage.update
    with pytest.raises(MemoryBudgetError, match=r"layer 'lm_head' \(30 neurons\) and 1 more would take .* but memory="):
        use(activations=given, labels=[0, 1, 2, 0])
    assert coverage.inputs == 0


def test_what_no_machine_has_is_refused_before_it_is_taken(monkeypatch):
    """A language model's head of 128,256 words: 131 GB of covariances, whatever ``memory=`` says."""
    coverage = nc.Coverage.of_layers({"lm_head": 128_256}, [nc.NLC(memory="900 TB")])
    monkeypatch.setattr("neuralcov.core.cost.available_bytes", lambda device: 64 * 10**9)
    zeros = torch.zeros(2, 1).expand(2, 128_256)
    with pytest.raises(MemoryBudgetError, match=r"'lm_head' \(128,256 neurons\) would take 263 GB, but cpu has 64 GB"):
        coverage.update(activations={"lm_head": zeros})
    with pytest.raises(MemoryBudgetError, match="layers='!lm_head'"):
        require_memory([nc.LVC()], Layout({"lm_head": 128_256}))


def test_criteria_are_added_up(monkeypatch):
    layout = Layout({"a": 1000})
    monkeypatch.setattr("neuralcov.core.cost.available_bytes", lambda device: 12_000_000)
    require_memory([nc.NLC()], layout)
    with pytest.raises(MemoryBudgetError, match="with the others 16 MB"):
        require_memory([nc.NLC(), nc.NLC(rule="all")], layout)


def test_a_model_is_refused_after_one_pass_and_nothing_of_it_is_kept():
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 600)).eval()
    coverage = nc.Coverage(net, [nc.LVC(memory="1 MB")])
    with pytest.raises(MemoryBudgetError, match="layer '2'"):
        coverage.calibrate([torch.randn(10, 4)])
    assert coverage.layout is None
    smaller = nc.Coverage(net, [nc.LVC(memory="1 MB")], layers="!2|*")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        smaller.calibrate([torch.randn(50, 4)])
        smaller.update(torch.randn(9, 4))
    assert smaller.values()["LVC"] > 0


def test_the_limit_is_in_files_and_no_part_of_the_criterion(tmp_path):
    given = {"fc": np.eye(4, dtype=np.float32)}
    one, other = (nc.Coverage.of_layers({"fc": 4}, [nc.NLC(memory=memory)]) for memory in ("1 GB", "2 GB"))
    for coverage in (one, other):
        coverage.update(activations=given)
    one.save(tmp_path / "a.ncov")
    loaded = nc.Coverage.load(tmp_path / "a.ncov")
    assert loaded.criteria[0].memory == "1 GB"
    loaded.merge(other, overlap="repeat")
    assert loaded.inputs == 8


def test_a_coverage_limits_each_criterion_that_has_no_limit_of_its_own():
    given = {"fc1": torch.zeros(4, 3), "lm_head": torch.zeros(4, 30)}
    coverage = nc.Coverage.of_layers({"fc1": 3, "lm_head": 30}, [nc.TKNC(), nc.NLC()], memory=1000)
    with pytest.raises(MemoryBudgetError, match=r"NLC: layer 'lm_head' .* but memory=1000 allows 1 kB"):
        coverage.update(activations=given)
    own = nc.Coverage.of_layers({"fc1": 3, "lm_head": 30}, [nc.TKNC(), nc.NLC(memory="1 MB")], memory=1000)
    own.update(activations=given)
    assert [criterion.memory for criterion in own.criteria] == [1000, "1 MB"]
    streaming = nc.Coverage.of_layers({"fc1": 3}, [nc.DSC()], memory=1000)
    assert [statistic.memory for statistic in streaming.criteria[0].learns] == [1000]
    with pytest.raises(HyperParameterError, match="memory='lots': expected a size"):
        nc.Coverage(nn.Linear(2, 2), [nc.NC()], memory="lots")


def test_memory_that_is_left():
    left = available_bytes(torch.device("cpu"))
    assert left is None or 10**6 < left < 10**14
    assert available_bytes(torch.device("meta")) is None


def test_a_statistic_of_a_fixed_size():
    assert Moments().cost(Layout({"a": 10}, "meta"), Workload()) == 8 * (100 + 10 + 1)


@pytest.mark.parametrize("criterion", [nc.CC(1, memory="100 kB"), nc.SS(memory="10 kB"), nc.TKNP(memory="3 kB")])
@pytest.mark.parametrize("way", ["update", "admit", "merge"])
def test_states_that_outgrow_the_limit_are_refused(criterion, way):
    widths, limit = {"fc1": 30, "fc2": 20, "lm_head": 600}, parse_bytes(criterion.memory)
    batches = [{layer: torch.randn(10, width) for layer, width in widths.items()} for _ in range(20)]
    coverage = nc.Coverage.of_layers(widths, [criterion])
    observed = []

    def run():
        for given in batches:
            if way == "merge":
                other = coverage.fork()
                other.reset()
                other.update(activations=given)
                coverage.merge(other, overlap="allow")
            observed.append(coverage.inputs)
            if way == "admit":
                coverage.admit(activations=given, min_gain=-1)
            else:
                coverage.update(activations=given)

    said = rf"{re.escape(criterion.name)}: the state has grown to .* but memory='{criterion.memory}' allows"
    with pytest.raises(MemoryBudgetError, match=said) as raised:
        run()
    assert 1 < len(observed) < 20
    # Nothing of the last batch was observed, and what was can be kept.
    assert coverage.inputs == observed[-1]
    size = tensor_bytes(coverage._measurement.collection.states[0])
    assert limit < size <= 2 * limit
    assert nc.Coverage.from_bytes(coverage.to_bytes()).values(warn=False) == coverage.values(warn=False)
    assert ("layers='!lm_head'" in str(raised.value)) == (criterion.name != nc.TKNP().name)


def test_what_streams_training_data_is_not_limited_by_them():
    coverage = nc.Coverage.of_layers({"fc": 3}, [nc.DSC(memory=100), nc.NC(memory=1000)])
    rows, labels = torch.randn(50, 3), torch.arange(50) % 2
    coverage.calibrate(activations={"fc": rows}, labels=labels, predictions=labels)
    for _ in range(3):
        coverage.update(activations={"fc": torch.randn(50, 3)}, predictions=labels)
    assert coverage.inputs == 150
