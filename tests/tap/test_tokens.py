"""Every unmasked token as an input of its own, beside NumPy on what plain hooks see."""

import numpy as np
import pytest
import torch
from torch import nn

import neuralcov as nc
from neuralcov.tap import Batch, Tap
from neuralcov.tap.tokens import TokenRows
from tests.tap.plain_hooks import nlc, outputs

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning", "ignore::UserWarning")
TOKENS = torch.randn(6, 5, 4, generator=torch.Generator().manual_seed(0))
MASK = torch.tensor(
    [[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 0, 1, 1, 0], [1, 0, 0, 0, 0], [0, 0, 0, 0, 1], [0, 1, 0, 1, 0]]
)
WHERE = [(i, t) for i, row in enumerate(MASK.tolist()) for t, there in enumerate(row) if there]
LABELS = torch.tensor([0, 1, 0, 1, 1, 0])


class Tagger(nn.Module):
    """Two layers of tokens and one of whole inputs."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.fc1, self.fc2, self.head = nn.Linear(4, 3), nn.Linear(3, 5), nn.Linear(5, 2)

    def forward(self, x, attention_mask=None):
        hidden = self.fc2(torch.relu_(self.fc1(x)))
        weights = torch.ones(x.shape[:2]) if attention_mask is None else attention_mask.float()
        return self.head((hidden * weights[:, :, None]).sum(1) / weights.sum(1, keepdim=True).clamp(min=1))


class Towers(nn.Module):
    """An encoder and a decoder, each with its own tokens."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.encoder, self.decoder = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x, y):
        return self.decoder(y) + self.encoder(x).mean(1, keepdim=True)


def given(mask=MASK):
    return {"x": TOKENS, "attention_mask": mask}


def test_rows_are_the_unmasked_tokens_in_order():
    model = Tagger().eval()
    batch, _ = Tap(model, pool="tokens").run(Batch(given(), LABELS), predictions=True)
    found = outputs(model, given(), ["fc1", "fc2", "head"])
    inputs, places = np.array(WHERE).T
    assert batch.size == len(WHERE) == int(MASK.sum())
    # fc1's output is overwritten in place afterwards; what the hook above copied is from before.
    assert np.array_equal(batch.layers["fc1"].numpy(), found["fc1"][inputs, places])
    assert np.array_equal(batch.layers["fc2"].numpy(), found["fc2"][inputs, places])
    assert np.array_equal(batch.layers["head"].numpy(), found["head"][inputs])
    assert not batch.present
    assert batch.tokens.tolist() == [list(row) for row in WHERE]
    assert batch.labels.tolist() == LABELS[inputs].tolist()
    assert batch.predictions.tolist() == found["head"].argmax(1)[inputs].tolist()


def test_without_a_mask_every_token_counts():
    model = Tagger().eval()
    batch, _ = Tap(model, pool="tokens").run(Batch(TOKENS))
    assert batch.size == 30
    assert np.array_equal(batch.layers["fc1"].numpy(), outputs(model, {"x": TOKENS}, ["fc1"])["fc1"].reshape(30, 3))


def test_values_by_hand_and_by_any_batches():
    model = Tagger().eval()
    inputs, places = np.array(WHERE).T
    rows = outputs(model, given(), ["fc1"])["fc1"][inputs, places]
    values = []
    for size in (6, 2, 1):
        cov = nc.Coverage(model, [nc.NLC(rule="all"), nc.TKNC(1), nc.NC(0.5), nc.CC(0.5)], layers="fc1", pool="tokens")
        cov.assess({"x": TOKENS[at : at + size], "attention_mask": MASK[at : at + size]} for at in range(0, 6, size))
        assert cov.inputs == len(WHERE)
        values.append(cov.values())
    assert values[1] == pytest.approx(values[0], rel=1e-6)
    assert values[2] == pytest.approx(values[0], rel=1e-6)
    assert values[0]["NLC(rule=all)"] == pytest.approx(nlc(rows), rel=1e-5)
    assert values[0]["TKNC(1)"] == len({int(row.argmax()) for row in rows}) / 3
    scaled = (rows - rows.min(1, keepdims=True)) / np.ptp(rows, axis=1, keepdims=True)
    assert values[0]["NC(0.5)"] == (scaled > 0.5).any(0).mean()
    bare = nc.Coverage.of_layers({"fc1": 3}, [nc.NLC(rule="all"), nc.TKNC(1), nc.NC(0.5), nc.CC(0.5)])
    bare.update(activations={"fc1": rows})
    assert bare.values() == pytest.approx(values[0], rel=1e-6)


def test_heard_as_assessed_with_labels():
    model = Tagger().eval()
    training = [({"x": TOKENS + shift, "attention_mask": MASK}, LABELS) for shift in (0.0, 0.1, 0.3)]
    criteria = [nc.NC(0.5), nc.LCC(), nc.DSC(0.1), nc.LSC(1.0, by="label")]
    assessed, heard = (nc.Coverage(model, criteria, pool="tokens") for _ in range(2))
    for coverage in (assessed, heard):
        coverage.calibrate(training)
    assessed.assess([(given(), LABELS), (given(1 - MASK), LABELS)])
    with heard.listen() as block, torch.no_grad():
        for mask in (MASK, 1 - MASK):
            model(**given(mask))
            heard.labels(LABELS)
    assert heard.values() == assessed.values()
    assert heard.details() == assessed.details()
    assert block.inputs == heard.inputs == assessed.inputs == 30
    # Scores are those of the tokens, and need the labels of these.
    assert heard.scores(given(), LABELS)["LSC(1, by=label)"].shape == (len(WHERE),)
    with heard.listen(), torch.no_grad():
        model(**given())
        with pytest.raises(nc.NeuralcovError, match="5 labels for 6 inputs"):
            heard.labels(LABELS[:5])
        heard.labels(LABELS)


def test_towers_of_other_lengths_lack_each_others_rows():
    model, x, y = Towers().eval(), TOKENS, TOKENS[:, :2] + 1
    batch, _ = Tap(model, pool="tokens").run(Batch((x, y)))
    assert batch.size == 30
    assert "encoder" not in batch.present
    assert batch.present["decoder"].tolist() == [place < 2 for _ in range(6) for place in range(5)]
    found = outputs(model, {"x": x, "y": y}, ["decoder"])["decoder"]
    assert np.array_equal(batch.layers["decoder"][batch.present["decoder"]].numpy(), found.reshape(12, 3))
    coverage = nc.Coverage(model, [nc.NLC(rule="all")], pool="tokens")
    coverage.update((x, y))
    by_layer = {row.layer: row.values["NLC(rule=all)"] for row in coverage.by_layer()}
    assert by_layer["decoder"] == pytest.approx(nlc(found.reshape(12, 3)), rel=1e-5)


def test_names_travel_with_tokens():
    model = Tagger().eval()
    names, weather = [f"text {i}" for i in range(6)], ["sun", "rain"] * 3
    coverage = nc.Coverage(model, [nc.NC(0.5)], pool="tokens")
    coverage.assess(
        [Batch(given(), LABELS, ids=names, metadata={"weather": weather})], slices=["weather"], per_input=True
    )
    table = coverage.per_input()
    assert list(zip(table["id"], table["token"], strict=True)) == [(names[i], t) for i, t in WHERE]
    assert list(table["label"]) == [LABELS[i] for i, _ in WHERE]
    assert list(table["weather"]) == [weather[i] for i, _ in WHERE]
    rows = {row.slice: row.inputs for row in coverage.by_slice()[0].rows}
    assert rows == {w: sum(weather[i] == w for i, _ in WHERE) for w in ("sun", "rain")}
    unnamed = nc.Coverage(model, [nc.NC(0.5)], pool="tokens")
    unnamed.assess([given(), given(1 - MASK)], per_input=True)
    more = [(6 + i, t) for i in range(6) for t in range(5) if (i, t) not in WHERE]
    table = unnamed.per_input()
    assert list(zip(table["id"], table["token"], strict=True)) == [*WHERE, *more]


def test_tokens_have_keys_of_their_own_and_the_folds_of_their_input():
    model = Tagger().eval()
    batch, _ = Tap(model, pool="tokens").run(Batch(given()))
    whole, _ = Tap(model).run(Batch(given()))
    inputs = [i for i, _ in WHERE]
    assert len({tuple(key) for key in batch.keys.tolist()}) == len(WHERE)
    assert batch.folds(10).tolist() == whole.folds(10)[inputs].tolist()
    assert batch.sources.tolist() == whole.keys[inputs].tolist()
    # A token's key does not depend on the batch it comes in.
    alone, _ = Tap(model, pool="tokens").run(Batch({"x": TOKENS[2:3], "attention_mask": MASK[2:3]}))
    assert alone.keys.tolist() == batch.keys[[i for i, at in enumerate(inputs) if at == 2]].tolist()
    part = batch.take(torch.tensor([3, 0]))
    assert part.tokens.tolist() == [list(WHERE[3]), list(WHERE[0])]
    assert part.folds(10).tolist() == batch.folds(10)[[3, 0]].tolist()
    joined = type(batch).cat([part, batch])
    assert joined.folds(10).tolist() == [*part.folds(10).tolist(), *batch.folds(10).tolist()]


def test_what_is_held_out_is_held_out_by_input():
    model = Tagger().eval()
    coverage = nc.Coverage(model, [nc.NC(0.5)], pool="tokens")
    data = [{"x": TOKENS + at, "attention_mask": torch.ones(6, 5, dtype=torch.long)} for at in range(10)]
    coverage.calibrate(data, held_out=0.5)
    assert coverage.calibration.seen % 5 == 0  # whole inputs of five tokens
    assert 0 < coverage.calibration.seen < 300


def test_gains_are_those_of_tokens_and_admission_goes_token_by_token():
    model = Tagger().eval()
    coverage = nc.Coverage(model, [nc.NC(0.5)], layers="fc1|fc2", pool="tokens")
    one = torch.zeros_like(MASK[:1])
    one[0, 0] = 1
    coverage.update({"x": TOKENS[:1], "attention_mask": one})
    assert coverage.inputs == 1
    gains = coverage.gain(given())["NC(0.5)"]
    assert gains.shape == (len(WHERE),)
    before = coverage.values()["NC(0.5)"]
    admitted = coverage.admit(given())
    assert admitted.shape == (len(WHERE),)
    # The first token that gains is admitted, and a later one only for what is still uncovered then.
    assert bool((gains > 0).any())
    assert int(admitted.nonzero()[0]) == int((gains > 0).nonzero()[0])
    assert not bool((admitted & (gains <= 0)).any())
    assert float(gains.max()) <= coverage.values()["NC(0.5)"] - before <= float(gains[admitted].sum()) + 1e-12


def test_an_input_of_padding_alone_has_no_token():
    mask = MASK.clone()
    mask[3] = 0
    coverage = nc.Coverage(Tagger().eval(), [nc.NC(0.5), nc.NLC(rule="all")], pool="tokens")
    coverage.update(given(mask))
    assert coverage.inputs == int(mask.sum())
    coverage.update({"x": TOKENS[:2], "attention_mask": torch.zeros(2, 5, dtype=torch.long)})
    assert coverage.inputs == int(mask.sum())


def test_nan_in_a_token_leaves_out_that_token_alone():
    x = TOKENS.clone()
    x[0, 2] = torch.nan
    coverage = nc.Coverage(Tagger().eval(), [nc.NC(0.5)], layers="fc1", pool="tokens")
    coverage.update({"x": x, "attention_mask": MASK})
    assert coverage.inputs == len(WHERE)
    assert "1 input" in coverage.findings()[0].sentence


def test_lengths_say_which_tokens_count():
    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.fc = nn.Linear(4, 3)

        def forward(self, x):
            return self.fc(x)

    coverage = nc.Coverage(Plain().eval(), [nc.NC(0.5)], pool="tokens")
    coverage.update(TOKENS, lengths=torch.tensor([5, 3, 2, 4, 1, 5]))
    assert coverage.inputs == 20


def test_images_and_recurrent_steps_belong_to_every_token_or_to_whole_inputs():
    conv, images = nn.Conv2d(1, 3, 3).eval(), torch.randn(4, 1, 6, 6)
    batch, _ = Tap(conv, pool="tokens").run(Batch(images))
    assert batch.size == 4
    assert batch.tokens is None

    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.lstm, self.fc = nn.LSTM(4, 3, batch_first=True), nn.Linear(3, 2)

        def forward(self, x):
            return self.fc(self.lstm(x)[0])

    batch, _ = Tap(Reader().eval(), pool="tokens").run(Batch(TOKENS))
    assert batch.size == 30
    assert list(batch.layers) == [*(f"lstm[{t}]" for t in range(5)), "fc"]
    steps = batch.layers["lstm[2]"].view(6, 5, 3)
    assert torch.equal(steps, steps[:, :1].expand(6, 5, 3))


def test_experts_have_the_tokens_that_were_routed_to_them():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.SwitchTransformersConfig(
        vocab_size=40, d_model=8, d_kv=4, d_ff=12, num_layers=2, num_sparse_encoder_layers=2, num_heads=2, num_experts=3
    )
    model = transformers.SwitchTransformersEncoderModel(config).eval()
    ids, mask = torch.randint(1, 40, (10, 6)), torch.ones(10, 6, dtype=torch.long)
    mask[:, 4:] = 0
    mask[2, 1:] = 0
    batch, _ = Tap(model, pool="tokens").run(Batch({"input_ids": ids, "attention_mask": mask}))
    assert batch.size == int(mask.sum())
    experts = [layer for layer in batch.layers if "expert_" in layer and layer.endswith("wo")]
    blocks = sorted({layer.partition(".expert_")[0] for layer in experts})
    found = outputs(
        model, {"input_ids": ids, "attention_mask": mask}, [f"{b.rpartition('.')[0]}.experts" for b in blocks]
    )
    for block in blocks:
        mine = [layer for layer in experts if layer.startswith(block)]
        # Every token goes to one expert at most, whose output is what the block gives but for the router's weight.
        there = torch.stack([batch.present[layer] for layer in mine])
        assert bool((there.sum(0) <= 1).all())
        assert bool(there.any())
        whole = torch.from_numpy(found[block].reshape(60, 8)).float()[mask.flatten().bool()]
        for layer, rows in zip(mine, there, strict=True):
            ours, theirs = batch.layers[layer][rows], whole[rows]
            cosine = nn.functional.cosine_similarity(ours, theirs, dim=1)
            torch.testing.assert_close(cosine, torch.ones_like(cosine), atol=1e-4, rtol=0)
    coverage = nc.Coverage(model, [nc.NC(0.5)], pool="tokens")
    coverage.update({"input_ids": ids, "attention_mask": mask})
    assert 0 < coverage.values()["NC(0.5)"] <= 1


def test_states_keep_it(tmp_path):
    model = Tagger().eval()
    first = nc.Coverage(model, [nc.NC(0.5), nc.NLC(rule="all")], pool="tokens")
    first.assess([given()], keep_inputs=True)
    first.save(tmp_path / "tokens.ncov")
    again = nc.Coverage.load(tmp_path / "tokens.ncov", model)
    assert again.pool == "tokens"
    again.update(given(1 - MASK))
    first.update(given(1 - MASK))
    assert again.values() == first.values()
    assert again.inputs == 30
    other = nc.Coverage(model, [nc.NC(0.5), nc.NLC(rule="all")])
    other.update(TOKENS)
    with pytest.raises(nc.NeuralcovError, match="tokens are pooled otherwise"):
        other.merge(first, overlap="allow")


def test_the_first_tokens_of_a_decoder_are_no_duplicates():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_layer=2, n_embd=16, n_head=2, n_positions=16, vocab_size=40)
    model = transformers.GPT2LMHeadModel(config).eval()
    ids = torch.randint(3, 40, (40, 7))
    ids[:, 0] = 1
    coverage = nc.Coverage(model, [nc.LCC()], pool="tokens")
    coverage.calibrate([{"input_ids": torch.randint(3, 40, (60, 7))}])
    coverage.assess([{"input_ids": ids}])
    assert coverage.inputs == 280
    assert not any("duplicate" in alarm.name for alarm in coverage.sanity().alarms)


def test_what_takes_inputs_whole_is_refused():
    model = Tagger().eval()
    with pytest.raises(nc.NeuralcovError, match="relevance goes with pool='mean'"):
        nc.Coverage(model, [nc.NPC()], pool="tokens").calibrate([(given(), LABELS)])
    coverage = nc.Coverage(model, [nc.NC(0.5)], pool="tokens")
    for asked in (lambda: nc.rank(coverage, [TOKENS]), lambda: nc.minimise(coverage, [TOKENS], keep=0.9)):
        with pytest.raises(nc.NeuralcovError, match="pool='tokens' makes an input of every token"):
            asked()
    with pytest.raises(nc.NeuralcovError, match="pool='tokens' makes an input of every token"):
        nc.Fuzzer(coverage, torch.rand(4, 1, 8, 8))


def test_rows_said_by_the_user_are_refused():
    model = Tagger().eval()
    coverage = nc.Coverage(
        model, [nc.NC(0.5)], pool="tokens", rows=lambda layer, out: torch.arange(len(out)) if layer == "fc1" else None
    )
    with pytest.raises(nc.NeuralcovError, match="layer 'fc1' has rows by rows= or by experts"):
        coverage.update(TOKENS)


def test_no_rows_where_there_are_no_tokens():
    assert TokenRows.of({"fc": torch.zeros(3, 2)}, {}) is None
