"""Recording by itself, with a stand-in for the device: what it records it runs once more at every replay."""

import pytest
import torch
from torch import nn

import neuralcov as nc
from neuralcov.core.records import flatten, map_tensors
from neuralcov.coverage import cuda_graph
from neuralcov.coverage.cuda_graph import GraphedUpdates
from neuralcov.coverage.graph_memory import write_state

CRITERIA = [nc.NC(0.4), nc.NLC(), nc.TKNC(1), nc.TKNP(1), nc.NLC(rule="all")]


def capture(self, work):
    """Stand for recording a graph: nothing is done when it is made, all of it at every replay, in the same places."""
    homes = {index: map_tensors(torch.clone, home) for index, home in self._homes.items()}
    found, shared = work()
    for index, home in homes.items():
        write_state(home, self._homes[index])

    def replay():
        capture.replays, capture.replaying = capture.replays + 1, True
        again, more = work()
        capture.replaying = False
        for name, outputs in again.layers.items():
            found.layers[name].copy_(outputs)
        for one, other in ((found.keys, again.keys), (found.predictions, again.predictions)):
            if one is not None:
                one.copy_(other)
        shared.update(more)
        found._shared.update(again._shared)

    return replay, (found, shared)


@pytest.fixture
def recorder(monkeypatch):
    capture.replays, capture.replaying = 0, False
    monkeypatch.setattr(GraphedUpdates, "_capture", capture)
    monkeypatch.setattr(cuda_graph, "against_model", lambda tap: None)
    monkeypatch.setattr(cuda_graph, "timed", quick_replays(0.5))
    return capture


def quick_replays(seconds):
    """Stand for a clock by which replays, which give nothing, take so long and plain calls one second."""

    def timed(device, work):
        found = work()
        return found, seconds if found is None else 1.0

    return timed


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 3))


def batches(*sizes):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(size, 4, generator=generator) for size in sizes]


def values(model, data, criteria=CRITERIA, **options):
    coverage = nc.Coverage(model, criteria, **options)
    with coverage.tap():
        for batch in data:
            coverage.update(batch)
    return coverage


@pytest.mark.parametrize("sizes", [[5] * 7, [5, 5, 5, 3, 5, 3, 3, 3, 5, 3]], ids=["equal", "uneven"])
def test_values_are_those_of_plain_calls(recorder, sizes):
    data = batches(*sizes)
    plain, auto = (values(network(), data, cuda_graph=rule) for rule in (False, "auto"))
    assert recorder.replays >= 5
    assert auto.values() == plain.values()
    assert auto.inputs == plain.inputs == sum(sizes)
    assert auto.has_runs_of(plain)
    for one, other in zip(auto.states, plain.states, strict=True):
        tensors = ({}, {})
        assert flatten(one, "", tensors[0]) == flatten(other, "", tensors[1])
        assert all(torch.equal(tensors[0][name], tensors[1][name]) for name in tensors[0])


def test_the_third_batch_of_a_shape_is_recorded_and_plain_calls_count(recorder):
    coverage, seen = nc.Coverage(network(), [nc.NC(0.4)]), []
    with coverage.tap():
        for batch in batches(5, 5, 5, 5):
            coverage.update(batch)
            seen.append(recorder.replays)
        told = coverage.explain()
    assert seen == [0, 0, 1, 2]
    assert told == "inputs (5, 4) float32: recorded, 1 batch replayed and 3 run by plain calls"
    assert coverage.explain() == told, "still told after the block"


def test_a_block_of_its_own_records_nothing(recorder):
    coverage = nc.Coverage(network(), [nc.NC(0.4)])
    for batch in batches(*[5] * 6):
        coverage.update(batch)
    assert not recorder.replays
    assert "no batch was run within a block" in coverage.explain()


class Counts(nn.Sequential):
    calls = 0

    def forward(self, inputs):
        self.calls += 1
        return super().forward(inputs * (1 if self.calls < 4 else -1))


class Keeps(nn.Sequential):
    def forward(self, inputs):
        self.last = inputs
        return super().forward(inputs)


class Writes(nn.Sequential):
    def __init__(self, *parts):
        super().__init__(*parts)
        self.register_buffer("total", torch.zeros(()))

    def forward(self, inputs):
        self.total += 1
        return super().forward(inputs)


class Collects(nn.Sequential):
    def __init__(self, *parts):
        super().__init__(*parts)
        self.seen = []

    def forward(self, inputs):
        self.seen.append(len(inputs))
        return super().forward(inputs)


class Draws(nn.Sequential):
    def forward(self, inputs):
        return super().forward(inputs + 0.0 * torch.rand(()))


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (Counts, "a pass changes 'calls' of the model"),
        (Keeps, "a pass changes 'last' of the model"),
        (Writes, "a pass changes 'total' of the model"),
        (Collects, "a pass changes 'seen' of the model"),
        (Draws, "a pass draws random numbers"),
    ],
)
def test_a_model_that_remembers_its_passes_is_not_recorded(recorder, kind, why):
    data, found = batches(*[5] * 6), []
    for rule in (False, "auto"):
        coverage = values(kind(*network()), data, cuda_graph=rule)
        found.append(coverage.values())
    assert found[0] == found[1]
    assert not recorder.replays
    assert why in coverage.explain()


def test_hooks_of_somebody_else_are_called_for_every_batch(recorder):
    model, called = network(), []
    model[0].register_forward_hook(lambda *_: called.append(1))
    coverage = values(model, batches(*[5] * 6))
    assert "module '0' has hooks of somebody else" in coverage.explain()
    assert not recorder.replays
    assert len(called) >= 6


def test_modules_in_training_mode_are_not_recorded(recorder):
    coverage = values(network().train(), batches(*[5] * 6), mode="keep")
    assert "is in training mode" in coverage.explain()
    assert not recorder.replays


class Hidden(nn.Sequential):
    """Decides by what Python alone knows, which no look at the model shows."""

    def forward(self, inputs):
        HIDDEN["passes"] += 1
        return super().forward(inputs * HIDDEN["passes"])


HIDDEN = {"passes": 0}


def test_a_replay_that_gives_other_numbers_is_not_used(recorder):
    found = []
    for rule in (False, "auto"):
        HIDDEN["passes"] = 0
        model = Hidden(*network())
        coverage = nc.Coverage(model, [nc.NC(0.4)], cuda_graph=rule)
        with coverage.tap():
            for batch in batches(*[5] * 6):
                coverage.update(batch)
        found.append(coverage)
    assert "a replay gave other outputs of layer '0' than plain calls" in found[1].explain()


def test_what_cannot_be_recorded_falls_back(recorder, monkeypatch):
    def refuses(self, work):
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    monkeypatch.setattr(GraphedUpdates, "_capture", refuses)
    data = batches(*[5] * 5)
    plain, auto = (values(network(), data, cuda_graph=rule) for rule in (False, "auto"))
    assert auto.values() == plain.values()
    assert "it cannot be recorded (operation not permitted when stream is capturing)" in auto.explain()
    with pytest.raises(nc.NeuralcovError, match="cannot be recorded as a CUDA graph"):
        values(network(), data, cuda_graph=True)


def test_a_busy_device_is_left_alone(recorder, monkeypatch):
    monkeypatch.setattr("neuralcov.coverage.pace.Pace.lag", lambda self: "the device is busy all the time")
    coverage = values(network(), batches(*[5] * 6))
    assert not recorder.replays
    assert "the device is busy all the time" in coverage.explain()


@pytest.mark.parametrize("seconds", [0.97, 1.5])
def test_a_replay_that_is_no_faster_than_plain_calls_is_not_used(recorder, monkeypatch, seconds):
    monkeypatch.setattr(cuda_graph, "timed", quick_replays(seconds))
    data = batches(*[5] * 6)
    plain, auto = (values(network(), data, cuda_graph=rule) for rule in (False, "auto"))
    told = f"recording would save nothing: a replay takes {1000 * seconds:.1f} ms, plain calls 1000.0 ms"
    assert told in auto.explain()
    assert recorder.replays == 2, "the second is timed again, since the first brings the recording to the device"
    assert auto.values() == plain.values()


class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, left, right, times=1):
        return self.one(left) * times + self.two(right)


def test_mappings_and_tuples_of_tensors_are_recorded(recorder):
    torch.manual_seed(0)
    model, data = Named(), batches(*[5] * 12)
    pairs = list(zip(data[::2], data[1::2], strict=True))
    for whole in ([{"left": a, "right": b, "times": 2} for a, b in pairs], pairs):
        recorder.replays = 0
        found = [values(model, whole, [nc.NC(0.4), nc.NLC()], cuda_graph=rule).values() for rule in (False, "auto")]
        assert found[0] == found[1]
        assert recorder.replays == 4


def test_reports_tell_of_neurons_with_recorded_updates_too(recorder):
    found = []
    for rule in (False, "auto", True):
        coverage = nc.Coverage(network(), [nc.NC(0.4)], cuda_graph=rule)
        coverage.assess(batches(*[5] * 40), progress=False)
        found.append(coverage.results().neurons)
    assert recorder.replays > 60
    assert found[0]
    assert found[0] == found[1] == found[2]


def test_snapshots_merges_and_resets_on_the_way(recorder):
    data, found = batches(*[5] * 12), []
    for rule in (False, "auto"):
        coverage = nc.Coverage(network(), CRITERIA, cuda_graph=rule)
        with coverage.tap():
            for batch in data[:6]:
                coverage.update(batch)
            kept, middle = coverage.snapshot(), coverage.values()
            for batch in data[6:]:
                coverage.update(batch)
            last = coverage.values()
            coverage.restore(kept)
            assert coverage.values() == middle
            coverage.reset()
            for batch in data[6:]:
                coverage.update(batch)
        found.append((middle, last, coverage.values()))
    assert found[0] == found[1]


def test_only_three_answers_are_taken():
    with pytest.raises(nc.NeuralcovError, match="cuda_graph='sometimes': expected 'auto', True or False"):
        nc.Coverage(network(), [nc.NC()], cuda_graph="sometimes")


def test_a_cpu_is_told(recorder, monkeypatch):
    monkeypatch.undo()
    coverage = values(network(), batches(5, 5, 5, 5))
    assert coverage.explain() == "updates are plain calls: the model is on a CPU, and only a GPU records"
    assert nc.Coverage(network(), [nc.NC()], cuda_graph=False).explain() == "updates are plain calls: cuda_graph=False"
    bare = nc.Coverage.of_layers({"fc": 3}, [nc.NC()])
    assert bare.explain() == "updates are plain calls: this coverage has no model to run"


class Rounds(nn.Sequential):
    """Gives numbers in a replay that are off by a factor."""

    def forward(self, inputs):
        return super().forward(inputs * (RoundsBy.factor if capture.replaying else 1.0))


class RoundsBy:
    factor = 1.0


@pytest.mark.parametrize("factor", [1 + 3e-7, 1.01], ids=["rounding", "other"])
def test_a_replay_that_rounds_otherwise_is_used(recorder, monkeypatch, factor):
    """A sum added up in another order is no reason for plain calls; other numbers are."""
    monkeypatch.setattr(RoundsBy, "factor", factor)
    plain, auto = (values(Rounds(*network()), batches(*[5] * 9), cuda_graph=rule) for rule in (False, "auto"))
    if factor < 1.001:
        assert auto.explain().endswith(
            "6 batches replayed and 3 run by plain calls; a replay rounds some outputs otherwise"
        )
    else:
        assert "a replay gave other outputs of layer '0' than plain calls" in auto.explain()
    assert auto.values() == pytest.approx(plain.values(), rel=1e-5)


class Loses(nc.NC):
    """Loses in a replay what it observes."""

    def observe(self, state, batch, *, donate=False):
        return state if capture.replaying else super().observe(state, batch, donate=donate)


def test_a_replay_that_rounds_otherwise_must_observe_what_it_gave(recorder, monkeypatch):
    monkeypatch.setattr(RoundsBy, "factor", 1 + 3e-7)
    coverage = values(Rounds(*network()), batches(*[5] * 9), [Loses(0.4)])
    assert "a replay gave another state of Loses" in coverage.explain()
