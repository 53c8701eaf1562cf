"""On a GPU: updates that are recorded as CUDA graphs, and what is told of them."""

import warnings

import pytest
import torch
from torch import nn

import neuralcov as nc
from tests.gpu_support import FIXED, small_network

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


RECORDED = [
    *FIXED[:-1],
    nc.TKNP(2),
    nc.LCC(),
    nc.LCC(over="mean", resolution=0.2, directions=3),
    nc.CC(1),
    nc.SS(),
    nc.DSC(0.1),
]


@pytest.mark.parametrize("batches", [[8] * 5, [8, 8, 8, 3, 8, 8, 3, 3, 8]], ids=["equal", "uneven"])
def test_recorded_updates_give_the_same_numbers(batches):
    images = torch.randn(sum(batches) + 64, 3, 12, 12, generator=torch.Generator().manual_seed(1)).cuda()
    found = []
    for recorded in (False, True):
        coverage = nc.Coverage(small_network(), RECORDED, cuda_graph=recorded)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", nc.CoverageWarning)
            coverage.calibrate(images[:64].split(16))
            with coverage.tap():
                parts = images[64:].split(batches)
                for part in parts[:3]:
                    coverage.update(part)
                kept = coverage.snapshot()
                for part in parts[3:]:
                    coverage.update(part)
                last = coverage.values()
                gain = {name: values.cpu() for name, values in coverage.gain(images[:7]).items()}
                coverage.restore(kept)
                middle = coverage.values()
                for part in parts[3:]:
                    coverage.update(part)
                again = coverage.values()
                coverage.reset()
                coverage.assess(parts, progress=False)
        found.append((last, middle, again, coverage.values(), gain))
    plain, recorded = found
    for expected, values in zip(plain[:4], recorded[:4], strict=True):
        assert values == pytest.approx(expected, rel=1e-9)
    for name, values in plain[4].items():
        torch.testing.assert_close(recorded[4][name], values, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("together", [True, False], ids=["together", "alone"])
@pytest.mark.filterwarnings("ignore::neuralcov.core.errors.CoverageWarning")
def test_recording_by_itself_changes_no_number(together):
    """To the last bit, whatever was asked for; and it does record."""
    images = torch.randn(64 + 13 * 8, 3, 12, 12, generator=torch.Generator().manual_seed(1)).cuda()
    images[120, 0, 3, 3] = torch.nan
    for chosen in [RECORDED] if together else [[criterion] for criterion in RECORDED]:
        model, found = small_network().eval(), []
        for rule in (False, "auto"):
            coverage = nc.Coverage(model, chosen, cuda_graph=rule)
            coverage.calibrate(images[:64].split(16))
            coverage.assess(images[64:].split(8), progress=False)
            found.append((coverage.values(), coverage.findings(), coverage.results().neurons))
        assert "10 batches replayed and 3 run by plain calls" in coverage.explain(), coverage.explain()
        assert found[0] == found[1]


def test_what_speaks_against_recording_is_told():
    class Looks(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 3)

        def forward(self, inputs):
            return self.fc(inputs) if float(inputs.sum()) > 0 else self.fc(-inputs)

    inputs = torch.randn(8, 2, 4, device="cuda")
    for model, why in (
        (Looks().cuda(), "it cannot be recorded"),
        (nn.Sequential(nn.Linear(4, 3), Noise()).cuda(), "a pass draws random numbers"),
    ):
        coverage = nc.Coverage(model.eval(), [nc.NC(), nc.NLC()])
        coverage.assess(inputs.unbind(), progress=False)
        assert why in coverage.explain()
        assert coverage.inputs == 16
    assert torch.randn(2, device="cuda").isfinite().all(), "random numbers are there"
    nc.Coverage(small_network(), [nc.NC()]).update(torch.ones(2, 3, 12, 12, device="cuda"))


class Noise(nn.Module):
    def forward(self, inputs):
        return inputs + torch.randn_like(inputs)


def test_a_busy_device_gains_nothing_by_recording():
    model = nn.Sequential(*[nn.Linear(8192, 8192) for _ in range(6)]).cuda()
    coverage = nc.Coverage(model, [nc.NC()])
    coverage.assess([torch.randn(4096, 8192, device="cuda")] * 8, progress=False)
    # By the pace of Python and the device, or by a replay's time.
    assert "recording would save nothing" in coverage.explain()


class Stops(nc.TKNP):
    """Breaks off at the third batch, after a recording has overwritten the other criterion's state."""

    seen = 0

    def observe(self, state, batch, *, donate=False):
        Stops.seen += 1
        if Stops.seen == 3:
            raise KeyboardInterrupt
        return super().observe(state, batch, donate=donate)


def test_an_interrupted_recording_leaves_no_state_that_looks_right():
    images = torch.randn(40, 3, 12, 12, generator=torch.Generator().manual_seed(1)).cuda()
    coverage = nc.Coverage(small_network(), [nc.NLC(rule="all"), Stops(2)], cuda_graph=True)
    with coverage.tap():
        coverage.update(images[:8])
        coverage.update(images[8:16])
        kept, values = coverage.snapshot(), coverage.values()
        with pytest.raises(KeyboardInterrupt):
            coverage.update(images[16:24])
        # The snapshot was copied out of the graph's tensors, and the coverage went on from that copy.
        assert coverage.values() == values
        coverage.update(images[16:24])
        Stops.seen = 2
        with pytest.raises(KeyboardInterrupt):
            coverage.update(images[24:32])
        with pytest.raises(nc.NeuralcovError, match="an update was interrupted"):
            coverage.values()
        coverage.restore(kept)
        assert coverage.values() == values


def test_recorded_values_follow_every_update():
    images = torch.randn(104, 3, 12, 12, generator=torch.Generator().manual_seed(1)).cuda()
    found = []
    for recorded in (False, True):
        coverage = nc.Coverage(small_network(), [nc.LVC(), nc.NLC()], cuda_graph=recorded)
        with warnings.catch_warnings(), coverage.tap():
            warnings.simplefilter("ignore", nc.CoverageWarning)
            coverage.calibrate(images[:64].split(16))
            values = []
            for part in images[64:].split(8):
                coverage.update(part)
                values.append(coverage.values())
        found.append(values)
    for plain, recorded_values in zip(*found, strict=True):
        assert recorded_values == pytest.approx(plain, rel=1e-9)


def test_what_a_recording_overwrites_is_copied_before_it_is_kept():
    images = torch.randn(64, 3, 12, 12, generator=torch.Generator().manual_seed(1)).cuda()
    coverage = nc.Coverage(small_network(), [nc.NLC(), nc.NLC(rule="all"), nc.NC(), nc.TKNP(2)], cuda_graph=True)
    with coverage.tap():
        for start in (0, 8, 16):
            coverage.update(images[start : start + 8])
        for keep in (lambda: coverage.snapshot(), lambda: coverage + 0):
            values, kept = coverage.values(), keep()
            for action in (
                lambda: coverage.admit(images[:8], min_gain=1e9),
                lambda: coverage.admit(images[24:32], min_gain=-1e9),
                lambda: coverage.propose(images[32:40]).commit(),
                lambda: coverage.update(images[40:48]),
            ):
                action()
                coverage.update(images[48:56] * 9)
                again = kept if isinstance(kept, nc.Coverage) else None
                if again is None:
                    coverage.restore(kept)
                    again = coverage
                assert again.values() == values


def test_what_cannot_be_recorded_is_said():
    class Looks(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 3)

        def forward(self, inputs):
            return self.fc(inputs) if float(inputs.sum()) > 0 else self.fc(-inputs)

    coverage = nc.Coverage(Looks().cuda(), [nc.NC()], cuda_graph=True)
    inputs = torch.ones(3, 2, 4, device="cuda")
    with pytest.raises(nc.NeuralcovError, match="cannot be recorded as a CUDA graph"):
        coverage.assess(inputs.unbind(), progress=False)
    assert torch.randn(2, device="cuda").isfinite().all(), "random numbers are there again"
    nc.Coverage(small_network(), [nc.NC()]).update(torch.ones(2, 3, 12, 12, device="cuda"))


def test_recorded_updates_carry_the_keys_of_their_own_inputs():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)).cuda()
    coverage, plain = (nc.Coverage(model, [nc.NLC(rule="all")], cuda_graph=graph) for graph in (True, False))
    with coverage.tap():
        for _ in range(4):
            inputs = torch.randn(16, 3, 8, 8, device="cuda")
            coverage.update(inputs)
            plain.update(inputs)
    assert coverage.inputs == 64
    # A run is known by the sum of its inputs' keys.
    assert coverage.has_runs_of(plain)


@pytest.mark.parametrize("criteria", [[nc.LCC(), nc.KMNC(10)], [nc.NC()]], ids=["wanted", "not wanted"])
@pytest.mark.filterwarnings("ignore::neuralcov.core.errors.CoverageWarning")
def test_sanity_is_the_same_with_recorded_updates(criteria):
    model = small_network().eval()
    x = torch.randn(640, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        y = model(x.cuda()).argmax(1).cpu()
    x[600:] = x[:40]
    y[::3] = 0
    found = []
    for recorded in (True, False):
        coverage = nc.Coverage(model, criteria, cuda_graph=recorded)
        coverage.calibrate([(x[i : i + 64], y[i : i + 64]) for i in range(0, 640, 64)])
        coverage.assess([(x[i : i + 64], y[i : i + 64]) for i in range(0, 640, 64)])
        found.append(coverage.sanity())
    assert found[0] == found[1]
    assert found[0].duplicates == 40
    assert found[0].judged == 640
