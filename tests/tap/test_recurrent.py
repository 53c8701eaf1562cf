"""Recurrent layers: unrolled into steps, packed, masked, and cells by their calls."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence

import neuralcov as nc
from neuralcov.tap import Batch, Tap
from tests.tap.hooks_support import run


class Recurrent(nn.Module):
    def __init__(self, kind=nn.LSTM, batch_first=True, layers=1, bidirectional=False):
        super().__init__()
        self.rnn = kind(3, 4, num_layers=layers, batch_first=batch_first, bidirectional=bidirectional)
        self.fc = nn.Linear(8 if bidirectional else 4, 1)

    def forward(self, x):
        output, _ = self.rnn(x)
        if isinstance(output, nn.utils.rnn.PackedSequence):
            output, _ = nn.utils.rnn.pad_packed_sequence(output, batch_first=True)
            return self.fc(output[:, -1])
        return self.fc(output[:, -1] if self.rnn.batch_first else output[-1])


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_recurrent_layers_are_unrolled(kind, batch_first, bidirectional):
    net = Recurrent(kind, batch_first, layers=2, bidirectional=bidirectional)
    inputs = torch.randn(2, 5, 3)
    fed = inputs if batch_first else inputs.transpose(0, 1)
    batch = run(net, fed, batch_axis=0 if batch_first else 1)
    assert list(batch.layers) == [f"rnn[{step}]" for step in range(5)] + ["fc"]
    outputs = net.rnn(fed)[0]
    outputs = outputs if batch_first else outputs.transpose(0, 1)
    for step in range(5):
        torch.testing.assert_close(batch.layers[f"rnn[{step}]"], outputs[:, step])
    assert not batch.present


@pytest.mark.parametrize("sort", [True, False])
def test_packed_sequences_know_where_inputs_end(sort):
    lengths = [4, 2, 1] if sort else [2, 4, 1]
    inputs = torch.randn(3, 4, 3)
    packed = pack_padded_sequence(inputs, torch.tensor(lengths), batch_first=True, enforce_sorted=sort)
    batch = run(Recurrent(), packed)
    for step in range(4):
        assert batch.present[f"rnn[{step}]"].tolist() == [length > step for length in lengths]
        absent = ~batch.present[f"rnn[{step}]"]
        assert not batch.layers[f"rnn[{step}]"][absent].any()


def test_lengths_and_attention_masks_mark_absent_steps():
    batch = run(Recurrent(), torch.randn(2, 3, 3), lengths=[1, 3])
    assert batch.present["rnn[0]"].tolist() == [True, True]
    assert batch.present["rnn[2]"].tolist() == [False, True]
    assert "fc" not in batch.present

    class Masked(Recurrent):
        def forward(self, x, attention_mask):
            return super().forward(x)

    batch = run(Masked(), {"x": torch.randn(2, 3, 3), "attention_mask": torch.tensor([[0, 1, 1], [1, 1, 1]])})
    assert batch.present["rnn[0]"].tolist() == [False, True]


def test_lengths_shorter_than_the_padding():
    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(2, 3)

        def forward(self, x):
            return self.fc(x).mean(1)

    model, x = Tokens(), torch.randn(2, 5, 2)
    outputs = model.fc(x).detach()
    for lengths in ([5, 2], [3, 2], [1, 1]):
        expected = torch.stack([outputs[i, :n].mean(0) for i, n in enumerate(lengths)])
        torch.testing.assert_close(run(model, x, lengths=lengths).layers["fc"], expected)
    batch = run(Recurrent(), torch.randn(2, 3, 3), lengths=[1, 2])
    assert batch.present["rnn[2]"].tolist() == [False, False]


def test_a_mask_counts_in_a_batch_of_one_whose_tokens_come_first():
    class TokensFirst(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(2, 3)

        def forward(self, x, attention_mask):
            return self.fc(x.transpose(0, 1)).mean(0)

    model, x, mask = TokensFirst(), torch.randn(2, 3, 2), torch.tensor([[1, 1, 0], [1, 0, 0]])
    both = run(model, {"x": x, "attention_mask": mask}).layers["fc"]
    alone = run(model, {"x": x[1:], "attention_mask": mask[1:]}).layers["fc"]
    torch.testing.assert_close(alone, both[1:])


def test_steps_are_fixed_by_the_first_batch():
    tap = Tap(Recurrent())
    tap.run(Batch(torch.randn(2, 4, 3)))
    shorter, _ = tap.run(Batch(torch.randn(2, 3, 3)))
    assert list(shorter.layers) == [f"rnn[{step}]" for step in range(4)] + ["fc"]
    assert shorter.present["rnn[3]"].tolist() == [False, False]
    with pytest.raises(nc.NeuralcovError, match=r"ran 5 steps, more than the 4 .*pass steps=5"):
        tap.run(Batch(torch.randn(2, 5, 3)))
    assert len(run(Recurrent(), torch.randn(2, 4, 3), steps=6).layers) == 7


@pytest.mark.parametrize("cell", [True, False])
def test_a_first_batch_that_raises_settles_nothing(cell):
    class Fussy(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRUCell(3, 4) if cell else nn.GRU(3, 4, batch_first=True)

        def forward(self, x):
            state = None
            if cell:
                for step in range(x.shape[1]):
                    state = self.rnn(x[:, step], state)
            else:
                state = self.rnn(x)[0][:, -1]
            if x.shape[1] == 2:
                raise ArithmeticError
            return state

    short, long = torch.randn(2, 2, 3), torch.randn(2, 5, 3)
    tap = Tap(Fussy())
    with pytest.raises(ArithmeticError):
        tap.run(Batch(short))
    assert len(tap.run(Batch(long))[0].layers) == 5
    for method in ("update", "gain", "propose", "admit"):
        coverage = nc.Coverage(Fussy(), [nc.NC()])
        with pytest.raises(ArithmeticError):
            getattr(coverage, method)(short)
        coverage.update(long)
        assert len(coverage.layout) == 5


def test_a_first_batch_that_a_criterion_refuses_settles_nothing():
    coverage = nc.Coverage(Recurrent(), [nc.KMNC()])
    for attempt in (lambda: coverage.update(torch.randn(2, 2, 3)), lambda: coverage.assess([torch.randn(2, 2, 3)])):
        with pytest.raises(nc.NeuralcovError, match="needs calibration"):
            attempt()
    with pytest.raises(nc.NeuralcovError, match="a batch of type str"):
        coverage.calibrate([torch.randn(2, 2, 3), "not a batch"])
    coverage.calibrate([torch.randn(2, 5, 3)])
    coverage.update(torch.randn(2, 4, 3))
    assert len(coverage.layout) == 6
    with pytest.raises(nc.NeuralcovError, match="more than the 5"):
        coverage.update(torch.randn(2, 6, 3))
    assert len(coverage.layout) == 6


def test_cells_are_unrolled_by_their_calls():
    class Loop(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.LSTMCell(3, 4)

        def forward(self, x):
            state = None
            for step in range(x.shape[1]):
                state = self.cell(x[:, step], state)
            return state[0]

    tap = Tap(Loop())
    batch, output = tap.run(Batch(torch.randn(2, 3, 3)))
    assert list(batch.layers) == ["cell", "cell#1", "cell#2"]
    torch.testing.assert_close(batch.layers["cell#2"], output)
    shorter, _ = tap.run(Batch(torch.randn(2, 2, 3)))
    assert shorter.present["cell#2"].tolist() == [False, False]
    padded = run(Loop(), torch.randn(2, 3, 3), lengths=[2, 1])
    assert {name: present.tolist() for name, present in padded.present.items()} == {
        "cell": [True, True],
        "cell#1": [True, False],
        "cell#2": [False, False],
    }


def test_steps_that_a_cell_did_not_take_stand_where_they_would_have():
    class Stacked(nn.Module):
        def __init__(self):
            super().__init__()
            self.low, self.high, self.fc = nn.GRUCell(2, 3), nn.GRUCell(3, 3), nn.Linear(3, 2)

        def forward(self, x):
            low = high = None
            for step in range(x.shape[1]):
                low = self.low(x[:, step], low)
                high = self.high(low, high)
            return self.fc(high)

    model, short, long = Stacked(), torch.randn(9, 2, 2), torch.randn(9, 3, 2)
    orders = [list(run(model, x, steps=3).layers) for x in (short, long)]
    assert orders[0] == orders[1] == ["low", "high", "low#1", "high#1", "low#2", "high#2", "fc"]
    coverages = []
    for batches in ((short, long), (long, short)):
        coverage = nc.Coverage(model, [nc.SS()], steps=3)
        for x in batches:
            coverage.update(x)
        coverages.append(coverage)
    assert coverages[0].values() == coverages[1].values()
    other = nc.Coverage(model, [nc.SS()], steps=3)
    other.update(torch.randn(9, 2, 2))
    coverages[0].merge(other)
    assert coverages[0].inputs == 27


def test_a_sequence_without_batch_is_refused():
    with pytest.raises(nc.NeuralcovError, match=r"layer 'rnn' gave shape \(5, 4\)"):
        run(Recurrent(), torch.randn(5, 3))


def test_one_input_alone_packed():
    batch = run(Recurrent(), pack_sequence([torch.randn(2, 3)]))
    assert list(batch.layers) == ["rnn[0]", "rnn[1]", "fc"]
