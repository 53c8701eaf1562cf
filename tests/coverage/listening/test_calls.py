"""Which calls are heard as passes, and what is read off them: recomputation, transforms, odd outputs, batch second."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import neuralcov as nc
from neuralcov.testing.cases import equal_bits

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")
ROWS = torch.randn(20, 6, generator=torch.Generator().manual_seed(0))


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).eval()


def assessed(model, batches, **options):
    coverage = nc.Coverage(model, [nc.NLC(), nc.NC(0.5)], **options)
    coverage.assess(batches)
    return coverage


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_model_run_again_for_gradients_is_heard_once(reentrant):
    model = net()
    expected, heard = assessed(model, [ROWS]), nc.Coverage(model, [nc.NLC(), nc.NC(0.5)])
    with heard.listen() as block:
        checkpoint(model, ROWS.clone().requires_grad_(), use_reentrant=reentrant).sum().backward()
    assert (block.passes, block.failed, heard.inputs) == (1, 0, 20)
    assert block.outside == {}
    assert heard.values() == expected.values()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize(
    "transformed",
    [
        lambda model: torch.vmap(model)(ROWS),
        lambda model: torch.func.jvp(model, (ROWS,), (torch.ones_like(ROWS),)),
        lambda model: torch.func.grad(lambda rows: model(rows).sum())(ROWS),
        lambda model: torch.func.vjp(model, ROWS)[0],
    ],
    ids=["vmap", "jvp", "grad", "vjp"],
)
def test_calls_within_transforms_of_functions_are_refused_in_one_sentence(transformed):
    model, coverage = net(), nc.Coverage(net(), [nc.NC(0.5)])
    coverage = nc.Coverage(model, [nc.NC(0.5)])
    with pytest.raises(nc.NeuralcovError, match=r"called within a transform of torch\.func"), coverage.listen():
        transformed(model)
    assert coverage.inputs == 0
    transformed(model)


@dataclass
class Answer:
    """What some models return."""

    loss: torch.Tensor
    scores: torch.Tensor


class Returning(nn.Module):
    """Gives its scores in a form of somebody's choice, behind a loss."""

    def __init__(self, form):
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.form = nn.Linear(6, 3), form

    def forward(self, rows, labels=None):
        scores = self.inner(rows)
        loss = nn.functional.cross_entropy(scores, torch.zeros(len(rows), dtype=torch.long))
        return self.form(loss, scores)


FORMS = {
    "tuple": lambda loss, scores: (loss, scores),
    "logits": lambda loss, scores: {"attention": torch.zeros(len(scores), 9), "logits": scores},
    "mapping": lambda loss, scores: {"loss": loss, "scores": scores},
    "dataclass": Answer,
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("positional", [True, False])
def test_classes_are_read_past_a_loss_and_labels_off_the_call(name, positional):
    model = Returning(FORMS[name]).eval()
    with torch.no_grad():
        best = model.inner(ROWS).argmax(1)
    labels = torch.where(torch.arange(20) < 15, best, (best + 1) % 3)
    heard = nc.Coverage(model, [nc.NLC(classes=3), nc.NC(0.5)])
    with heard.listen(), torch.no_grad():
        model(ROWS, labels) if positional else model(ROWS, labels=labels)
    assert heard.sanity().accuracy == 0.75
    taken = nc.Coverage(model, [nc.NLC(classes=3), nc.NC(0.5)])
    taken.assess([(ROWS, labels)])
    assert heard.values() == taken.values()
    with pytest.raises(nc.NeuralcovError, match="of 20 inputs is in both"):
        heard.merge(taken, overlap="allow")  # the same inputs, whether labels came with the call or beside it


class Around(nn.Module):
    """Has a layer that returns what a form makes of a scalar and its features."""

    def __init__(self, form):
        super().__init__()
        self.block, self.head = Returning(form), nn.Linear(3, 2)

    def forward(self, rows):
        found = self.block(rows)
        return self.head(found.scores if isinstance(found, Answer) else found)


def test_a_layer_may_return_a_dataclass():
    model = Around(lambda loss, scores: Answer(scores.relu(), scores)).eval()
    coverage = nc.Coverage(model, [nc.NLC(rule="all")], layers="block")
    with coverage.listen(), torch.no_grad():
        model(ROWS)
    with torch.no_grad():
        rows = model.block.inner(ROWS).relu().double()
    expected = torch.cov(rows.T, correction=0).abs().sum() / 9
    assert coverage.values()["NLC(rule=all)"] == pytest.approx(float(expected), rel=1e-5)


class Second(nn.Module):
    """Computes with tokens first and inputs second, as attention does by default in PyTorch.

    Args:
        turns: whether inputs come first, and it turns them itself.
        attends: whether it holds a module that says so.
    """

    def __init__(self, *, turns, attends):
        super().__init__()
        torch.manual_seed(0)
        self.turns = turns
        self.fc, self.head = nn.Linear(4, 5), nn.Linear(5, 2)
        self.attention = nn.MultiheadAttention(5, 1) if attends else None

    def forward(self, x):
        x = torch.relu(self.fc(x.transpose(0, 1) if self.turns else x))
        if self.attention is not None:
            x = self.attention(x, x, x)[0]
        return self.head(x.mean(0))


def tokens(inputs, length, *, turns):
    found = torch.randn(inputs, length, 4, generator=torch.Generator().manual_seed(inputs))
    return found if turns else found.transpose(0, 1)


@pytest.mark.parametrize(("turns", "attends"), [(False, False), (True, True)])
def test_rows_that_may_be_tokens_or_inputs_are_left_open(turns, attends):
    """As many tokens as inputs: whichever axis is taken, the other would fit as well."""
    model = Second(turns=turns, attends=attends).eval()
    options = {"batch_axis": 0 if turns else 1}
    square = tokens(7, 7, turns=turns)
    coverage = nc.Coverage(model, [nc.NLC()], **options)
    with pytest.warns(nc.CoverageWarning, match=r"'fc' \(shape \(7, 7, 5\).*call cov.probe\(inputs\) before"):
        listen_to(coverage, model, square)
    assert "fc" not in {row.layer for row in coverage.by_layer()}
    probed = nc.Coverage(model, [nc.NLC()], **options)
    probed.probe(square)
    listen_to(probed, model, square)
    expected = nc.Coverage(model, [nc.NLC()], **options)
    expected.assess([square])
    assert probed.values() == expected.values()
    assert "fc" in {row.layer for row in probed.by_layer()}


def listen_to(coverage, model, *batches):
    with coverage.listen(), torch.no_grad():
        for batch in batches:
            model(batch)


def test_rows_once_seen_are_read_alike_afterwards():
    model = Second(turns=True, attends=False).eval()
    batches = [tokens(6, 7, turns=True), tokens(7, 7, turns=True)]
    heard = nc.Coverage(model, [nc.NLC()])
    listen_to(heard, model, *batches)
    expected = nc.Coverage(model, [nc.NLC()])
    expected.assess(batches)
    assert heard.values() == expected.values()
    assert equal_bits(*(one._measurement.collection.states[0].counts for one in (heard, expected)))


def test_rows_that_turn_out_to_lie_elsewhere_are_refused():
    model = Second(turns=True, attends=False).eval()
    coverage = nc.Coverage(model, [nc.NLC()])
    with pytest.raises(nc.NeuralcovError, match=r"'fc'.*axis 1 here but on axis 0 in an earlier pass.*cov.probe"):
        listen_to(coverage, model, tokens(7, 7, turns=True), tokens(6, 7, turns=True))


class Mapped(nn.Module):
    """Runs a layer under ``vmap``, over inputs or over tokens."""

    def __init__(self, axis):
        super().__init__()
        torch.manual_seed(0)
        self.fc, self.head, self.axis = nn.Linear(4, 5), nn.Linear(5, 2), axis

    def forward(self, x):
        return self.head(torch.vmap(self.fc, in_dims=self.axis, out_dims=self.axis)(x).mean(1))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("way", ["assess", "listen"])
def test_layers_within_transforms_are_left_out_and_named(axis, way):
    model = Mapped(axis).eval()
    coverage = nc.Coverage(model, [nc.NLC()])
    rows = tokens(7, 5, turns=True)
    with pytest.warns(nc.CoverageWarning, match=r"'fc' \(it runs within a transform of torch.func"):
        coverage.assess([rows]) if way == "assess" else listen_to(coverage, model, rows)
    assert [row.layer for row in coverage.by_layer()] == ["head"]
    chosen = nc.Coverage(model, [nc.NLC()], layers="fc|head")
    with pytest.raises(nc.NeuralcovError, match=r"layer 'fc' does not tell.*a transform of torch.func"):
        chosen.assess([rows]) if way == "assess" else listen_to(chosen, model, rows)


def test_labels_that_are_no_numbers_are_refused_in_one_sentence():
    model = net()
    coverage = nc.Coverage(model, [nc.NLC(classes=3)])
    with coverage.listen(), torch.no_grad():
        model(ROWS)
        with pytest.raises(nc.NeuralcovError, match=r"labels such as \['cat', 'cat'.*expected integers"):
            coverage.labels(["cat"] * 20)
        coverage.labels([0] * 20)


def with_fake_tensors(model):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True) as fake:
        model(fake.from_tensor(ROWS))


@pytest.mark.parametrize(
    "record",
    [
        lambda model: torch.jit.trace(model, ROWS, check_trace=False),  # the check runs the model
        lambda model: torch.export.export(model, (ROWS,)),
        with_fake_tensors,
        torch.fx.symbolic_trace,
    ],
    ids=["jit", "export", "fake", "fx"],
)
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
def test_calls_that_only_write_the_model_down_are_not_heard(record):
    model = net()
    expected, heard = assessed(model, [ROWS]), nc.Coverage(model, [nc.NLC(), nc.NC(0.5)])
    with heard.listen() as block, torch.no_grad():
        record(model)
        model(ROWS)
        record(model)
    assert (block.passes, block.failed, block.outside) == (1, 0, {})
    assert heard.values() == expected.values()


@pytest.mark.parametrize("way", ["assess", "listen"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_nested_tensors_are_refused_with_advice(way):
    model = net()
    nested = torch.nested.nested_tensor([ROWS[:3], ROWS[3:8]], layout=torch.jagged)
    coverage = nc.Coverage(model, [nc.NC(0.5)])
    with pytest.raises(nc.NeuralcovError, match="layer '0' gave a nested tensor: pad the inputs"):
        coverage.assess([nested]) if way == "assess" else listen_to(coverage, model, nested)
