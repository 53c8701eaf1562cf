"""Slices against brute force: each measured alone, and everything without it, in coverages of their own."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import neuralcov as nc
from neuralcov.core.criterion import MERGE_EXACT
from neuralcov.coverage.collection import CriterionCollection
from neuralcov.coverage.slices import OTHERS, SliceStates

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")

CRITERIA = [
    nc.NC(0.4), nc.KMNC(5), nc.NBC(), nc.SNAC(), nc.TKNC(2), nc.TKNP(2), nc.SS(), nc.CC(0.5), nc.NLC(),
    nc.NLC(rule="all"), nc.LVC(), nc.LSC(1.0, by=None), nc.DSC(0.1), nc.MDSC(1.0), nc.LCC(),
]  # fmt: skip


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))


def coverage(model, criteria=CRITERIA):
    found = nc.Coverage(model, criteria)
    if any(criterion.learns for criterion in criteria):
        found.calibrate([torch.randn(90, 4, generator=torch.Generator().manual_seed(1))])
    return found


def suite(count=50, seed=2):
    random = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 4, generator=random)
    inputs[count // 2] = torch.nan
    weather = np.random.default_rng(seed).choice(["rain", "sun", "fog"], count)
    return inputs, torch.randint(0, 3, (count,), generator=random), weather


def batches(inputs, labels, weather, size=16):
    for start in range(0, len(inputs), size):
        rows = slice(start, start + size)
        yield nc.Batch(inputs[rows], None if labels is None else labels[rows], metadata={"weather": weather[rows]})


def values(model, inputs, labels, kept, criteria=CRITERIA):
    """The values of some inputs in the batches they came in."""
    found = coverage(model, criteria)
    for start in range(0, len(inputs), 16):
        rows = np.flatnonzero(kept[start : start + 16]) + start
        if len(rows):
            found.update(inputs[rows], None if labels is None else labels[rows])
    return found.values()


@pytest.mark.parametrize("labelled", [True, False])
def test_slices_are_what_their_inputs_cover_alone_and_what_all_lose_without_them(model, labelled):
    inputs, labels, weather = suite()
    labels = labels if labelled else None
    found = coverage(model)
    found.assess(batches(inputs, labels, weather), slices=("weather", "class"))
    classes = (model(inputs).argmax(1) if labels is None else labels).numpy()
    plain = coverage(model)
    plain.assess(batches(inputs, labels, weather))
    everything = found.values()
    assert everything == plain.values()
    by_weather, by_class = found.by_slice()
    assert [row.slice for row in by_weather.rows] == ["fog", "rain", "sun"]
    assert [row.slice for row in by_class.rows] == ["0", "1", "2"]
    for table, column in ((by_weather, weather), (by_class, classes)):
        for row in table.rows:
            mine = np.array([str(value) == row.slice for value in column])
            assert row.inputs == mine.sum()
            alone, rest = values(model, inputs, labels, mine), values(model, inputs, labels, ~mine)
            for criterion in found.criteria:
                name = criterion.name
                # The model's own rounding depends on how many inputs come at a time.
                assert row.alone[name] == pytest.approx(alone[name], rel=1e-6), name
                if MERGE_EXACT in criterion.promises:
                    assert row.lost[name] == pytest.approx(everything[name] - rest[name], rel=1e-6, abs=1e-7), name
                else:
                    assert row.lost[name] is None
        assert [note.partition(":")[0] for note in table.notes] == ["CC(0.5)", "NLC"]


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_laws_of_slices(data):
    torch.manual_seed(0)
    net = nn.Linear(4, 5)
    count = data.draw(st.integers(1, 30))
    inputs = torch.randn(count, 4, generator=torch.Generator().manual_seed(data.draw(st.integers(0, 99))))
    weather = np.array(data.draw(st.lists(st.sampled_from("abc"), min_size=count, max_size=count)))
    found = nc.Coverage(net, [nc.NC(0.4), nc.TKNP(2)])
    size = data.draw(st.integers(1, 30))
    found.assess(batches(inputs, None, weather, size), slices=["weather"])
    (table,) = found.by_slice()
    assert sum(row.inputs for row in table.rows) == count
    for name, value in found.values().items():
        alone = [row.alone[name] for row in table.rows]
        lost = [row.lost[name] for row in table.rows]
        # Nothing covers more alone than all do, none is worth more than it covers, and all together cover everything.
        assert max(alone) <= value <= sum(alone) + 1e-12
        assert all(-1e-12 <= gone <= own + 1e-12 for gone, own in zip(lost, alone, strict=True))
        assert len(alone) > 1 or lost == pytest.approx([value])


def test_what_was_observed_before_is_not_lost(model):
    inputs, _, weather = suite()
    criteria = [nc.NC(0.4), nc.NLC(rule="all")]
    found = coverage(model, criteria)
    before = torch.randn(20, 4, generator=torch.Generator().manual_seed(9))
    found.update(before)
    snapshot, at_first = found.snapshot(), found.values()
    found.assess(batches(inputs, None, weather), slices=["weather"])
    kept = coverage(model, criteria)
    kept.update(before)
    kept.update(inputs[weather != "sun"])
    for name, value in found.values().items():
        assert found.by_slice()[0]["sun"].lost[name] == pytest.approx(value - kept.values()[name], rel=1e-9)
    found.restore(snapshot)
    assert found.values() == at_first
    assert found.by_slice() == ()


def test_slices_are_kept_with_the_state_and_dropped_when_it_changes(model, tmp_path):
    inputs, labels, weather = suite()
    found = coverage(model, [nc.NC(0.4)])
    found.assess(batches(inputs, labels, weather), slices=["weather"])
    tables = found.by_slice()
    assert found.fork().by_slice() == tables
    assert found.results().to_json()["slices"][0]["rows"][0]["slice"] == "fog"
    found.save(tmp_path / "a.ncov")
    loaded = nc.Coverage.load(tmp_path / "a.ncov")
    assert loaded.by_slice() == tables
    assert loaded.results().slices == tables
    other = coverage(model, [nc.NC(0.4)])
    other.update(torch.ones(2, 4))
    with pytest.warns(nc.CoverageWarning, match="merging drops what slices cover"):
        found.merge(other)
    assert found.by_slice() == ()
    loaded.reset()
    assert loaded.by_slice() == ()


def test_columns_that_are_not_there_are_refused(model):
    found = coverage(model, [nc.NC(0.4)])
    with pytest.raises(nc.NeuralcovError, match="slices by 'camera': the batches have no such column, but weather"):
        found.assess(batches(*suite()), slices=["camera"])
    assert found.inputs == 0
    with pytest.raises(nc.NeuralcovError, match="slices='weather': expected names of columns"):
        found.assess(batches(*suite()), slices="weather")
    with pytest.raises(nc.NeuralcovError, match="predict="):
        nc.Coverage(nn.Conv1d(4, 2, 1), [nc.NC(0.4)]).assess([torch.ones(3, 4, 2)], slices=["class"])


def test_batches_that_lack_a_column_later_have_no_value(model):
    found = coverage(model, [nc.NC(0.4)])
    found.assess([nc.Batch(torch.randn(2, 4), metadata={"t": [1.5, float("nan")]}), torch.randn(3, 4)], slices=["t"])
    assert [(row.slice, row.inputs) for row in found.by_slice()[0].rows] == [("1.5", 1), ("(none)", 4)]


def test_batches_of_no_input_have_no_slices(model):
    found = coverage(model, [nc.NC(0.4)])
    found.assess([nc.Batch(torch.zeros(0, 4), metadata={"weather": []})], slices=["weather", "class"], per_input=True)
    assert [table.rows for table in found.by_slice()] == [(), ()]
    assert len(found.per_input()) == 0


def observed(criteria, weather, **limits):
    torch.manual_seed(0)
    layers = {"a": torch.randn(len(weather), 6), "b": torch.randn(len(weather), 3)}
    batch = nc.Activations(layers, metadata={"weather": weather})
    collection = CriterionCollection(criteria)
    collection.layout = batch.layout
    states = SliceStates(["weather"], collection, **limits)
    states.observe(batch)
    collection.observe(batch)
    return states.tables()[0]


def test_values_beyond_the_limit_are_one_slice():
    table = observed([nc.NC(0.4)], list("abcdea"), most=2)
    assert [(row.slice, row.inputs) for row in table.rows] == [("a", 2), ("b", 1), (OTHERS, 3)]
    assert table.notes == (f"weather has more than 2 values: those that came later are one slice, {OTHERS}",)


def test_criteria_whose_states_are_too_large_are_left_out():
    table = observed([nc.NC(0.4), nc.NLC(rule="all")], list("abc"), memory=1000)
    assert all(row.alone["NC(0.4)"] is not None and row.alone["NLC(rule=all)"] is None for row in table.rows)
    (note,) = table.notes
    assert note.startswith("NLC(rule=all) was left out of slices: 2 states of")
    assert table["a"].lost["NLC(rule=all)"] is None


def test_measuring_alone_runs_the_model_once_for_each_batch(model):
    calls = []
    handle = model.register_forward_hook(lambda *_: calls.append(1))
    found = coverage(model, [nc.NC(0.4)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found.probe(torch.randn(3, 4))
        calls.clear()
        found.assess(batches(*suite()), slices=["weather", "class"], per_input=True)
    handle.remove()
    assert len(calls) == 4


def test_answers_are_counted_slice_by_slice(model, tmp_path):
    inputs, labels, weather = suite()
    found = coverage(model)
    found.assess(batches(inputs, labels, weather), slices=["weather", "class"], progress=False)
    with torch.no_grad():
        said = model(inputs).argmax(1)
    by_weather, by_class = found.by_slice()
    for row in by_weather.rows:
        mine = torch.tensor(weather == row.slice)
        assert (row.judged, row.right) == (int(mine.sum()), int((mine & (labels == said)).sum()))
        assert row.mistaken == {}, "what is mistaken for what is told of classes alone"
    for row in by_class.rows:
        mine = labels == int(row.slice)
        wrong = said[mine & (labels != said)].tolist()
        assert row.accuracy == pytest.approx(float((said[mine] == labels[mine]).double().mean()))
        order = sorted(set(wrong), key=lambda one: (-wrong.count(one), one))
        assert row.mistaken == {str(one): wrong.count(one) for one in order}
    found.save(tmp_path / "a.ncov")
    assert nc.Coverage.load(tmp_path / "a.ncov").by_slice() == found.by_slice()


def test_without_labels_nothing_is_right_or_wrong(model):
    inputs, _, weather = suite()
    found = coverage(model)
    found.assess(batches(inputs, None, weather), slices=["class"], progress=False)
    assert {(row.judged, row.accuracy, len(row.mistaken)) for row in found.by_slice()[0].rows} == {(0, None, 0)}
