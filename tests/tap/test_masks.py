"""Padding is left out of layers' averages: every number is compared with hooks of the tests' own and plain means."""

import warnings

import pytest
import torch
from torch import nn

import neuralcov as nc

B = 3


def outputs_of(model, names, call):
    """What modules return in one pass, by name."""
    found, handles = {}, []
    for name in names:
        module = model.get_submodule(name)

        def keep(module, args, output, name=name):
            found[name] = (output[0] if isinstance(output, tuple) else output).detach().clone()

        handles.append(module.register_forward_hook(keep))
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad():
            call(model.eval())
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        for handle in handles:
            handle.remove()
    return found


def masked_mean(output, tokens):
    """Row by row, the mean over an input's own tokens."""
    return torch.stack([rows[keep.bool()].mean(0) for rows, keep in zip(output, tokens, strict=True)])


def tokens_of(lengths, width):
    return torch.arange(width) < torch.tensor(lengths)[:, None]


def measure(model, inputs, quiet=True, **options):
    coverage = nc.Coverage(model, [nc.NC()], **options)
    with warnings.catch_warnings():
        if quiet:
            warnings.simplefilter("error", nc.CoverageWarning)
        activations, _ = coverage.run(inputs, predictions=False)
        if quiet:
            coverage.update(activations=activations)
            coverage.values()
    return activations.layers, coverage


def check(layers, outputs, tokens_by_prefix):
    """Every layer against the plain mean; the longest prefix of its name says which tokens it has."""
    for name, values in layers.items():
        prefix = max((p for p in tokens_by_prefix if name.startswith(p)), key=len)
        tokens, output = tokens_by_prefix[prefix], outputs[name]
        if output.dim() == 2:
            expected = output
        elif output.dim() == 4:
            expected = output.flatten(2).mean(2)
        else:
            expected = output.mean(1) if tokens is None else masked_mean(output, tokens)
        torch.testing.assert_close(values, expected, msg=lambda text, name=name: f"{name}: {text}")


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def t5():
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=20, d_model=8, d_kv=4, d_ff=16, num_layers=2, num_heads=2, decoder_start_token_id=0, pad_token_id=0
    )
    return T5ForConditionalGeneration(config)


def ids(width, rows=B):
    return torch.randint(1, 20, (rows, width))


@pytest.mark.parametrize("decoder_width", [6, 4])
def test_t5_has_a_mask_for_each_of_its_halves(decoder_width):
    source, target = tokens_of([6, 2, 4], 6), tokens_of([1, 3, decoder_width], decoder_width)
    inputs = {
        "input_ids": ids(6),
        "decoder_input_ids": ids(decoder_width),
        "attention_mask": source.long(),
        "decoder_attention_mask": target.long(),
    }
    model = t5()
    layers, _ = measure(model, inputs)
    assert "lm_head" not in layers
    assert len(layers) == 2 * (4 + 2) + 2 * (8 + 2)
    check(layers, outputs_of(model, layers, lambda m: m(**inputs)), halves(source, target))


def halves(source, target):
    """Keys and values of a decoder's attention to its encoder are of the encoder's tokens."""
    crossing = {f"decoder.block.{i}.layer.1.EncDecAttention.{part}": source for i in range(2) for part in "kv"}
    return {"encoder": source, "decoder": target} | crossing


def test_t5_without_a_mask_of_its_decoder():
    """As many tokens as the encoder's: its mask is still none of theirs, and that they are unmasked is said."""
    source = tokens_of([6, 2, 4], 6)
    inputs = {"input_ids": ids(6), "decoder_input_ids": ids(6), "attention_mask": source.long()}
    model = t5()
    layers, coverage = measure(model, inputs, quiet=False)
    check(layers, outputs_of(model, layers, lambda m: m(**inputs)), halves(source, None))
    coverage.update(inputs)
    with pytest.warns(nc.CoverageWarning, match=r"tokens of layers 'decoder.block.0.*could not be masked") as caught:
        coverage.values()
    assert "'encoder" not in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        coverage.values()


def test_t5_without_a_mask_of_its_encoder():
    target = tokens_of([6, 2, 4], 6)
    inputs = {"input_ids": ids(6), "decoder_input_ids": ids(6), "decoder_attention_mask": target.long()}
    model = t5()
    layers, _ = measure(model, inputs, quiet=False)
    check(layers, outputs_of(model, layers, lambda m: m(**inputs)), halves(None, target))


def clip(image_size=6):
    from transformers import CLIPConfig, CLIPModel

    part = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    text = part | {"vocab_size": 20, "max_position_embeddings": 12, "eos_token_id": 19, "bos_token_id": 0}
    config = CLIPConfig(
        text_config=text, vision_config=part | {"image_size": image_size, "patch_size": 2}, projection_dim=8
    )
    return CLIPModel(config)


@pytest.mark.parametrize("width", [10, 7])
def test_clips_images_have_no_mask(width):
    """3 · 3 patches and one token for the class make 10, as many as the texts have in the first case."""
    tokens = tokens_of([width, 3, 5], width)
    inputs = {"input_ids": ids(width), "pixel_values": torch.randn(B, 3, 6, 6), "attention_mask": tokens.long()}
    model = clip()
    layers, _ = measure(model, inputs, quiet=width != 10)
    names = {"text": tokens, "vision": None, "visual": None}
    check(layers, outputs_of(model, layers, lambda m: m(**inputs)), names)


def bert(head="BertForTokenClassification", **options):
    import transformers

    config = transformers.BertConfig(
        vocab_size=20,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
        **options,
    )
    return getattr(transformers, head)(config)


@pytest.mark.parametrize("head", ["BertForTokenClassification", "BertForMaskedLM", "BertForSequenceClassification"])
@pytest.mark.parametrize("lengths", [[5, 2, 3], [5, 5, 5]])
def test_bert(head, lengths):
    tokens, model = tokens_of(lengths, 5), bert(head)
    inputs = {"input_ids": ids(5), "attention_mask": tokens.long()}
    layers, _ = measure(model, inputs)
    check(layers, outputs_of(model, layers, lambda m: m(**inputs)), {"": tokens})


def test_a_decoder_made_of_bert_has_its_own_mask_and_ignores_the_encoders():
    model = bert("BertModel", is_decoder=True, add_cross_attention=True)
    tokens, others = tokens_of([5, 2, 3], 5), tokens_of([1, 5, 1], 5)
    inputs = {
        "input_ids": ids(5),
        "attention_mask": tokens.long(),
        "encoder_hidden_states": torch.randn(B, 5, 8),
        "encoder_attention_mask": others.long(),
    }
    layers, _ = measure(model, inputs)
    crossing = [f"encoder.layer.{i}.crossattention.self.{part}" for i in range(2) for part in ("key", "value")]
    assert set(crossing) <= set(layers)
    expected = {"": tokens} | dict.fromkeys(crossing, others)
    check(layers, outputs_of(model, layers, lambda m: m(**inputs)), expected)


def test_padding_further_changes_nothing():
    model, words = bert(), ids(5)
    tokens = tokens_of([5, 2, 3], 5).long()
    short, _ = measure(model, {"input_ids": words, "attention_mask": tokens})
    wide = {
        "input_ids": nn.functional.pad(words, (0, 4)),
        "attention_mask": nn.functional.pad(tokens, (0, 4)),
    }
    long, _ = measure(model, wide)
    for name, values in short.items():
        torch.testing.assert_close(long[name], values)
    alone, _ = measure(model, {"input_ids": words[1:2, :2]})
    for name, values in short.items():
        torch.testing.assert_close(alone[name], values[1:2])


def whisper():
    from transformers import WhisperConfig, WhisperModel

    config = WhisperConfig(
        vocab_size=20,
        num_mel_bins=4,
        d_model=8,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        max_source_positions=6,
        max_target_positions=8,
        pad_token_id=0,
        bos_token_id=0,
        eos_token_id=0,
        decoder_start_token_id=0,
        apply_spec_augment=False,
    )
    return WhisperModel(config)


def test_whispers_frames_are_halved_behind_its_mask():
    frames, target = tokens_of([12, 4, 8], 12), tokens_of([5, 2, 3], 5)
    inputs = {
        "input_features": torch.randn(B, 4, 12),
        "attention_mask": frames.long(),
        "decoder_input_ids": ids(5),
        "decoder_attention_mask": target.long(),
    }
    model = whisper()
    layers, coverage = measure(model, inputs, quiet=False)
    outputs = outputs_of(model, layers, lambda m: m(**inputs))
    for name in ("encoder.conv1", "encoder.conv2"):
        outputs[name] = outputs[name].transpose(1, 2)
    crossing = [f"decoder.layers.0.encoder_attn.{part}_proj" for part in "kv"]
    expected = {"encoder": None, "encoder.conv1": frames, "decoder": target} | dict.fromkeys(crossing)
    check(layers, outputs, expected)
    coverage.update(inputs)
    with pytest.warns(nc.CoverageWarning) as caught:
        coverage.values()
    sentence = str(caught[0].message)
    assert "'encoder.conv2', 'encoder.layers.0" in sentence
    assert "conv1'" not in sentence
    assert "'decoder.layers.0.self_attn" not in sentence


def test_a_decoder_alone_has_the_mask_it_is_called_with():
    """Whisper's takes no mask of the frames it attends to, of which there are as many as tokens here."""
    tokens, model = tokens_of([5, 2, 3], 5), whisper().decoder
    inputs = {"input_ids": ids(5), "attention_mask": tokens.long(), "encoder_hidden_states": torch.randn(B, 5, 8)}
    layers, _ = measure(model, inputs)
    crossing = dict.fromkeys(f"layers.0.encoder_attn.{part}_proj" for part in "kv")
    check(layers, outputs_of(model, layers, lambda m: m(**inputs)), {"": tokens} | crossing)


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
