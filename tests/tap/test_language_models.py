"""Models of transformers, from small configurations, beside plain hooks and NumPy; arrays as JAX gives them."""

import numpy as np
import pytest
import torch
from torch import nn

import neuralcov as nc
from neuralcov.core.errors import LayerError
from neuralcov.tap import Tap
from tests.tap.plain_hooks import mean_of_tokens, nlc, outputs

transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning", "ignore::UserWarning")
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
TOKENS = torch.randint(3, 40, (5, 7), generator=torch.Generator().manual_seed(1))
MASK = torch.ones(5, 7, dtype=torch.long)
MASK[0, 4:] = 0
MASK[3, 2:] = 0


def text(config, cls, **more):
    torch.manual_seed(0)
    model = cls(config).eval()
    return model, {"input_ids": TOKENS, "attention_mask": MASK, **more}


def bert():
    config = transformers.BertConfig(vocab_size=40, max_position_embeddings=16, num_labels=3, **SMALL)
    return text(config, transformers.BertForSequenceClassification)


def gpt2():
    config = transformers.GPT2Config(n_layer=2, n_embd=16, n_head=2, n_positions=16, vocab_size=40)
    return text(config, transformers.GPT2LMHeadModel)


def llama():
    config = transformers.LlamaConfig(vocab_size=40, num_key_value_heads=2, max_position_embeddings=16, **SMALL)
    return text(config, transformers.LlamaForCausalLM)


def mixtral():
    config = transformers.MixtralConfig(
        vocab_size=40, num_key_value_heads=2, num_local_experts=4, max_position_embeddings=16, **SMALL
    )
    return text(config, transformers.MixtralForCausalLM)


def t5():
    config = transformers.T5Config(vocab_size=40, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2)
    ones = torch.ones(5, 4, dtype=torch.long)
    return text(
        config,
        transformers.T5ForConditionalGeneration,
        decoder_input_ids=TOKENS[:, :4].clone(),
        decoder_attention_mask=ones,
    )


def whisper():
    config = transformers.WhisperConfig(
        vocab_size=40, d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=24, decoder_ffn_dim=24, num_mel_bins=8, max_source_positions=10,
        max_target_positions=16, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    torch.manual_seed(0)
    sound = torch.randn(5, 8, 20)
    return transformers.WhisperModel(config).eval(), {"input_features": sound, "decoder_input_ids": TOKENS}


def vit():
    torch.manual_seed(0)
    config = transformers.ViTConfig(image_size=8, patch_size=4, num_labels=3, **SMALL)
    return transformers.ViTForImageClassification(config).eval(), {"pixel_values": torch.randn(5, 3, 8, 8)}


def clip():
    torch.manual_seed(0)
    parts = {"text_config": {"vocab_size": 40, "max_position_embeddings": 16, "eos_token_id": 2, **SMALL}}
    parts["vision_config"] = {"image_size": 8, "patch_size": 4, **SMALL}
    config = transformers.CLIPConfig(projection_dim=8, **parts)
    given = {"input_ids": TOKENS, "attention_mask": MASK, "pixel_values": torch.randn(5, 3, 8, 8)}
    return transformers.CLIPModel(config).eval(), given


# Tokens that a layer's mean is taken over: those of the text, or all.
SUBJECTS = {
    "BERT": (bert, {"bert.encoder.layer.1.intermediate.dense": MASK, "classifier": None}),
    "GPT-2": (gpt2, {"transformer.h.0.attn.c_attn": MASK, "transformer.h.1.mlp.c_fc": MASK}),
    "Llama": (llama, {"model.layers.0.self_attn.q_proj": MASK, "model.layers.1.mlp.up_proj": MASK}),
    "Mixtral": (mixtral, {"model.layers.1.self_attn.o_proj": MASK}),
    "T5": (t5, {"encoder.block.1.layer.1.DenseReluDense.wi": MASK, "decoder.block.1.layer.2.DenseReluDense.wo": None}),
    "Whisper": (whisper, {"encoder.layers.1.fc1": None, "decoder.layers.0.fc2": None}),
    "ViT": (vit, {"vit.*layers.1.*q_proj|vit.*layers.1.mlp.fc1": None}),
    "CLIP": (clip, {"text_model.encoder.layers.1.mlp.fc1": MASK, "vision_model.encoder.layers.0.mlp.fc2": None}),
}


@pytest.mark.parametrize("pool", ["mean", "tokens"])
def test_experts_kept_as_parameters_are_their_blocks_one_output(pool):
    model, given = mixtral()
    blocks = [f"model.layers.{number}.mlp.experts" for number in range(2)]
    assessed, heard = (nc.Coverage(model, [nc.NLC(rule="all")], pool=pool) for _ in range(2))
    assessed.assess([given])
    with heard.listen(), torch.no_grad():
        model(**given)
    assert heard.values() == assessed.values()
    by_layer = {row.layer: row.values["NLC(rule=all)"] for row in assessed.by_layer()}
    # Between attention and the next block, in the order in which they run.
    assert [name for name in by_layer if name in blocks or "o_proj" in name] == [
        f"model.layers.{number}.{part}" for number in range(2) for part in ("self_attn.o_proj", "mlp.experts")
    ]
    for name, values in outputs(model, given, blocks).items():
        tokens = values.reshape(5, 7, 16)
        rows = mean_of_tokens(tokens, MASK) if pool == "mean" else tokens[MASK.bool().numpy()]
        assert by_layer[name] == pytest.approx(nlc(rows), rel=1e-4)
    # What each expert computes is not seen.
    assert any("experts.gate_up_proj" in finding.sentence for finding in assessed.findings())


@pytest.mark.parametrize("name", SUBJECTS)
def test_values_are_those_of_plain_hooks(name):
    build, masks = SUBJECTS[name]
    model, given = build()
    masks = {
        layer: mask
        for globs, mask in masks.items()
        for layer in ([globs] if "*" not in globs else Tap(model, globs).chosen)
    }
    rows = {layer: mean_of_tokens(values, masks[layer]) for layer, values in outputs(model, given, masks).items()}
    assessed, heard = (nc.Coverage(model, [nc.NLC(rule="all"), nc.TKNC(2)], layers=list(masks)) for _ in range(2))
    assessed.assess([given])
    with heard.listen(), torch.no_grad():
        model(**given)
    assert heard.values() == assessed.values()
    by_layer = {row.layer: row.values for row in assessed.by_layer()}
    assert by_layer.keys() == rows.keys()
    for layer, values in rows.items():
        top = {int(i) for row in values for i in np.argsort(-row, kind="stable")[:2]}
        assert by_layer[layer]["NLC(rule=all)"] == pytest.approx(nlc(values), rel=1e-4)
        assert by_layer[layer]["TKNC(2)"] == len(top) / values.shape[1]


@pytest.mark.parametrize("name", SUBJECTS)
def test_neither_embeddings_nor_the_head_are_layers(name):
    model, given = SUBJECTS[name][0]()
    coverage = nc.Coverage(model, [nc.NC()])
    coverage.assess([given])
    chosen = {id(model.get_submodule(row.layer.partition("#")[0])) for row in coverage.by_layer()}
    assert not any(isinstance(m, nn.Embedding) and id(m) in chosen for m in model.modules())
    head = getattr(model, "lm_head", None)
    if head is not None:
        assert id(head) not in chosen
        assert "lm_head" in Tap(model, "lm_head").chosen
    assert len(chosen) > 4


@pytest.mark.parametrize(
    ("build", "blocks"),
    [
        (bert, ["bert.encoder.layer.0", "bert.encoder.layer.1"]),
        (gpt2, ["transformer.h.0", "transformer.h.1"]),
        (llama, ["model.layers.0", "model.layers.1"]),
        (mixtral, ["model.layers.0", "model.layers.1"]),
        (t5, ["encoder.block.0", "encoder.block.1", "decoder.block.0", "decoder.block.1"]),
    ],
)
def test_the_residual_stream(build, blocks):
    model, given = build()
    coverage = nc.Coverage(model, [nc.NLC(rule="all")], layers="residual")
    coverage.assess([given])
    assert [row.layer for row in coverage.by_layer()] == blocks
    assert {row.neurons for row in coverage.by_layer()} == {16}
    found = []

    def keep(module, args, output):
        found.append((output[0] if isinstance(output, tuple) else output).double().numpy().copy())

    handle = model.get_submodule(blocks[0]).register_forward_hook(keep)
    with torch.no_grad():
        model(**given)
    handle.remove()
    assert coverage.by_layer()[0].values["NLC(rule=all)"] == pytest.approx(
        nlc(mean_of_tokens(found[0], MASK)), rel=1e-4
    )


def test_models_without_blocks_have_no_residual_stream():
    with pytest.raises(LayerError, match="layers='residual': the model has no ModuleList"):
        Tap(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), "residual")
    named = nn.Sequential()
    named.add_module("residual", nn.Linear(2, 2))
    named.add_module("blocks", nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)]))
    assert list(Tap(named, "residual").chosen) == ["residual"]


def test_activations_in_bfloat16_of_numpy_as_jax_gives_them():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    values = torch.randn(9, 4, generator=torch.Generator().manual_seed(0)).bfloat16()
    given = values.float().numpy().astype(ml_dtypes.bfloat16)
    one, other = (nc.Coverage.of_layers({"fc": 4}, [nc.NLC(rule="all"), nc.NC(0.5)]) for _ in range(2))
    one.update(activations={"fc": given})
    other.update(activations={"fc": values})
    assert one.values() == other.values()


def test_activations_of_jax_in_bfloat16():
    jax = pytest.importorskip("jax")
    values = torch.randn(9, 4, generator=torch.Generator().manual_seed(0)).bfloat16()
    given = jax.numpy.asarray(values.float().numpy()).astype("bfloat16")
    one, other = (nc.Coverage.of_layers({"fc": 4}, [nc.NLC(rule="all"), nc.KMNC(10)]) for _ in range(2))
    one.calibrate(activations={"fc": given})
    other.calibrate(activations={"fc": values})
    one.update(activations={"fc": given[:5]})
    other.update(activations={"fc": values[:5]})
    assert one.values() == other.values()


def test_arrays_that_are_no_numbers_are_refused_in_one_sentence():
    coverage = nc.Coverage.of_layers({"fc": 1}, [nc.NC()])
    for given in (np.zeros((2, 1), dtype=[("a", "f4"), ("b", "f4")]), np.array([["a"], ["b"]])):
        with pytest.raises(nc.NeuralcovError, match=r"layer 'fc' have type .*: expected numbers"):
            coverage.update(activations={"fc": given})
