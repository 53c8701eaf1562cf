"""Padding is left out of layers' averages: every number is compared with hooks of the tests' own and plain means."""

import warnings

import pytest
import torch
from torch import nn

import neuralcov as nc
from tests.tap.masks_support import B, check, ids, make_seed, measure, outputs_of, tokens_of


@pytest.fixture(autouse=True)
def seed():
    return make_seed()


def t5():
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=20, d_model=8, d_kv=4, d_ff=16, num_layers=2, num_heads=2, decoder_start_token_id=0, pad_token_id=0
    )
    return T5ForConditionalGeneration(config)


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
