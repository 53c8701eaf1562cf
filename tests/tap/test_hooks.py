import gc

import pytest
import torch
from torch import nn

import neuralcov as nc
from neuralcov.tap import Batch, Tap
from tests.tap.hooks_support import run


def hooks_of(model):
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


def test_in_place_activations_do_not_overwrite_the_output():
    """VGG's classifier: a Linear kept by reference would be read after the ReLU behind it."""
    linear = nn.Linear(4, 50)
    inputs = torch.randn(8, 4)
    batch = run(nn.Sequential(linear, nn.ReLU(inplace=True)), inputs)
    assert torch.equal(batch.layers["0"], linear(inputs))
    assert (batch.layers["0"] < 0).any()


def test_execution_order_not_definition_order():
    class Backwards(nn.Module):
        def __init__(self):
            super().__init__()
            self.second = nn.Linear(3, 2)
            self.first = nn.Linear(4, 3)

        def forward(self, x):
            return self.second(self.first(x))

    assert list(run(Backwards(), torch.randn(2, 4)).layers) == ["first", "second"]


def test_a_module_called_twice_is_two_layers():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x):
            return self.fc(torch.relu(self.fc(x)))

    net, inputs = Twice(), torch.randn(2, 3)
    batch = run(net, inputs)
    assert list(batch.layers) == ["fc", "fc#1"]
    torch.testing.assert_close(batch.layers["fc#1"], net.fc(torch.relu(net.fc(inputs))))


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Conv1d(2, 5, 3), (4, 2, 9)),
        (nn.Conv2d(2, 5, 3), (4, 2, 9, 9)),
        (nn.Conv3d(2, 5, 3), (4, 2, 5, 5, 5)),
        (nn.ConvTranspose1d(2, 5, 3), (4, 2, 9)),
        (nn.ConvTranspose2d(2, 5, 3), (4, 2, 9, 9)),
        (nn.ConvTranspose3d(2, 5, 3), (4, 2, 5, 5, 5)),
    ],
)
def test_convolutions_of_every_rank(module, shape):
    inputs = torch.randn(shape)
    batch = run(nn.Sequential(module), inputs)
    torch.testing.assert_close(batch.layers["0"], module(inputs).flatten(2).mean(2))


@pytest.mark.parametrize("batch_first", [True, False])
def test_attention_counts_by_its_own_output(batch_first):
    class Attends(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 2, batch_first=batch_first)

        def forward(self, x):
            return self.attention(x, x, x)[0]

    # As many steps as inputs: only the module's own word tells the axes apart.
    net, inputs = Attends().eval(), torch.randn(5, 5, 4)
    batch = run(net, inputs, batch_axis=0 if batch_first else 1)
    assert list(batch.layers) == ["attention"]
    torch.testing.assert_close(batch.layers["attention"], net(inputs).mean(1 if batch_first else 0))


def test_transformer_encoders_run_as_modules():
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
    padding = torch.tensor([[False, False, True], [False, False, False]])

    class Padded(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = encoder

        def forward(self, x):
            return self.encoder(x, src_key_padding_mask=padding)

    batch = run(Padded(), torch.randn(2, 3, 8))
    expected = [f"encoder.layers.{i}.{part}" for i in range(2) for part in ("self_attn", "linear1", "linear2")]
    assert list(batch.layers) == expected
    assert batch.layers["encoder.layers.0.linear1"].shape == (2, 16)


def test_several_inputs_keyword_inputs_and_mapping_outputs():
    class Many(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(2, 3), nn.Linear(4, 3)

        def forward(self, x, y):
            return {"logits": self.a(x) + self.b(y)}

    x, y = torch.randn(5, 2), torch.randn(5, 4)
    positional = run(Many(), (x, y), predictions=True)
    assert positional.predictions.shape == (5,)
    assert list(run(Many(), {"x": x, "y": y}).layers) == ["a", "b"]


def test_half_precision_models_give_float32():
    batch = run(nn.Sequential(nn.Conv2d(1, 2, 3)).bfloat16(), torch.randn(2, 1, 5, 5, dtype=torch.bfloat16))
    assert batch.layers["0"].dtype == torch.float32


@pytest.mark.parametrize("whole", [True, False])
def test_compiled_models_run_through_their_original(whole):
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    if whole:
        compiled = torch.compile(net, backend="eager")
    else:
        net[0] = torch.compile(net[0], backend="eager")
        net[2].compile(backend="eager")
        compiled = net
    compiled(torch.randn(2, 3))
    inputs = torch.randn(2, 3)
    batch = run(compiled, inputs)
    assert list(batch.layers) == ["0", "2"]
    torch.testing.assert_close(batch.layers["2"], net(inputs))


@pytest.mark.parametrize("grad", [True, False])
def test_gradients_and_grad_mode_are_left_alone(grad):
    net = nn.Sequential(nn.Linear(3, 2))
    net(torch.randn(4, 3)).sum().backward()
    before = net[0].weight.grad.clone()
    with torch.set_grad_enabled(grad):
        batch = run(net, torch.randn(4, 3, requires_grad=True))
        assert torch.is_grad_enabled() == grad
    assert torch.equal(net[0].weight.grad, before)
    assert not batch.layers["0"].requires_grad


def test_hooks_live_for_one_block():
    net = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    tap = Tap(net)
    assert hooks_of(net) == 0
    with tap.open():
        assert hooks_of(net) == 1
        with tap.open():
            tap.run(Batch(torch.randn(1, 3)))
            assert hooks_of(net) == 1
        assert hooks_of(net) == 1
    assert hooks_of(net) == 0
    tap.run(Batch(torch.randn(1, 3)))
    assert hooks_of(net) == 0


def test_no_hook_is_left_behind_by_an_exception():
    class Breaks(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.norm = nn.Linear(3, 2), nn.BatchNorm1d(2)

        def forward(self, x):
            self.norm(self.fc(x))
            raise ZeroDivisionError

    net = Breaks().train()
    coverage = nc.Coverage(net, [nc.NC()])
    for attempt in (
        lambda: coverage.update(torch.randn(2, 3)),
        lambda: coverage.assess([torch.randn(2, 3)]),
        lambda: coverage.gain(torch.randn(2, 3)),
        lambda: coverage.calibrate([torch.randn(2, 3)]),
    ):
        with pytest.raises(ZeroDivisionError):
            attempt()
        assert hooks_of(net) == 0
        assert net.training
        assert net.norm.training


def test_activations_do_not_keep_the_model_or_its_feature_maps_alive():
    net = nn.Sequential(nn.Conv2d(1, 4, 3))
    batch = run(net, torch.randn(2, 1, 20, 20))
    gc.collect()
    assert batch.layers["0"].untyped_storage().nbytes() == 2 * 4 * 4


def test_a_chosen_layer_that_does_not_run():
    class Skips(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused, self.aux = nn.Linear(3, 2), nn.Linear(3, 2), nn.Linear(3, 2)

        def forward(self, x):
            return self.used(x)

    with pytest.raises(nc.NeuralcovError, match=r"layer 'unused' did not run.*nor did 1 more.*layers='!unused'"):
        run(Skips(), torch.randn(2, 3))
    assert list(run(Skips(), torch.randn(2, 3), layers="!unused|!aux").layers) == ["used"]


def test_labels_must_fit_the_batch():
    with pytest.raises(nc.NeuralcovError, match="3 labels for 2 inputs"):
        run(nn.Linear(3, 2), torch.randn(2, 3), labels=torch.tensor([0, 1, 2]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "train"}, "mode='train'"),
        ({"steps": 0}, "steps=0"),
        ({"device": "meta"}, "device='meta' but the model's parameters are on cpu"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(nc.NeuralcovError, match=message):
        run(nn.Linear(3, 2), torch.randn(2, 3), **options)


def test_not_a_model():
    with pytest.raises(nc.NeuralcovError, match="a model of type function"):
        Tap(lambda x: x)
