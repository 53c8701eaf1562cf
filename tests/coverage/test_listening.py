"""Listening to passes that somebody else makes: the values of ``assess`` to the bit, and nothing run for them."""

import gc
import threading
import warnings
from datetime import date

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import neuralcov as nc
from neuralcov.core.criterion import Criterion
from neuralcov.core.find_criterion import criterion_class
from neuralcov.core.records import flatten
from neuralcov.criteria import ALL
from neuralcov.results.gate import judge_gate
from neuralcov.results.policy import Policy
from neuralcov.testing.cases import equal_bits

SETTINGS = {
    "NLC": [nc.NLC(), nc.NLC(rule="all"), nc.NLC(classes=3)],
    "LVC": [nc.LVC(), nc.LVC(groups=4)],
    "NPC": [nc.NPC(clusters=2, buckets=7)],
    "DSC": [nc.DSC(0.1), nc.DSC(0.2, by="label")],
    "CC": [nc.CC(1)],
    "LCC": [nc.LCC(), nc.LCC(over="mean")],
}
pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")

CRITERIA = [criterion for cls in ALL for criterion in SETTINGS.get(cls.__name__, [cls()])]


class Net(nn.Module):
    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.5)
        self.fc1, self.fc2 = nn.Linear(16, 8), nn.Linear(8, 3)

    def forward(self, x):
        x = torch.relu_(self.norm(self.conv(x)))
        x = nn.functional.adaptive_avg_pool2d(x, 2).flatten(1)
        return self.fc2(torch.relu_(self.drop(self.fc1(x))))


class Sometimes(nn.Module):
    """Passes by a layer where all inputs are negative."""

    def __init__(self):
        super().__init__()
        self.fc1, self.extra, self.fc2 = nn.Linear(5, 4), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        hidden = self.fc1(x)
        return self.fc2(self.extra(hidden) if bool((x > 0).any()) else hidden)


@pytest.fixture
def net():
    return Net().eval()


@pytest.fixture
def loader():
    numbers = torch.Generator().manual_seed(1)
    images = torch.randn(70, 1, 8, 8, generator=numbers)
    return DataLoader(TensorDataset(images, torch.arange(70) % 3), batch_size=20)


@pytest.fixture
def training():
    numbers = torch.Generator().manual_seed(2)
    images = torch.randn(120, 1, 8, 8, generator=numbers)
    return DataLoader(TensorDataset(images, torch.arange(120) % 3), batch_size=30)


def calibrated(net, criteria, training):
    coverage = nc.Coverage(net, criteria)
    coverage.calibrate(training)
    return coverage


def run(net, loader, coverage=None):
    """What a user's own evaluation does."""
    outputs = []
    with torch.no_grad():
        for images, labels in loader:
            outputs.append(net(images))
            if coverage is not None:
                coverage.labels(labels)
    return torch.cat(outputs)


def listen_to(coverage, *steps, **options):
    """Take steps within a block."""
    with coverage.listen(**options):
        for step in steps:
            step()


def forward_hooks(model):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def same_states(one, other):
    """Whether two coverages have equal states, to the bit."""
    ours, theirs = {}, {}
    for left, right in zip(one._measurement.collection.states, other._measurement.collection.states, strict=True):
        if flatten(left, type(left).__name__, ours) != flatten(right, type(right).__name__, theirs):
            return False
    return ours.keys() == theirs.keys() and all(equal_bits(ours[path], theirs[path]) for path in ours)


def test_every_criterion_of_the_registry_is_heard_below():
    found = [criterion_class(name) for name in list(Criterion.known)]
    shipped = {cls.__name__ for cls in found if cls is not None and cls.__module__.startswith("neuralcov.")}
    assert {type(criterion).__name__ for criterion in CRITERIA} == shipped


@pytest.mark.parametrize("criterion", CRITERIA, ids=lambda criterion: criterion.name)
def test_values_equal_those_of_assess_to_the_bit(net, loader, training, criterion):
    assessed, heard = (calibrated(net, [criterion], training) for _ in range(2))
    assessed.assess(loader)
    with heard.listen() as block:
        run(net, loader, heard)
    assert heard.values() == assessed.values()
    assert any(value > 0 for value in heard.values().values())
    assert same_states(heard, assessed)
    assert heard.details() == assessed.details()
    assert (block.passes, block.inputs, heard.inputs) == (4, 70, 70)
    assert heard.by_layer() == assessed.by_layer()
    assert heard.sanity() == assessed.sanity()


def test_all_criteria_at_once(net, loader, training):
    assessed, heard = (calibrated(net, CRITERIA, training) for _ in range(2))
    assessed.assess(loader)
    with heard.listen():
        run(net, loader, heard)
    assert heard.values() == assessed.values()
    assert same_states(heard, assessed)


def test_values_equal_those_of_assess_with_ordinary_gradients_on(net, loader, training):
    """A user who forgets ``no_grad`` gets the same values, and the gradients that he would have had."""
    heard, assessed = (calibrated(net, [nc.NLC(), nc.SNAC(), nc.LCC()], training) for _ in range(2))
    assessed.assess(loader)
    with heard.listen():
        for images, labels in loader:
            net(images)
            heard.labels(labels)
    assert heard.values() == assessed.values()


def test_nothing_is_run_for_it(net, loader, training):
    calls = []
    net.register_forward_hook(lambda *_: calls.append("net"))
    net.fc1.register_forward_hook(lambda *_: calls.append("fc1"))
    coverage = calibrated(net, [nc.NLC(), nc.SNAC(), nc.DSC(0.1)], training)
    calls.clear()
    with coverage.listen():
        run(net, loader)
    assert calls == ["fc1", "net"] * len(loader)
    coverage.values()
    assert len(calls) == 2 * len(loader)


def test_no_probe_even_where_nothing_is_known_of_the_rows(net, loader):
    calls = []
    net.register_forward_hook(lambda *_: calls.append(1))
    with nc.watch(net, [nc.NC()]) as coverage:
        run(net, loader)
    assert len(calls) == len(loader)
    assert coverage.inputs == 70


def test_outputs_and_gradients_are_as_without(loader):
    """A step of training within the block gives the weights that it gives outside of it."""

    def step(model, listen):
        torch.manual_seed(7)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        images, labels = next(iter(loader))
        model.train()
        optimiser.zero_grad()
        if listen:
            with nc.watch(model, [nc.NLC(), nc.NC(), nc.TKNC()]) as coverage:
                loss = nn.functional.cross_entropy(model(images), labels)
                loss.backward()
            assert coverage.inputs == 20
        else:
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
        optimiser.step()
        return loss

    one, other = Net(), Net()
    assert torch.equal(step(one, True), step(other, False))
    for ours, theirs in zip(one.state_dict().values(), other.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs)
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_modes_stay_as_they_are(net, loader):
    net.train()
    net.norm.eval()
    inside = []
    net.drop.register_forward_hook(lambda module, *_: inside.append(module.training))
    before = [module.training for module in net.modules()]
    with nc.watch(net, [nc.NC()]) as coverage:
        run(net, loader)
        assert [module.training for module in net.modules()] == before
    assert inside == [True] * len(loader)
    assert [module.training for module in net.modules()] == before
    assert coverage.inputs == 70


def test_grad_mode_is_seen_by_the_model_as_it_was(net, loader):
    modes = []
    net.fc1.register_forward_hook(lambda *_: modes.append((torch.is_grad_enabled(), torch.is_inference_mode_enabled())))
    images, _ = next(iter(loader))
    with nc.watch(net, [nc.NC()]) as coverage:
        assert net(images).requires_grad
        with torch.no_grad():
            assert not net(images).requires_grad
        with torch.inference_mode():
            assert net(images).is_inference()
    assert modes == [(True, False), (False, False), (False, True)]
    assert coverage.inputs == 60
    coverage.update(images)


def test_autocast_of_the_user_is_heard_and_left_alone(net, loader):
    images, _ = next(iter(loader))
    seen = []
    net.fc1.register_forward_hook(lambda *_: seen.append(torch.is_autocast_enabled("cpu")))
    assessed, heard = (nc.Coverage(net, [nc.NLC(), nc.NC()]) for _ in range(2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assessed.update(images)
        seen.clear()
        with heard.listen(), torch.no_grad():
            output = net(images)
            assert torch.is_autocast_enabled("cpu")
    assert seen == [True]
    assert output.dtype == torch.bfloat16
    assert heard.values() == assessed.values()
    plain = nc.Coverage(net, [nc.NLC(), nc.NC()])
    plain.update(images)
    assert heard.values() != plain.values()


def test_labels_belong_to_the_pass_before(net, loader, training):
    """Each pass has its own: given out of order they would make other classes."""
    by_class = nc.Coverage(net, [nc.NLC(classes=3)])
    with by_class.listen():
        run(net, loader, by_class)
    assessed = nc.Coverage(net, [nc.NLC(classes=3)])
    assessed.assess(loader)
    assert by_class.values() == assessed.values()
    assert by_class.sanity().accuracy == assessed.sanity().accuracy


def test_labels_that_are_wrong(net, loader):
    images, labels = next(iter(loader))
    coverage = nc.Coverage(net, [nc.NLC(classes=3)])
    with pytest.raises(nc.NeuralcovError, match="labels without a block that listens"):
        coverage.labels(labels)

    def one_pass():
        net(images)

    def label():
        coverage.labels(labels)

    with pytest.raises(nc.NeuralcovError, match="labels before the first pass"):
        listen_to(coverage, label)
    with pytest.raises(nc.NeuralcovError, match="3 labels for 20 inputs"):
        listen_to(coverage, one_pass, lambda: coverage.labels(labels[:3]))
    with pytest.raises(nc.NeuralcovError, match="labels are given twice"):
        listen_to(coverage, one_pass, label, label)
    with pytest.raises(nc.NeuralcovError, match="needs labels: call labels"):
        listen_to(coverage, one_pass, one_pass)
    assert forward_hooks(net) == 0


class Loss(nn.Module):
    """Is called as models of transformers are: with the labels, and gives a loss with the logits."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.fc1, self.fc2 = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, features, labels=None):
        logits = self.fc2(torch.relu(self.fc1(features)))
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return {"logits": logits} if loss is None else {"loss": loss, "logits": logits}


@pytest.mark.parametrize("positional", [False, True])
def test_labels_of_the_call_with_the_loss(positional):
    features = torch.randn(30, 6, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(30) % 3
    net = Loss().eval()
    options = {"predict": lambda output: output["logits"].argmax(1)}
    heard, assessed = (nc.Coverage(net, [nc.NLC(classes=3), nc.TKNC(1)], **options) for _ in range(2))
    with heard.listen():
        for rows in (slice(0, 20), slice(20, 30)):
            batch = {"features": features[rows], "labels": labels[rows]}
            loss = net(batch["features"], labels=batch["labels"]) if positional else net(**batch)
            loss["loss"].backward()
    assessed.assess([{"features": features[:20], "labels": labels[:20]}, (features[20:], labels[20:])])
    assert heard.values() == assessed.values()
    assert heard.sanity().accuracy == assessed.sanity().accuracy


def test_passes_that_skip_layers_are_allowed_and_reported():
    torch.manual_seed(0)
    net = Sometimes().eval()
    inputs = torch.randn(30, 5)
    batches = [inputs[:10], -inputs[10:20].abs(), inputs[20:]]
    heard, assessed = (nc.Coverage(net, [nc.TKNC(1), nc.NLC(rule="all")]) for _ in range(2))
    with heard.listen() as block:
        for batch in batches:
            net(batch)
    assessed.assess(batches)
    assert heard.values() == assessed.values()
    assert block.skipped == {"extra": 1}
    said = [str(finding) for finding in heard.findings() if finding.criterion == "listening"]
    assert said == ["listening: 1 pass without a call of 'extra', whose neurons count as not covered by them"]


def test_passes_in_training_mode_are_reported(net, loader):
    net.train()
    coverage = nc.Coverage(net, [nc.NC()])
    with pytest.warns(nc.CoverageWarning, match="4 passes in training mode"):
        listen_to(coverage, lambda: run(net, loader))
    assert any("training mode" in str(finding) for finding in coverage.findings())
    coverage.reset()
    assert not coverage.findings()


def test_a_layer_that_no_pass_reached_is_not_covered_and_named():
    torch.manual_seed(0)
    net = Sometimes().eval()
    coverage = nc.Coverage(net, [nc.TKNC(4)])
    with pytest.warns(nc.CoverageWarning, match="3 passes without a call of 'extra'"):
        listen_to(coverage, *3 * [lambda: net(-torch.rand(4, 5))])
    # 4 + 2 of the 10 neurons.
    assert coverage.values() == {"TKNC(4)": 0.6}
    assert {row.layer: row.values["TKNC(4)"] for row in coverage.by_layer()} == {"fc1": 1.0, "extra": 0.0, "fc2": 1.0}


def test_several_models_in_nested_blocks(loader, training):
    nets = [Net(0).eval(), Net(1).eval()]
    heard = [calibrated(net, [nc.SNAC(), nc.NLC()], training) for net in nets]
    assessed = [calibrated(net, [nc.SNAC(), nc.NLC()], training) for net in nets]
    for one in assessed:
        one.assess(loader)
    with heard[0].listen() as first, heard[1].listen() as second:
        for images, _ in loader:
            nets[0](images)
            nets[1](images)
            nets[1](images[:0])
    assert (first.passes, second.passes) == (4, 8)
    assert [one.values() for one in heard] == [one.values() for one in assessed]


def test_a_model_within_another(loader):
    """A student that calls its teacher: each is heard for itself."""

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.teacher, self.student = Net(0), nn.Linear(64, 3)

        def forward(self, x):
            return self.student(x.flatten(1)) + self.teacher(x)

    both = Both().eval()
    outer, inner = nc.Coverage(both, [nc.TKNC(1)]), nc.Coverage(both.teacher, [nc.TKNC(1)])
    with outer.listen() as around, inner.listen() as within:
        run(both, loader)
    alone = nc.Coverage(both.teacher, [nc.TKNC(1)])
    alone.assess(loader)
    assert inner.values() == alone.values()
    assert (around.passes, within.passes) == (4, 4)
    assert list(outer.by_layer()[0].values) == ["TKNC(1)"]


def test_two_coverages_of_one_model(net, loader, training):
    one, other = (calibrated(net, criteria, training) for criteria in ([nc.SNAC()], [nc.NLC(), nc.LCC()]))
    both = calibrated(net, [nc.SNAC(), nc.NLC(), nc.LCC()], training)
    both.assess(loader)
    with one.listen(), other.listen():
        run(net, loader)
    assert {**one.values(), **other.values()} == both.values()


@pytest.mark.filterwarnings("ignore:.*torch.compile.*")
@pytest.mark.parametrize("whole", [True, False])
def test_compiled_models(net, loader, training, whole):
    heard, assessed = (calibrated(net, [nc.SNAC(), nc.NLC()], training) for _ in range(2))
    assessed.assess(loader)
    compiled = torch.compile(net, backend="eager")
    if whole:
        heard = calibrated(compiled, [nc.SNAC(), nc.NLC()], training)
    run(compiled, loader)  # it has its code by now
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(2):
            heard.reset()
            with heard.listen():
                run(compiled, loader)
    assert heard.values() == assessed.values()
    assert sum("its original module runs" in str(one.message) for one in said) == (2 if whole else 0)


def test_a_model_compiled_in_place(net, loader):
    assessed = nc.Coverage(net, [nc.NLC()])
    assessed.assess(loader)
    net.compile(backend="eager")
    run(net, loader)
    heard = nc.Coverage(net, [nc.NLC()])
    with pytest.warns(nc.CoverageWarning, match="the model is compiled"), heard.listen():
        run(net, loader)
    assert heard.values() == assessed.values()
    assert net._compiled_call_impl is not None
    run(net, loader)


def test_hooks_are_gone_after_an_exception(net, loader):
    images, _ = next(iter(loader))
    coverage = nc.Coverage(net, [nc.NC()])
    with pytest.raises(ZeroDivisionError):
        listen_to(coverage, lambda: net(images), lambda: net(images[:5]), lambda: 1 / 0)
    assert forward_hooks(net) == 0
    # All passes but the last were observed.
    assert coverage.inputs == 20
    with coverage.listen():
        net(images)
    assert coverage.inputs == 40


def test_a_pass_that_raises_is_counted_and_not_observed(net, loader):
    images, _ = next(iter(loader))
    coverage = nc.Coverage(net, [nc.NC()])
    with coverage.listen() as block:
        with pytest.raises(RuntimeError):
            net(torch.zeros(2, 7, 8, 8))
        net(images)
        with pytest.raises(RuntimeError):
            net(torch.zeros(2, 7, 8, 8))
    assert (block.failed, block.passes, coverage.inputs) == (2, 1, 20)
    assert forward_hooks(net) == 0


def test_an_interruption_within_a_pass(net, loader):
    images, _ = next(iter(loader))
    coverage = nc.Coverage(net, [nc.NC()])

    def interrupt(*_):
        raise KeyboardInterrupt

    with coverage.listen():
        handle = net.fc2.register_forward_pre_hook(interrupt)
        with pytest.raises(KeyboardInterrupt):
            net(images)
        handle.remove()
        net(images)
    assert coverage.inputs == 20
    assert forward_hooks(net) == 0


def test_a_block_without_a_pass_is_an_error(net):
    coverage = nc.Coverage(net, [nc.NC()])
    with pytest.raises(nc.NeuralcovError, match="no pass of the model was heard"), coverage.listen():
        pass
    assert coverage.inputs == 0
    assert forward_hooks(net) == 0


def test_calls_of_parts_alone_are_counted_and_not_heard(net, loader):
    images, _ = next(iter(loader))
    coverage = nc.Coverage(net, [nc.NC()])
    with pytest.raises(nc.NeuralcovError, match="'conv' were called, but not by the model itself"), coverage.listen():
        net.conv(images)
    with coverage.listen() as block:
        net.conv(images)
        net(images)
        net.fc1(torch.zeros(3, 16))
        net.fc1(torch.zeros(3, 16))
    assert block.outside == {"conv": 1, "fc1": 2}
    assert coverage.inputs == 20


def test_checkpointed_layers_run_again_for_gradients_are_not_counted(net, loader):
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.fc1, self.fc2 = nn.Linear(6, 8), nn.Linear(8, 3)

        def forward(self, x):
            return self.fc2(checkpoint(self.fc1, x, use_reentrant=False))

    model, inputs = Checkpointed().eval(), torch.randn(9, 6, requires_grad=True)
    with nc.watch(model, [nc.TKNC(1)]) as coverage:
        model(inputs).sum().backward()
    assert coverage.inputs == 9
    assert coverage._measurement.heard.outside == {}
    alone = nc.Coverage(model, [nc.TKNC(1)])
    alone.update(inputs)
    assert coverage.values() == alone.values()


def test_a_block_within_itself_and_assess_within_it_are_refused(net, loader):
    coverage = nc.Coverage(net, [nc.NC()])
    images, _ = next(iter(loader))
    with coverage.listen():
        net(images)
        with pytest.raises(nc.NeuralcovError, match="listening already"), coverage.listen():
            pass
        with pytest.raises(nc.NeuralcovError, match="listens to the passes that others make"):
            coverage.assess(loader)
        twin = coverage.fork()
        twin.assess(loader)
    assert coverage.inputs == 20
    assert twin.inputs == 70


def test_another_threads_passes_come_one_after_the_other(net, loader):
    coverage = nc.Coverage(net, [nc.NC(), nc.NLC(rule="all")])
    with coverage.listen() as block:
        threads = [threading.Thread(target=run, args=(net, loader)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (block.passes, block.inputs, coverage.inputs) == (8, 140, 140)
    assert forward_hooks(net) == 0


def test_weights_that_change_between_passes_are_refused(net, loader):
    coverage = nc.Coverage(net, [nc.NC()])
    images, _ = next(iter(loader))

    @torch.no_grad()
    def change():
        net.fc1.weight.mul_(1.01)

    with pytest.raises(nc.NeuralcovError, match="the weights changed"):
        listen_to(coverage, lambda: net(images), change, lambda: net(images))
    assert forward_hooks(net) == 0


def test_calibrating_by_listening_equals_calibrating(net, loader, training):
    criteria = [nc.SNAC(), nc.LCC(), nc.LVC(), nc.DSC(0.1, by="label")]
    taught, heard = (nc.Coverage(net, criteria) for _ in range(2))
    taught.calibrate(training)
    with heard.listen(calibrate=True):
        run(net, training, heard)
    assert heard.calibration_ids() == taught.calibration_ids()
    assert heard.inputs == 0
    for coverage in (taught, heard):
        coverage.assess(loader)
    assert heard.values() == taught.values()
    with pytest.raises(nc.NeuralcovError, match="calibrate comes before the first update"):
        listen_to(heard, lambda: run(net, training), calibrate=True)


def test_the_short_form(net, loader, training):
    with nc.watch(net, [nc.NLC(), nc.TKNC(2)], layers="fc*") as coverage:
        run(net, loader, coverage)
    assessed = nc.Coverage(net, [nc.NLC(), nc.TKNC(2)], layers="fc*")
    assessed.assess(loader)
    assert coverage.values() == assessed.values()
    assert coverage.sanity() == assessed.sanity()


def test_nothing_is_kept_alive(net, loader):
    import weakref

    images, _ = next(iter(loader))
    coverage = nc.Coverage(net, [nc.NC()])
    kept = []
    net.conv.register_forward_hook(lambda module, args, output: kept.append(weakref.ref(output)))
    with coverage.listen():
        net(images)
        gc.collect()
        assert kept[0]() is None


def test_results_of_a_heard_suite_are_saved_and_merged(net, loader, training, tmp_path):
    heard, assessed = (calibrated(net, [nc.SNAC(), nc.LCC()], training) for _ in range(2))
    with heard.listen():
        run(net, loader, heard)
    heard.save(tmp_path / "heard.ncov")
    loaded = nc.Coverage.load(tmp_path / "heard.ncov", net)
    assert loaded.values() == heard.values()
    assessed.assess(loader)
    # The same inputs have the same keys, however they were measured.
    with pytest.raises(nc.NeuralcovError, match="of 70 inputs is in both"):
        loaded.merge(assessed, overlap="allow")


def trained_calibration(net, training):
    """A coverage that has learnt from the last epoch of a training."""
    coverage = nc.Coverage(net, [nc.SNAC(), nc.LCC()])
    optimiser = torch.optim.SGD(net.parameters(), lr=0.01)
    with coverage.listen(calibrate=True):
        for images, labels in training:
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(images), labels).backward()
            optimiser.step()
    return coverage


def alarms(coverage):
    return [alarm.name for alarm in coverage.results().sanity.alarms]


def test_a_calibration_heard_while_weights_move_is_marked_and_no_gate_is_met(net, loader, training, tmp_path):
    coverage = trained_calibration(net.train(), training)
    net.eval()
    coverage.assess(loader)
    assert coverage.provenance()["calibration"]["weights"] == "moving"
    verdict = judge_gate(coverage.results(), Policy(least={"SNAC": 0.0}), date.today())
    assert not verdict.met
    assert "weights that changed" in next(c.sentence for c in verdict.checks if c.name == "alarm:moving calibration")
    # It serves the weights at its end, and files remember it.
    coverage.save(tmp_path / "suite.ncov")
    coverage.save_calibration(tmp_path / "train.ncal")
    for model in (net, None):
        assert "moving calibration" in alarms(nc.Coverage.load(tmp_path / "suite.ncov", model))
    taught = nc.Coverage(net, [nc.SNAC(), nc.LCC()])
    taught.calibrate(tmp_path / "train.ncal")
    taught.assess(loader)
    assert taught.values() == coverage.values()
    assert "moving calibration" in alarms(taught)
    taught.save(tmp_path / "again.ncov")
    assert "moving calibration" in alarms(nc.Coverage.load(tmp_path / "again.ncov", net))
    with torch.no_grad():
        net.fc1.weight.mul_(1.01)
    coverage.reset()
    with pytest.raises(nc.NeuralcovError, match="the calibration was made with weights"):
        coverage.assess(loader)


def test_a_calibration_at_rest_is_not_marked(net, loader, training, tmp_path):
    coverage = nc.Coverage(net, [nc.SNAC(), nc.LCC()])
    with coverage.listen(calibrate=True):
        run(net, training, coverage)
    coverage.assess(loader)
    assert "weights" not in coverage.provenance()["calibration"]
    assert "moving calibration" not in alarms(coverage)
    # A calibration after it replaces it.
    moved = trained_calibration(net.train(), training)
    net.eval()
    moved.calibrate(training)
    moved.assess(loader)
    assert "moving calibration" not in alarms(moved)
