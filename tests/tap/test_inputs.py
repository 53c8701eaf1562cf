import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence

import neuralcov as nc
from neuralcov.tap.inputs import as_labels, batch_size, padding_of, requires_two_inputs, unpack_batch
from neuralcov.tap.preserve import original_module
from neuralcov.tap.signatures import form_of

X, Y = torch.arange(12.0).reshape(4, 3) - 5.5, torch.tensor([0, 1, 2, 0])


@pytest.mark.parametrize("pair", [(X, Y), [X, Y], (X, Y.int()), (X.numpy(), Y.numpy()), (X, Y.tolist())])
def test_a_pair_with_integers_is_inputs_and_labels(pair):
    batch = unpack_batch(pair)
    assert batch.inputs is pair[0]
    assert batch.labels.tolist() == Y.tolist()
    assert not batch.labels.is_floating_point()


@pytest.mark.parametrize(
    "second",
    [Y.float(), Y[:, None], X, X.numpy(), X.cfloat(), None, ["cat"] * 4, [{"boxes": X}] * 4, {"boxes": X}, "cats", 0.5],
    ids=repr,
)
def test_targets_that_are_no_classes_go_nowhere(second):
    batch = unpack_batch((X, second))
    assert batch.labels is None
    assert batch.inputs is X


@pytest.mark.parametrize("second", [Y, Y.float(), Y[:, None], X])
def test_a_pair_of_a_model_that_requires_two_inputs(second):
    batch = unpack_batch((X, second), two_inputs=True)
    assert batch.labels is None
    assert batch.inputs[1] is second
    batch = unpack_batch(((X, second), Y), two_inputs=True)
    assert batch.labels is Y
    assert batch.inputs[1] is second


def test_yes_and_no_are_classes():
    assert unpack_batch((X, Y > 0)).labels.tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize(
    ("forward", "required"),
    [
        (lambda self, x: x, False),
        (lambda self, x, t: x, True),
        (lambda self, x, t=None: x, False),
        (lambda self, x, *rest: x, False),
        (lambda self, *inputs: inputs, False),
        (lambda self, *inputs, **named: inputs, False),
        (lambda self, x, *, t: x, False),
    ],
)
@pytest.mark.parametrize("wrap", [lambda model: model, torch.compile, nn.DataParallel])
def test_what_a_model_requires(forward, required, wrap):
    model = type("Model", (nn.Module,), {"forward": forward})()
    assert requires_two_inputs(original_module(wrap(model))) is required


def test_a_scripted_model_tells_by_its_schema():
    class Two(nn.Module):
        def forward(self, x: torch.Tensor, t: torch.Tensor, scale: float = 1.0):
            return x + t * scale

    form = form_of(torch.jit.script(Two()))
    assert form.positional == ("x", "t", "scale")
    assert form.required == 2
    assert form.takes("t")
    assert not form.takes("y")


class Shift(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x, shift=None):
        return self.fc(x if shift is None else x + shift)


def test_targets_do_not_become_optional_inputs():
    model, criteria = Shift(), [nc.NC()]
    plain, paired = nc.Coverage(model, criteria), nc.Coverage(model, criteria)
    plain.assess([X, X + 1])
    with pytest.warns(
        nc.CoverageWarning, match=r"torch.float32 and shape \(4, 3\).*not for 'shift'.*unpack="
    ) as caught:
        paired.assess([(X, 100 * X), (X + 1, 100 * X)])
    assert len(caught) == 1
    assert paired.values() == plain.values()
    assert paired.inputs == 8
    shifted = nc.Coverage(model, criteria, unpack=lambda item: (item, None))
    shifted.assess([(X, 100 * X)])
    alone = nc.Coverage(model, criteria)
    alone.update(X + 100 * X)
    assert shifted.values() == alone.values()


@pytest.mark.parametrize("target", [torch.randn(4), torch.randn(4, 5), torch.randint(3, (4, 5))])
def test_targets_of_a_model_of_one_input(target):
    model = nn.Sequential(nn.Linear(3, 2))
    coverage, plain = nc.Coverage(model, [nc.NC()]), nc.Coverage(model, [nc.NC()])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        coverage.calibrate([(X, target)])
        coverage.assess([(X, target), {"input": X, "labels": target}])
        coverage.update(X, target)
    for _ in range(3):
        plain.update(X)
    assert coverage.values() == plain.values()
    needy = nc.Coverage(model, [nc.LSC(by="label")])
    for attempt in (lambda: needy.calibrate([(X, target)]), lambda: needy.update(X, target)):
        with pytest.raises(nc.NeuralcovError, match=r"labels of type .*: expected integers, one per input"):
            attempt()


@pytest.mark.parametrize("steps", [torch.arange(4), torch.rand(4)])
def test_time_steps_of_a_diffusion_model_are_inputs(steps):
    class Denoiser(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 2)

        def forward(self, x, t):
            return self.fc(torch.cat([x, t[:, None].float()], 1))

    model = Denoiser()
    coverage = nc.Coverage(model, [nc.NC()])
    coverage.assess([(X, steps)])
    expected = nc.Coverage(model.fc, [nc.NC()])
    expected.update(torch.cat([X, steps[:, None].float()], 1))
    assert list(coverage.values().values()) == list(expected.values().values())


def test_a_mapping_is_keyword_inputs_without_labels():
    batch = unpack_batch({"input_ids": X, "labels": Y})
    assert list(batch.inputs) == ["input_ids"]
    assert torch.equal(batch.labels, Y)


def test_a_tensor_and_a_tuple_of_one():
    assert unpack_batch(X).inputs is X
    assert unpack_batch((X,)).inputs is X


def test_unpack_decides_otherwise():
    batch = unpack_batch({"image": X, "meta": {"class": Y}}, unpack=lambda item: (item["image"], item["meta"]["class"]))
    assert batch.inputs is X
    assert torch.equal(batch.labels, Y)


def test_something_else_is_refused():
    with pytest.raises(nc.NeuralcovError, match=r"a batch of type str.*pass unpack="):
        unpack_batch("image.png")


def test_labels_that_are_needed_must_be_integers():
    with pytest.raises(nc.NeuralcovError, match=r"labels of type torch.float32 and shape \(4,\)"):
        unpack_batch({"x": X, "labels": Y.float()}, read_labels=as_labels)


def test_batch_size():
    assert batch_size(X) == 4
    assert batch_size(torch.zeros(7, 2, 3), batch_axis=1) == 2
    assert batch_size({"a": X, "b": torch.zeros(9)}) == 4
    assert batch_size(pack_sequence([torch.zeros(3, 2), torch.zeros(1, 2)])) == 2
    with pytest.raises(nc.NeuralcovError, match="has no axis 3"):
        batch_size(X, batch_axis=3)
    with pytest.raises(nc.NeuralcovError, match="hold no tensor"):
        batch_size("x")


def test_padding():
    assert padding_of(X, None, 4) is None
    two = torch.tensor([[True, True], [False, False], [True, False], [True, False]])
    assert padding_of(torch.zeros(4), [2, 0, 1, 1], 4).mask.equal(two)
    # Inputs padded further than the longest of them: features after time, before it, and the batch in between.
    for inputs, batch_axis in ((torch.zeros(4, 9, 2), 0), (torch.zeros(4, 2, 9), 0), (torch.zeros(9, 4, 2), 1)):
        padding = padding_of(inputs, [2, 0, 1, 1], 4, batch_axis)
        assert padding.over(9)[:, :2].equal(two)
        assert not padding.over(9)[:, 2:].any()
        assert padding.over(2).equal(two)
        assert padding.over(5) is None
        assert padding.step(8).tolist() == padding.step(20).tolist() == [False] * 4
    assert padding_of({"lengths": np.array([1, 2])}, None, 2).mask.tolist() == [[True, False], [True, True]]
    with pytest.raises(nc.NeuralcovError, match="expected 4 integers, one per input"):
        padding_of(X, [1, 2], 4)
