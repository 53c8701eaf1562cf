"""What a pass is heard with: its modes, gradients, precision and labels, and the layers that it skips."""

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import neuralcov as nc
from tests.coverage.listening.support import Net, Sometimes, forward_hooks, listen_to, run

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")


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


def test_checkpointed_layers_run_again_for_gradients_are_not_counted(net, loader):

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


def test_nothing_is_kept_alive(net, loader):

    images, _ = next(iter(loader))
    coverage = nc.Coverage(net, [nc.NC()])
    kept = []
    net.conv.register_forward_hook(lambda module, args, output: kept.append(weakref.ref(output)))
    with coverage.listen():
        net(images)
        gc.collect()
        assert kept[0]() is None
