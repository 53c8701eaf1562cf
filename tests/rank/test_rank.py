"""The queue against its definition, whatever the batches; ties, exclusions, labels, memory, going on."""

import csv
import gc
import json
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

import neuralcov as nc
from neuralcov.core.errors import CalibrationError, InputError, MismatchError, StateFileError
from neuralcov.rank import collecting


def hidden(network, inputs):
    return network[:3](inputs).detach().numpy()


def margin(network, inputs):
    ordered = np.sort(special.softmax(network(inputs).detach().numpy(), axis=1), axis=1)
    return ordered[:, -1] - ordered[:, -2]


def trust(network, training, inputs, labels=None):
    """Return the distance to the nearest other class over that to the predicted one, by its definition."""
    theirs, ours = hidden(network, training), hidden(network, inputs)
    there, here = network(training).argmax(1).numpy(), network(inputs).argmax(1).numpy()
    there = there if labels is None else labels
    found = np.full(len(ours), np.nan)
    for row, (point, decided) in enumerate(zip(ours, here, strict=True)):
        far = {}
        for label in np.unique(there):
            cosines = [
                point @ other / np.linalg.norm(point) / np.linalg.norm(other) for other in theirs[there == label]
            ]
            far[label] = np.sqrt(np.clip(2 - 2 * np.sort(cosines)[::-1][:5], 0, None)).mean()
        others = [distance for label, distance in far.items() if label != decided]
        if decided in far and others:
            found[row] = min(others) / far[decided]
    return found


def by_definition(network, training, inputs, labels=None):
    """Return the order of the sums of ranks, and the sums."""
    nearer = trust(network, training, inputs, labels).round(9)
    known = ~np.isnan(nearer)
    ranks = np.full(len(nearer), (known.sum() + 1) / 2)
    ranks[known] = stats.rankdata(nearer[known])
    chances = special.softmax(network(inputs).detach().numpy(), axis=1)
    total = 2.5 * stats.rankdata(((chances**2).sum(1) - 1).round(12)) + ranks
    return sorted(range(len(inputs)), key=lambda row: (total[row], row)), total


def test_the_order_is_that_of_the_definition(network, inputs, taught):
    queue = nc.rank(taught, inputs[120:].split(30))
    expected, total = by_definition(network, inputs[:120], inputs[120:])
    assert queue.positions == expected
    assert [row.rank for row in queue] == list(range(1, 81))
    np.testing.assert_allclose([row.score for row in queue], 1 - (total[expected] - 3.5) / (3.5 * 79))
    assert taught.inputs == 0


@settings(max_examples=15, deadline=None)
@given(cuts=st.lists(st.integers(1, 79), max_size=6, unique=True))
def test_batches_change_nothing(network, inputs, taught, cuts):
    queue = nc.rank(taught, inputs[120:].tensor_split(sorted(cuts)))
    assert queue.positions == by_definition(network, inputs[:120], inputs[120:])[0]


def test_equal_inputs_stand_in_the_order_of_their_positions(inputs, taught):
    twice = torch.cat([inputs[120:160], inputs[120:160]])
    places = {position: row.rank for position, row in enumerate(sorted(nc.rank(taught, [twice]), key=lambda r: r.id))}
    assert all(places[position] < places[position + 40] for position in range(40))
    scores = {row.id: row.score for row in nc.rank(taught, [twice])}
    assert all(scores[position] == scores[position + 40] for position in range(40))


def test_training_data_do_for_a_calibration(network, inputs, taught):
    queue = nc.rank(nc.Coverage(network, [nc.NC()]), [inputs[120:]], training=inputs[:120].split(50))
    assert queue.positions == nc.rank(taught, [inputs[120:]]).positions


def test_a_calibration_of_all_layers_serves_the_last_before_the_output(network, inputs, taught):
    other = nc.Coverage(network, [nc.MDSC()])
    other.calibrate(inputs[:120].split(40))
    assert nc.rank(other, [inputs[120:]]).positions == nc.rank(taught, [inputs[120:]]).positions
    first = nc.rank(other, [inputs[120:]], layer="0")
    assert first.positions != nc.rank(taught, [inputs[120:]]).positions
    with pytest.raises(InputError, match="layer='fc' is none of this coverage"):
        nc.rank(other, [inputs[120:]], layer="fc")


def test_traces_are_taken_evenly(network, inputs, taught):
    queue = nc.rank(taught, [inputs[120:]], traces=40)
    assert queue.positions == by_definition(network, inputs[:120:3], inputs[120:])[0]


def test_without_training_data_it_says_what_to_do(network, inputs):
    with pytest.raises(CalibrationError, match=r"nc\.DSC\(\) among its criteria, or give training="):
        nc.rank(nc.Coverage(network, [nc.NC()]), [inputs])
    with pytest.raises(CalibrationError, match="training= gave no batch"):
        nc.rank(nc.Coverage(network, [nc.NC()]), [inputs], training=[])


def test_no_input_is_an_error(taught):
    with pytest.raises(InputError, match="nothing to rank"):
        nc.rank(taught, [])


def test_an_input_that_has_no_surprise_takes_the_mean_rank(network, inputs):
    classes = network(inputs).argmax(1)
    rare = int(classes[125])
    training = inputs[:120][classes[:120] != rare]
    queue = nc.rank(nc.Coverage(network, [nc.NC()]), [inputs[120:]], training=[training])
    missing = int((classes[120:] == rare).sum())
    assert missing > 0
    assert queue.positions == by_definition(network, training, inputs[120:])[0]
    assert f"{missing} inputs have no trust and take its mean rank" in queue.notes
    said = next(row.why for row in queue if classes[120 + row.id] == rare)
    assert "no trust to be had, so taken as average" in said


def test_training_labels_draw_the_borders(network, inputs):
    labels = (network(inputs[:120]).argmax(1) + (torch.arange(120) % 7 == 0)) % 4
    queue = nc.rank(nc.Coverage(network, [nc.NC()]), [inputs[120:]], training=[(inputs[:120], labels)])
    assert queue.positions == by_definition(network, inputs[:120], inputs[120:], labels.numpy())[0]
    assert queue.positions != by_definition(network, inputs[:120], inputs[120:])[0]


def test_inputs_whose_output_is_not_a_number_stand_first(inputs, taught):
    pool = inputs[120:].clone()
    pool[17] = torch.nan
    queue = nc.rank(taught, [pool])
    assert (queue[0].id, queue[0].why) == (17, "its output is NaN or infinite")
    assert "1 input whose output is NaN or infinite stands first" in queue.notes


def test_reasons_name_what_is_odd(network, inputs, taught):
    names = ["ant", "bee", "cat", "dog"]
    queue = nc.rank(taught, [inputs[120:]], classes=names)
    close, near = trust(network, inputs[:120], inputs[120:]), margin(network, inputs[120:])
    ordered = network(inputs[120:]).sort(dim=1, descending=True, stable=True).indices
    for row in queue:
        assert ("close to training data of other classes" in row.why and "rather close" not in row.why) == (
            close[row.id] <= np.sort(close)[7] + 1e-9
        )
        if near[row.id] < 0.2:
            assert f"near the boundary to {names[ordered[row.id, 1]]}" in row.why
    assert "nothing odd" in queue[-1].why


def test_ids_and_paths_are_those_of_the_data(inputs, taught, tmp_path):
    names = [f"{number:03}.png" for number in range(80)]
    batches = [
        nc.Batch(inputs[120:160], ids=names[:40]),
        nc.Batch(inputs[160:], ids=names[40:], metadata={"path": [f"/b/{name}" for name in names[40:]]}),
    ]
    queue = nc.rank(taught, batches, folder=tmp_path)
    plain = nc.rank(taught, [inputs[120:]])
    assert queue.ids == [names[position] for position in plain.positions]
    for row in queue:
        later = row.id >= "040.png"
        assert row.path == (f"/b/{row.id}" if later else f"{tmp_path.as_posix()}/{row.id}")


def test_files_hold_every_row(inputs, taught, tmp_path):
    queue = nc.rank(taught, [inputs[120:]])
    queue.write(tmp_path / "queue.csv")
    queue.write(tmp_path / "queue.jsonl")
    with (tmp_path / "queue.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    lines = [json.loads(line) for line in (tmp_path / "queue.jsonl").read_text().splitlines()]
    assert list(rows[0]) == list(lines[0]) == ["rank", "id", "path", "score", "why"]
    assert [int(row["id"]) for row in rows] == [line["id"] for line in lines] == queue.positions
    assert [line["score"] for line in lines] == [row.score for row in queue]
    assert list(queue.table()["why"]) == [row.why for row in queue]
    assert queue[-1] == queue[79]
    assert queue[78:] == [queue[78], queue[79]]


# With labels


def test_labels_teach_what_tells_of_faults(network, inputs, taught):
    classes = network(inputs[120:]).argmax(1)
    unsure = margin(network, inputs[120:]) < np.median(margin(network, inputs[120:]))
    truth = torch.where(torch.from_numpy(unsure), (classes + 1) % 4, classes)
    labels = {position: int(truth[position]) for position in range(0, 80, 2)}
    everything = nc.Coverage(network, [nc.DSC(), nc.LCC()])
    queue = nc.rank(everything, [inputs[120:]], training=[inputs[:120]], labels=labels)
    assert list(queue.weights) == ["gini", "margin", "entropy", "trust", "dsc", "lsc", "mdsc", "rarity"]
    assert sorted(queue.positions) == list(range(1, 80, 2))
    assert set(queue.positions[:10]) <= set(np.flatnonzero(unsure).tolist())
    assert sum(queue.weights[name] for name in ("gini", "margin", "entropy")) > 1
    assert all(0 < row.score < 1 for row in queue)
    assert "learnt from 40 labelled inputs, " in " ".join(queue.notes)


def test_labels_that_teach_nothing_leave_the_order_as_it_is(network, inputs):
    classes = network(inputs[120:]).argmax(1).tolist()
    queue = nc.rank(nc.Coverage(network, [nc.NC()]), [inputs[120:]], training=[inputs[:120]], labels=classes[:9])
    expected = by_definition(network, inputs[:120], inputs[120:])[0]
    assert queue.positions == [position for position in expected if position >= 9]
    assert any("none of 9 labelled inputs are faults" in said for said in queue.notes)


def test_labels_of_other_inputs_are_refused(network, inputs):
    with pytest.raises(InputError, match="none of 1 label belongs to an input"):
        nc.rank(nc.Coverage(network, [nc.NC()]), [inputs[120:]], training=[inputs[:120]], labels={"a.png": 1})


# Models without classes


def test_embeddings_are_ranked_by_rarity_and_distance(inputs):
    class Embedding(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.outer = torch.nn.Linear(6, 5), torch.nn.Linear(5, 3)

        def forward(self, x):
            return self.outer(self.inner(x).relu())[:, None, :].expand(-1, 2, -1)

    torch.manual_seed(3)
    coverage = nc.Coverage(Embedding(), [nc.MDSC(by=None), nc.LCC()])
    training = inputs[:120].float()
    coverage.calibrate([training])
    pool = torch.cat([inputs[120:].float(), 40 * torch.ones(1, 6)])
    queue = nc.rank(coverage, [pool])
    assert queue[0].id == 80
    assert queue[0].why == "far from training data, and of a rare kind in training data"
    again_coverage = nc.Coverage(coverage.model, [nc.NC()])
    again = nc.rank(again_coverage, [pool], training=[training])
    assert again.positions == queue.positions
    with pytest.raises(InputError, match="the label 3: this model has no classes"):
        nc.rank(again_coverage, [pool], training=[training], labels={0: 1, 1: 3})
    labels = {place: int(pool[place, 0] > 0) for place in range(40)}
    learnt = nc.rank(again_coverage, [pool], training=[training], labels=labels)
    assert sorted(learnt.positions) == list(range(40, 81))
    assert list(learnt.weights) == ["lsc", "mdsc", "rarity"]
    assert learnt.notes[0].startswith("learnt from 40 labelled inputs")
    nothing = nc.rank(again_coverage, [pool], training=[training], labels=dict.fromkeys(range(40), 0))
    assert nothing.positions == [place for place in again.positions if place >= 40]


# Going on


def stopping(batches, after):
    for number, batch in enumerate(batches):
        if number == after:
            raise KeyboardInterrupt
        yield batch


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(collecting, "_PART_INPUTS", 16)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("size", [8, 11, 80])
def test_a_run_that_was_stopped_goes_on(network, inputs, taught, tmp_path, size):
    pool = inputs[120:]
    with pytest.raises(KeyboardInterrupt):
        nc.rank(taught, stopping(pool.split(8), 7), work=tmp_path / "work")
    ran = []
    hook = network.register_forward_hook(lambda module, args, output: ran.append(len(output)))
    queue = nc.rank(taught, pool.split(size), work=tmp_path / "work")
    again = nc.rank(taught, pool.split(size), work=tmp_path / "work")
    hook.remove()
    assert queue.positions == again.positions == nc.rank(taught, [pool]).positions
    # 48 inputs were there; the first batch is run in any case, to see what the model gives.
    assert sum(ran) <= 2 * size + 80 - 48 + size


@pytest.mark.usefixtures("small_parts")
def test_a_line_that_was_cut_off_is_dropped(inputs, taught, tmp_path):
    work, pool = tmp_path / "work", inputs[120:]
    expected = nc.rank(taught, pool.split(8), work=work).positions
    whole = work.read_bytes()
    work.write_bytes(whole[:-40])
    assert nc.rank(taught, pool.split(8), work=work).positions == expected
    assert len(work.read_bytes().splitlines()) == len(whole.splitlines())


@pytest.mark.usefixtures("small_parts")
def test_another_run_is_refused(network, inputs, taught, tmp_path):
    work, pool = tmp_path / "work", inputs[120:]
    nc.rank(taught, pool.split(8), work=work)
    with pytest.raises(MismatchError, match="among the first 16 inputs are others"):
        nc.rank(taught, pool.flip(0).split(8), work=work)
    with pytest.raises(InputError, match="has 80 inputs, and the data gave 40"):
        nc.rank(taught, pool[:40].split(8), work=work)
    with pytest.raises(MismatchError, match="another one"):
        nc.rank(taught, pool.split(8), work=work, traces=50)
    (tmp_path / "other").write_text("a poem\nof two lines\n")
    with pytest.raises(StateFileError, match="not a work file"):
        nc.rank(taught, pool.split(8), work=tmp_path / "other")


# Cost


def test_memory_is_at_most_64_bytes_an_input(network, inputs):
    """Counted by NumPy's own reports; ids are positions, which take nothing."""
    count = 200_000
    classes = network(inputs[:200]).argmax(1)
    labels = {position: int(classes[position]) + position % 2 for position in range(200)}
    batches = [inputs.repeat(10, 1)] * (count // 2000)
    for select, known in ((False, None), (True, None), (False, labels), (True, labels)):
        coverage, peak = nc.Coverage(network, [nc.NC()]), 0
        gc.collect()
        tracemalloc.start()
        if select:
            length = len(nc.select(coverage, batches, 50, training=[inputs[:120]], labels=known))
            assert length == 50
        else:
            length = len(nc.rank(coverage, batches, training=[inputs[:120]], labels=known))
            assert length == count - len(known or ())
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak / count < 64, (select, known is not None, peak / count)


def test_no_hook_is_left_behind(network, inputs, taught):
    nc.rank(taught, [inputs[120:]])
    with pytest.raises(KeyboardInterrupt):
        nc.rank(taught, stopping(inputs[120:].split(8), 2))
    assert not any(module._forward_hooks for module in network.modules())
