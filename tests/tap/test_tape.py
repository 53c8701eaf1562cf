import weakref

import torch
from torch import nn
from torch.nn import functional

from neuralcov.tap.relevance_rules import CONSTANT, VALUELESS, WEIGHTED
from neuralcov.tap.tape import Tape


def tape_of(model=None):
    return Tape(model or nn.Identity(), weighted=WEIGHTED, valueless=VALUELESS, constant=CONSTANT)


def marked(tape, *shape, weighted=False):
    start = torch.randn(*shape)
    tape.mark("start", start, weighted=weighted)
    return start


def names(tape):
    return [step.name for step in tape.steps]


def test_the_tape_starts_at_what_was_marked():
    tape = tape_of()
    with tape:
        before = torch.randn(2, 3).exp()
        assert names(tape) == []
        start = marked(tape, 2, 3)
        (before * 2).sin()
        (start + before).relu()
    assert names(tape) == ["layer", "add", "relu"]
    assert [held.spot for held in tape.steps[1].inputs] == [tape.layers["start"]]


def test_one_name_however_a_function_is_called():
    tape = tape_of()
    with tape:
        start = marked(tape, 2, 3)
        for call in (nn.ReLU(), nn.ReLU(inplace=True), functional.relu, torch.relu, torch.relu_, torch.Tensor.relu_):
            start = call(start)
        start += 1
        torch.add(start, start)
        start.mT  # noqa: B018
    assert names(tape) == ["layer", *["relu"] * 6, "add", "add", "mT"]


def test_what_makes_no_new_number_is_no_step():
    tape = tape_of()
    with tape:
        start = marked(tape, 2, 3)
        assert start.shape == (2, 3)
        assert start.size(0) == 2
        same = functional.dropout(start, 0.5, training=False)
        start.contiguous()
        start > 0  # noqa: B015
        start.argmax(1)
        torch.zeros_like(start)
        start.new_ones(3)
    assert names(tape) == ["layer"]
    assert tape.spot(same) is tape.layers["start"]


def test_a_tensor_overwritten_becomes_another_spot():
    tape = tape_of()
    with tape:
        start = marked(tape, 2, 3)
        first = tape.spot(start)
        start.relu_()
        second = tape.spot(start)
        start[0] = start[1] * 2
    assert first is tape.layers["start"]
    assert second.step.name == "relu"
    assert tape.spot(start).step.name == "__setitem__"


def test_values_are_kept_from_being_overwritten():
    tape = tape_of()
    with tape:
        start = marked(tape, 2, 3)
        before = start.clone()
        start.mean(1)
        start.view(-1).mul_(2)
        start += 1
    mean, total = tape.steps[1 + 1], tape.steps[-1]
    assert (mean.name, total.name) == ("mean", "add")
    assert torch.equal(mean.inputs[0].value, before)
    assert torch.equal(total.inputs[0].value, 2 * before)
    assert total.function is torch.Tensor.add


class Notes(nn.Module):
    """Runs functions and notes, weakly, what they gave."""

    def __init__(self, *functions):
        super().__init__()
        self.functions, self.given = functions, []

    def forward(self, x):
        for function in self.functions:
            x = function(x)
            self.given.append(weakref.ref(x))
        return x


def test_values_no_rule_needs_are_let_go():
    net = Notes(torch.relu, torch.tanh, torch.exp, torch.sum)
    tape = tape_of(net)
    with tape:
        net(marked(tape, 2, 3))
    # Only exp has no rule, and only sum's needs what it was given.
    assert [value() is None for value in net.given] == [True, False, False, True]
    assert names(tape) == ["layer", "relu", "tanh", "exp", "sum"]
    tape.clear()
    assert all(value() is None for value in net.given)
    assert tape.steps == []


def test_a_batch_norm_behind_a_layer_needs_no_value():
    for weighted in (True, False):
        tape, norm = tape_of(), nn.BatchNorm1d(3).eval()
        with tape:
            norm(marked(tape, 2, 3, weighted=weighted))
        assert (tape.steps[1].inputs[0].value is None) == weighted


def test_nothing_is_kept_while_paused():
    tape = tape_of()
    with tape:
        start = marked(tape, 2, 3)
        with tape.paused():
            start.mean()
        start.sum()
    assert names(tape) == ["layer", "sum"]


def test_steps_know_where_they_were_called():
    class Inner(nn.Module):
        def forward(self, x):
            return x.exp()

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = nn.Sequential(nn.ReLU(), Inner())

        def forward(self, x):
            return self.block(x) + 1

    net = Outer()
    tape = tape_of(net)
    with tape:
        start = marked(tape, 2, 3)
        net(start)
        start * 2
    assert [step.where for step in tape.steps[1:]] == [
        "module 'block.0' (ReLU)",
        "module 'block.1' (Inner)",
        "module 'Outer' (Outer)",
        "the model",
    ]


def test_several_outputs_are_spots_of_one_step():
    tape = tape_of()
    with tape:
        a, b = marked(tape, 2, 4).chunk(2, 1)
        values, indices = torch.cat([b, a], 1).max(1)
    assert tape.spot(a).step is tape.spot(b).step
    assert tape.steps[1].outputs == [tape.spot(a), tape.spot(b)]
    assert tape.spot(values).step.outputs == [tape.spot(values)]
    assert tape.spot(indices) is None
