"""Masks in dictionaries, of torch's own encoders, of modules within modules, and lengths where there is none."""

import warnings

import pytest
import torch
from torch import nn

import neuralcov as nc
from tests.tap.masks_support import B, check, ids, make_seed, masked_mean, measure, outputs_of, tokens_of


@pytest.fixture(autouse=True)
def seed():
    return make_seed()


class Sentences(nn.Module):
    """As in sentence-transformers: modules that hand one dictionary of features on."""

    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.project = nn.Embedding(20, 8), nn.Linear(8, 6)

        def forward(self, features):
            return features | {"token_embeddings": self.project(self.embedding(features["input_ids"]))}

    def __init__(self):
        super().__init__()
        self.words, self.dense = self.Words(), nn.Linear(6, 4)

    def forward(self, features):
        features = self.words(features)
        kept = features["token_embeddings"] * features["attention_mask"][..., None]
        return self.dense(kept.sum(1) / features["attention_mask"].sum(1, keepdim=True))


def test_a_mask_in_a_dictionary_of_features():
    tokens, model = tokens_of([5, 2, 3], 5), Sentences()
    features = {"input_ids": ids(5), "attention_mask": tokens.long()}
    layers, _ = measure(model, (features,))
    check(layers, outputs_of(model, layers, lambda m: m(features)), {"": tokens})


def test_a_dictionary_of_features_made_inside():
    class Annotated(Sentences):
        def forward(self, features: dict[str, torch.Tensor]):
            return super().forward(features)

    class Around(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Annotated()

        def forward(self, words):
            return self.inner({"input_ids": words, "attention_mask": (words != 0).long()})

    tokens, model = tokens_of([5, 2, 3], 5), Around()
    words = ids(5) * tokens
    layers, _ = measure(model, words)
    check(layers, outputs_of(model, layers, lambda m: m(words)), {"": tokens})


def floats_of(tokens):
    return torch.zeros(tokens.shape).masked_fill(~tokens, -torch.inf)


@pytest.mark.parametrize("polarity", [torch.logical_not, floats_of, lambda tokens: (~tokens).to(torch.uint8)])
@pytest.mark.parametrize("positional", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_torch_encoders(polarity, positional, batch_first):
    """Given through the model, by position and by keyword, time first and batch first."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=batch_first)
            self.encoder, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(8, 4)

        def forward(self, x, mask):
            mask = mask.bool() if mask.dtype == torch.uint8 else mask
            x = self.encoder(x, None, mask) if positional else self.encoder(x, src_key_padding_mask=mask)
            return self.head(x.mean(1 if batch_first else 0))

    tokens, model = tokens_of([5, 2, 3, 4], 5), Model()
    x = torch.randn(4, 5, 8) if batch_first else torch.randn(5, 4, 8)
    inputs = (x, polarity(tokens))
    layers, _ = measure(model, inputs, batch_axis=0 if batch_first else 1)
    outputs = outputs_of(model, layers, lambda m: m(*inputs))
    if not batch_first:
        outputs = {name: o.transpose(0, 1) if o.dim() == 3 else o for name, o in outputs.items()}
    check(layers, outputs, {"": tokens})


@pytest.mark.parametrize("given", ["both", "source", "target"])
def test_torchs_transformer(given):
    source, target = tokens_of([5, 2, 3], 5), tokens_of([1, 5, 4], 5)
    masks = {
        "src_key_padding_mask": ~source if given != "target" else None,
        "tgt_key_padding_mask": ~target if given != "source" else None,
        "memory_key_padding_mask": ~source,
    }
    model = nn.Transformer(8, 2, 1, 2, 16, batch_first=True)
    inputs = {"src": torch.randn(B, 5, 8), "tgt": torch.randn(B, 5, 8), **masks}
    layers, _ = measure(model, inputs, quiet=given == "both")
    expected = {"encoder": source if given != "target" else None, "decoder": target if given != "source" else None}
    check(layers, outputs_of(model, layers, lambda m: m(**inputs)), expected)


def test_an_attention_whose_query_is_not_its_key_ignores_the_mask():
    class Cross(nn.Module):
        def __init__(self):
            super().__init__()
            self.own, self.cross = (nn.MultiheadAttention(8, 2, batch_first=True) for _ in range(2))

        def forward(self, x, memory, padding):
            x = self.own(x, x, x, key_padding_mask=padding)[0]
            return self.cross(x, memory, memory, key_padding_mask=padding)[0].mean(1)

    tokens, model = tokens_of([5, 2, 3], 5), Cross()
    inputs = (torch.randn(B, 5, 8), torch.randn(B, 5, 8), ~tokens)
    layers, _ = measure(model, inputs)
    check(layers, outputs_of(model, layers, lambda m: m(*inputs)), {"own": tokens, "cross": None})


def test_masks_of_attention_are_no_masks_of_padding():
    """A causal mask is (tokens, tokens), which with as many inputs as tokens looks like (inputs, tokens)."""
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    inputs = {"src": torch.randn(5, 5, 8), "src_mask": nn.Transformer.generate_square_subsequent_mask(5)}
    layers, _ = measure(model, inputs)
    check(layers, outputs_of(model, layers, lambda m: m(**inputs)), {"": None})


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 3)

    def forward(self, x, attention_mask=None):
        return self.fc(x)


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.before = Inner(), nn.Linear(2, 2)

    def forward(self, x, attention_mask, inner_mask=None):
        return self.inner(self.before(x), inner_mask).mean(1)


@pytest.mark.parametrize("given", [True, False])
def test_the_innermost_module_called_with_a_mask_decides(given):
    outer, inner = tokens_of([4, 1, 2], 4), tokens_of([2, 3, 4], 4)
    model, inputs = Outer(), (torch.randn(B, 4, 2), outer.float(), inner.int() if given else None)
    layers, _ = measure(model, inputs)
    expected = {"before": outer, "inner": inner if given else outer}
    check(layers, outputs_of(model, layers, lambda m: m(*inputs)), expected)


def test_two_masks_that_fit_settle_nothing():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(2, 3)

        def forward(self, x, attention_mask=None, padding_mask=None):
            return self.fc(x).mean(1)

    tokens, model = tokens_of([4, 1, 2], 4), Both()
    inputs = {"x": torch.randn(B, 4, 2), "attention_mask": tokens.long(), "padding_mask": tokens}
    layers, coverage = measure(model, inputs, quiet=False)
    check(layers, outputs_of(model, layers, lambda m: m(**inputs)), {"": None})
    with pytest.warns(nc.CoverageWarning, match="two masks fit the tokens of layer 'fc'"):
        coverage.assess([inputs])
    # One that has no padding leaves nothing unsettled worth a word.
    inputs = {"x": inputs["x"], "attention_mask": torch.ones(B, 4), "padding_mask": torch.zeros(B, 4).bool()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nc.Coverage(model, [nc.NC()]).assess([inputs])


def test_a_mask_that_fits_nothing_is_said():
    class Halves(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.fc = nn.Conv1d(2, 3, 2, stride=2), nn.Linear(3, 2)

        def forward(self, x, attention_mask):
            return self.fc(self.conv(x).transpose(1, 2)).mean(1)

    tokens, model, x = tokens_of([4, 1, 2], 4), Halves(), torch.randn(B, 2, 4)
    coverage = nc.Coverage(model, [nc.NC()])
    with pytest.warns(nc.CoverageWarning, match="tokens of layers 'conv', 'fc' could not be masked") as caught:
        coverage.assess([{"x": x, "attention_mask": tokens}])
    assert len(caught) == 1
    with pytest.warns(nc.CoverageWarning, match="tokens of layers 'conv', 'fc' could not be masked"):
        nc.Coverage(model, [nc.NC()]).assess(
            [{"x": x, "attention_mask": torch.ones(B, 4)}], lengths=lambda _: [4, 1, 2]
        )


def test_axes_beside_the_tokens():
    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(2, 3)

        def forward(self, x, attention_mask):
            return self.fc(x).mean((1, 2))

    tokens, model = tokens_of([4, 1, 2], 4), Heads()
    x = torch.randn(B, 4, 5, 2)
    layers, _ = measure(model, {"x": x, "attention_mask": tokens})
    torch.testing.assert_close(layers["fc"], masked_mean(model.fc(x).detach().mean(2), tokens))


class Steps(nn.Module):
    def __init__(self, cell=False):
        super().__init__()
        self.rnn = nn.GRUCell(2, 3) if cell else nn.GRU(2, 3, batch_first=True)

    def forward(self, x, attention_mask=None):
        if isinstance(self.rnn, nn.GRU):
            return self.rnn(x)[0][:, -1]
        state = None
        for step in range(x.shape[1]):
            state = self.rnn(x[:, step], state)
        return state


@pytest.mark.parametrize("cell", [True, False])
def test_steps_follow_the_mask_of_the_module_around(cell):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = Steps(cell), Steps(cell)

        def forward(self, x, y, mask_of_x, mask_of_y):
            return self.a(x, mask_of_x) + self.b(y, attention_mask=mask_of_y)

    one, two = tokens_of([4, 1, 2], 4), tokens_of([2, 3, 4], 4)
    inputs = (torch.randn(B, 4, 2), torch.randn(B, 4, 2), one, two)
    activations, _ = nc.Coverage(Two(), [nc.NC()]).run(inputs, predictions=False)
    for name, tokens in (("a", one), ("b", two)):
        for step in range(4):
            layer = (f"{name}.rnn#{step}" if step else f"{name}.rnn") if cell else f"{name}.rnn[{step}]"
            assert activations.present[layer].tolist() == tokens[:, step].tolist()


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 3)

    def forward(self, x):
        return self.fc(x).mean(1)


@pytest.mark.parametrize("way", ["function", "key"])
def test_lengths_of_a_loader(way):
    """Assessing and calibrating on padded inputs is that of the same inputs one by one, unpadded."""
    model, lengths = Tokens(), [4, 1, 2]
    x = [torch.randn(length, 2) for length in lengths]
    padded = nn.utils.rnn.pad_sequence(x, batch_first=True, padding_value=9.0)
    if way == "key":
        loader, said = [{"x": padded, "many": torch.tensor(lengths)}], "many"
    else:
        loader, said = [(padded, torch.tensor(lengths))], lambda item: item[1]
    one_by_one = [part[None] for part in x]
    criteria = [nc.KMNC(10), nc.NC(0.2)]
    found, expected = nc.Coverage(model, criteria), nc.Coverage(model, criteria)
    found.calibrate(loader, lengths=said, held_out=loader)
    expected.calibrate(one_by_one, held_out=one_by_one)
    for bound in ("low", "high"):
        ours, theirs = (getattr(coverage.criteria[0].learnt, bound) for coverage in (found, expected))
        torch.testing.assert_close(ours, theirs)
    found.assess(loader, lengths=said)
    expected.assess(one_by_one)
    assert found.values() == expected.values()


@pytest.mark.parametrize(
    ("lengths", "item", "message"),
    [
        ("many", (torch.randn(2, 3, 2),), "lengths='many' is no key of a batch of type tuple"),
        ("many", {"x": torch.randn(2, 3, 2)}, "lengths='many' is no key of a batch of keys x"),
        (7, torch.randn(2, 3, 2), "lengths=7: expected a function"),
        (lambda _: [1, 2, 3], torch.randn(2, 3, 2), "expected 2 integers, one per input"),
    ],
)
def test_lengths_that_are_none(lengths, item, message):
    with pytest.raises(nc.NeuralcovError, match=message):
        nc.Coverage(Tokens(), [nc.NC()]).assess([item], lengths=lengths)


def test_lengths_do_not_go_with_activations():
    with pytest.raises(nc.NeuralcovError, match="lengths= goes with a loader"):
        nc.Coverage(Tokens(), [nc.NC()]).calibrate(activations={"fc": torch.randn(3, 3)}, lengths="many")


def test_models_without_masks_have_no_further_hooks():
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Sequential(nn.Linear(2, 2)))
    coverage = nc.Coverage(model, [nc.NC()])
    with coverage.tap():
        assert sum(len(m._forward_pre_hooks) for m in model.modules()) == 0
        assert sum(len(m._forward_hooks) for m in model.modules()) == 2


def test_a_module_that_raises_within_a_pass_leaves_no_mask_behind():
    class Fails(Inner):
        def forward(self, x, attention_mask=None):
            raise ArithmeticError

    class Recovers(nn.Module):
        def __init__(self):
            super().__init__()
            self.fails, self.fc = Fails(), nn.Linear(2, 3)

        def forward(self, x, mask):
            try:
                self.fails(x, mask)
            except ArithmeticError:
                return self.fc(x).mean(1)

    model, x = Recovers(), torch.randn(B, 4, 2)
    layers, _ = measure(model, (x, tokens_of([1, 2, 3], 4)), layers="fc")
    torch.testing.assert_close(layers["fc"], model.fc(x).detach().mean(1))
