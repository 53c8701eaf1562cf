"""Models of transformers, from small configurations, and others of unusual forms, beside plain hooks and NumPy."""

import numpy as np
import pytest
import torch
from torch import nn

import neuralcov as nc
from neuralcov.core.errors import LayerError
from neuralcov.tap import Tap

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


def outputs(model, given, modules):
    """What modules returned, by plain hooks, in float64 NumPy."""
    found, handles = {}, []
    for name in modules:
        module = model.get_submodule(name)
        handles.append(
            module.register_forward_hook(lambda _, __, out, n=name: found.update({n: out.double().numpy().copy()}))
        )
    with torch.no_grad():
        model(**given)
    for handle in handles:
        handle.remove()
    return found


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


def mean_of_tokens(values, mask):
    if values.ndim == 2:
        return values
    weights = np.ones(values.shape[:2]) if mask is None else mask.double().numpy()
    return (values * weights[:, :, None]).sum(1) / weights.sum(1, keepdims=True)


def nlc(rows):
    return np.abs(np.cov(rows.T, bias=True)).sum() / rows.shape[1] ** 2


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


class Detector(nn.Module):
    """Takes a list of images of unlike sizes, and gives boxes for each."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.backbone, self.head = nn.Conv2d(3, 6, 3, padding=1), nn.Linear(6, 4)

    def forward(self, images):
        side = max(image.shape[-1] for image in images)
        padded = [nn.functional.pad(i, (0, side - i.shape[2], 0, side - i.shape[1])) for i in images]
        features = torch.relu(self.backbone(torch.stack(padded)))
        return [{"boxes": self.head(one.flatten(1).T)} for one in features]


def test_a_detector_that_takes_a_list_of_images():
    model = Detector().eval()
    images = [torch.randn(3, 8, 8), torch.randn(3, 8, 8), torch.randn(3, 8, 8), torch.randn(3, 8, 8)]
    heard, assessed = (nc.Coverage(model, [nc.NLC(rule="all")], layers="backbone") for _ in range(2))
    assessed.assess([images])
    with heard.listen(), torch.no_grad():
        model(images)
    with torch.no_grad():
        rows = model.backbone(torch.stack(images)).double().mean((2, 3)).numpy()
    assert heard.values() == assessed.values()
    assert assessed.inputs == 4
    assert assessed.values()["NLC(rule=all)"] == pytest.approx(nlc(rows), rel=1e-4)


class TimedUNet(nn.Module):
    """A U-Net of one level that is also given a time step for each input."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.time, self.down, self.up = nn.Linear(4, 5), nn.Conv2d(1, 5, 3, 2, 1), nn.ConvTranspose2d(5, 1, 4, 2, 1)

    def forward(self, x, t):
        angles = t[:, None] * torch.tensor([1.0, 0.1, 0.01, 0.001])
        return x + self.up(torch.relu(self.down(x) + self.time(angles.sin())[:, :, None, None]))


def test_a_unet_with_a_time_step():
    model, x, t = TimedUNet().eval(), torch.randn(6, 1, 8, 8), torch.arange(6.0)
    heard, assessed = (nc.Coverage(model, [nc.NLC(rule="all")]) for _ in range(2))
    assessed.assess([(x, t)])
    with heard.listen(), torch.no_grad():
        model(x, t)
    assert heard.values() == assessed.values()
    found = outputs(model, {"x": x, "t": t}, ["time", "down", "up"])
    rows = {name: v if v.ndim == 2 else v.mean((2, 3)) for name, v in found.items()}
    by_layer = {row.layer: row.values["NLC(rule=all)"] for row in assessed.by_layer()}
    for name in ("time", "down"):
        assert by_layer[name] == pytest.approx(nlc(rows[name]), rel=1e-4)
    assert by_layer["up"] == pytest.approx(rows["up"].var(), rel=1e-4)


class Graphs(nn.Module):
    """Several graphs of one size in a batch: features of nodes, and who is whose neighbour."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.fc1, self.fc2, self.out = nn.Linear(3, 6), nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, nodes, edges):
        hidden = torch.relu(self.fc1(edges @ nodes))
        return self.out(torch.relu(self.fc2(edges @ hidden)).mean(1))


def test_a_graph_network():
    model, nodes = Graphs().eval(), torch.randn(5, 7, 3)
    edges = (torch.rand(5, 7, 7) < 0.4).float()
    coverage = nc.Coverage(model, [nc.NLC(rule="all")])
    coverage.assess([(nodes, edges)])
    found = outputs(model, {"nodes": nodes, "edges": edges}, ["fc1", "fc2", "out"])
    for row in coverage.by_layer():
        assert row.values["NLC(rule=all)"] == pytest.approx(nlc(mean_of_tokens(found[row.layer], None)), rel=1e-4)


class JoinedGraphs(nn.Module):
    """Graphs of unlike sizes, their nodes one behind the other: whose a node is, a vector says."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.fc1, self.fc2, self.out = nn.Linear(3, 6), nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, nodes, edges, graph):
        hidden = nodes
        for layer in (self.fc1, self.fc2):
            around = torch.zeros_like(hidden).index_add_(0, edges[1], hidden[edges[0]])
            hidden = torch.relu(layer(around))
        return self.out(torch.zeros(int(graph.max()) + 1, 6).index_add_(0, graph, hidden))


def joined_graphs():
    sizes = [3, 5, 4, 6, 2]
    graph = torch.repeat_interleave(torch.arange(5), torch.tensor(sizes))
    starts = np.cumsum([0, *sizes[:-1]])
    edges = [(s + i, s + (i + 1) % n) for s, n in zip(starts, sizes, strict=True) for i in range(n)]
    return torch.randn(20, 3, generator=torch.Generator().manual_seed(0)), torch.tensor(edges).T, graph


@pytest.mark.parametrize("way", ["assess", "listen"])
def test_graphs_of_unlike_sizes(way):
    model, (nodes, edges, graph) = JoinedGraphs().eval(), joined_graphs()

    def rows(layer, output):
        return None if layer == "out" else graph

    def number(given):
        return int(given[2].max()) + 1

    coverage = nc.Coverage(
        model, [nc.NLC(rule="all")], rows=rows, unpack=lambda given: (given, torch.arange(5), number(given))
    )
    if way == "assess":
        coverage.assess([(nodes, edges, graph)])
    else:
        with coverage.listen(batch=number), torch.no_grad():
            model(nodes, edges, graph)
            coverage.labels(torch.arange(5))
    assert coverage.inputs == 5
    found = outputs(model, {"nodes": nodes, "edges": edges, "graph": graph}, ["fc1", "fc2", "out"])
    for row in coverage.by_layer():
        values = found[row.layer]
        whole = values if row.layer == "out" else np.stack([values[graph == g].mean(0) for g in range(5)])
        assert row.values["NLC(rule=all)"] == pytest.approx(nlc(whole), rel=1e-4)


def test_graphs_of_which_nothing_is_said():
    model, given = JoinedGraphs().eval(), joined_graphs()
    coverage = nc.Coverage(model, [nc.NC()])
    with pytest.raises(nc.NeuralcovError, match=r"pass listen\(batch=\)"), coverage.listen(), torch.no_grad():
        model(*given)
    unsaid = nc.Coverage(model, [nc.NC()], unpack=lambda given: (given, None, 5))
    with pytest.raises(LayerError, match="no layer tells which of its rows belong to which input, such as 'fc1'"):
        unsaid.assess([given])


def test_the_argument_with_one_row_per_input_is_named():
    class Scored(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.fc = nn.Linear(4, 3)

        def forward(self, anchors, images):
            return self.fc(images) + anchors.sum()

    model, anchors, images = Scored().eval(), torch.randn(9, 2), torch.randn(6, 4)
    for call in (lambda: model(anchors, images), lambda: model(images=images, anchors=anchors)):
        coverage = nc.Coverage(model, [nc.NLC(rule="all")])
        with coverage.listen(batch="images"), torch.no_grad():
            call()
        assert coverage.inputs == 6
        with torch.no_grad():
            rows = model.fc(images).double().numpy()
        assert coverage.values()["NLC(rule=all)"] == pytest.approx(nlc(rows), rel=1e-4)


class Quantised(nn.Module):
    """A small network as static quantisation makes it, of layers that give 8-bit numbers with a scale."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.quant, self.dequant = torch.ao.quantization.QuantStub(), torch.ao.quantization.DeQuantStub()
        self.conv, self.relu, self.fc = nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Linear(4, 3)

    def forward(self, x):
        x = self.relu(self.conv(self.quant(x)))
        return self.dequant(self.fc(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1)))


@pytest.fixture
def quantised():
    engines = [name for name in ("fbgemm", "onednn", "qnnpack") if name in torch.backends.quantized.supported_engines]
    if not engines:
        pytest.skip("this build of torch has no quantised operations")
    before, torch.backends.quantized.engine = torch.backends.quantized.engine, engines[0]
    net = Quantised().eval()
    net.qconfig = torch.ao.quantization.get_default_qconfig(engines[0])
    net = torch.ao.quantization.fuse_modules(net, [["conv", "relu"]])
    torch.ao.quantization.prepare(net, inplace=True)
    net(torch.randn(20, 1, 6, 6, generator=torch.Generator().manual_seed(2)))
    torch.ao.quantization.convert(net, inplace=True)
    yield net
    torch.backends.quantized.engine = before


def test_statically_quantised_layers_are_measured_by_the_numbers_they_stand_for(quantised):
    inputs = torch.randn(9, 1, 6, 6, generator=torch.Generator().manual_seed(3))
    heard, assessed = (nc.Coverage(quantised, [nc.NLC(rule="all"), nc.TKNC(1)]) for _ in range(2))
    assessed.assess([inputs])
    with heard.listen(), torch.no_grad():
        quantised(inputs)
    found, handles = {}, []
    for name in ("conv", "fc"):
        module = getattr(quantised, name)
        handles.append(
            module.register_forward_hook(
                lambda _, __, out, n=name: found.update({n: out.dequantize().double().numpy()})
            )
        )
    quantised(inputs)
    by_layer = {row.layer: row.values["NLC(rule=all)"] for row in assessed.by_layer()}
    assert by_layer == {
        "conv": pytest.approx(nlc(found["conv"].mean((2, 3))), rel=1e-5),
        "fc": pytest.approx(nlc(found["fc"]), rel=1e-5),
    }
    assert heard.values() == assessed.values()


def test_scripted_models_are_refused_in_one_sentence_unless_they_are_parts():
    scripted = torch.jit.script(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)))
    with pytest.raises(LayerError, match="parts of scripted, traced or exported modules that run"):
        nc.Coverage(scripted, [nc.NC()])
    whole = nn.Sequential(torch.jit.script(nn.Linear(4, 3)), nn.ReLU(), nn.Linear(3, 2)).eval()
    inputs = torch.randn(6, 4)
    with nc.watch(whole, [nc.NLC(rule="all")], layers="0") as coverage:
        whole(inputs)
    rows = whole[0](inputs).detach().double().numpy()
    assert coverage.values()["NLC(rule=all)"] == pytest.approx(nlc(rows), rel=1e-5)


@pytest.mark.parametrize("part", [torch.jit.script, lambda part: torch.jit.trace(part, torch.randn(2, 4))])
def test_a_model_with_a_scripted_part_is_watched_for_changed_weights(part):
    torch.manual_seed(0)
    model = nn.Sequential(part(nn.Linear(4, 3).eval()), nn.ReLU(), nn.Linear(3, 2)).eval()
    first, second = torch.randn(2, 6, 4)
    assessed, heard = (nc.Coverage(model, [nc.NLC(rule="all")], layers="2") for _ in range(2))
    assessed.assess([first, second])
    with heard.listen(), torch.no_grad():
        model(first)
        model(second)
    assert heard.values() == assessed.values()
    assert heard.inputs == 12
    with torch.no_grad():
        model[0].weight += 1
    with pytest.raises(nc.NeuralcovError, match="weights changed"):
        assessed.update(first)


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
