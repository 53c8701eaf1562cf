"""What counts as a pass, and what its arguments were: on plain models, and on ``generate()`` of a language model."""

import numpy as np
import pytest
import torch
from torch import nn

import neuralcov as nc
from neuralcov.core.errors import InputError
from neuralcov.tap import Batch, Tap
from neuralcov.tap.listening import Ear, Heard, given
from neuralcov.tap.signatures import Form, form_of

transformers = pytest.importorskip("transformers")


def ear_of(tap, ended, **options):
    settings = {"relevance": False, "predictions": False, "readable": False, **options}
    return Ear(tap, begins=lambda: None, ends=lambda batch, labels, rows: ended.append((batch, labels)),
               counts=lambda model: True, **settings)  # fmt: skip


def hear(ear, model, inputs):
    """Listen to one pass."""
    with ear.open():
        model(inputs)


def hooks_of(model):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


class Steps(nn.Module):
    """Calls itself once more for every further step."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.fc = nn.Linear(3, 3)

    def forward(self, x, steps=1):
        x = self.fc(x)
        return x if steps == 1 else self(x, steps - 1)


def test_a_model_that_calls_itself_is_one_pass():
    model, ended, x = Steps().eval(), [], torch.randn(4, 3)
    with ear_of(Tap(model), ended).open() as heard:
        model(x, 3)
    assert (heard.passes, heard.inputs, len(ended)) == (1, 4, 1)
    layers = ended[0][0].layers
    assert list(layers) == ["fc", "fc#1", "fc#2"]
    with torch.no_grad():
        expected = [model.fc(x), model.fc(model.fc(x)), model(x, 3)]
    assert all(torch.equal(layers[name], value) for name, value in zip(layers, expected, strict=True))
    assert hooks_of(model) == 0


@pytest.mark.parametrize("depth", [1, 3])
def test_a_failed_pass_of_one_that_calls_itself(depth):
    model, ended = Steps().eval(), []
    broken = model.fc.register_forward_hook(lambda module, args, out: None)
    with ear_of(Tap(model), ended).open() as heard:
        with pytest.raises(RuntimeError):
            model(torch.randn(4, 5), depth)
        broken.remove()
        model(torch.randn(2, 3), depth)
    assert (heard.passes, heard.failed, len(ended)) == (1, 1, 1)
    assert hooks_of(model) == 0


def test_what_goes_wrong_in_our_hooks_comes_after_the_pass():
    """A problem of ours must not look like one of the model, nor keep it from its work."""

    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.odd, self.done = nn.Linear(3, 3), nn.Identity(), 0

        def forward(self, x):
            self.odd("no tensor")
            self.done += 1
            return self.fc(x)

    model, ended = Odd().eval(), []
    with pytest.raises(nc.NeuralcovError, match="returned a str without a tensor"):
        hear(ear_of(Tap(model, "odd|fc"), ended), model, torch.zeros(2, 3))
    assert model.done == 1
    assert not ended
    assert hooks_of(model) == 0


def test_inputs_without_an_order_of_rows_are_left_out_and_named():
    class Turned(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.side = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x):
            self.side(x.repeat(2, 1))
            return self.fc(x)

    model, ended = Turned().eval(), []
    with pytest.warns(nc.CoverageWarning, match="'side'"), ear_of(Tap(model), ended).open():
        model(torch.randn(2, 3))
    assert list(ended[0][0].layers) == ["fc"]
    # What a probe has found is used.
    tap = Tap(model)
    tap.probe(Batch(torch.randn(4, 3)))
    ended.clear()
    with ear_of(tap, ended).open():
        model(torch.randn(2, 3))
    assert list(ended[0][0].layers) == ["side", "fc"]


def test_a_chosen_layer_without_an_order_is_refused_with_advice():
    class Turned(nn.Module):
        def __init__(self):
            super().__init__()
            self.side = nn.Linear(3, 3)

        def forward(self, x):
            return self.side(x.repeat(2, 1)).sum(1)[:2]

    model = Turned().eval()
    with pytest.raises(nc.NeuralcovError, match="leaves open whose its rows are"):
        hear(ear_of(Tap(model, "side"), []), model, torch.randn(2, 3))
    assert hooks_of(model) == 0


def test_what_a_call_was_given():
    class Two(nn.Module):
        def forward(self, a, b=None, labels=None):
            return a

    form, x, y = form_of(Two()), torch.zeros(2), torch.ones(2)
    assert given((x,), {}, form) == (x, None)
    assert given((x, y), {}, form) == ((x, y), None)
    assert given((x,), {"labels": 5}, form) == ({"a": x}, 5)
    assert given((x,), {"b": y}, form) == ({"a": x, "b": y}, None)
    assert given((), {"a": x, "labels": 5}, form) == ({"a": x}, 5)
    assert given((1, 2), {"c": 3}, Form()) == ({"c": 3, "*0": 1, "*1": 2}, None)


def test_blocks_add_up():
    one, other = Heard(2, 5, skipped={"a": 1}), Heard(3, 6, failed=1, skipped={"a": 2, "b": 1}, outside={"c": 1})
    one.add(other)
    assert one == Heard(5, 11, failed=1, skipped={"a": 3, "b": 1}, outside={"c": 1})


def gpt2():
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=2, n_embd=16, n_head=2, n_positions=64, vocab_size=50, bos_token_id=0, eos_token_id=1, pad_token_id=1
    )
    return transformers.GPT2LMHeadModel(config).eval()


def inner_outputs(model, name, use):
    """What one module returned in every call, found by a plain hook."""
    found = []
    module = model.get_submodule(name)
    handle = module.register_forward_hook(lambda _, __, out: found.append(out.detach().double().numpy().copy()))
    use()
    handle.remove()
    return found


@pytest.mark.parametrize("new", [1, 6])
def test_every_step_of_generate_is_a_pass(new):
    model = gpt2()
    prompt = torch.randint(2, 50, (3, 5), generator=torch.Generator().manual_seed(1))

    def use():
        return model.generate(prompt, max_new_tokens=new, min_new_tokens=new, do_sample=False)

    expected = use()
    outputs = inner_outputs(model, "transformer.h.1.mlp.c_fc", use)
    coverage = nc.Coverage(model, [nc.NLC(rule="all"), nc.TKNC(3)], layers="transformer.h.1.mlp.c_fc")
    with coverage.listen() as heard:
        assert torch.equal(use(), expected)
    assert (heard.passes, heard.inputs, coverage.inputs) == (new, 3 * new, 3 * new)
    # The first step has the whole prompt, the others a token each; every row is an input of its own.
    assert [out.shape[1] for out in outputs] == [5] + [1] * (new - 1)
    rows = np.concatenate([out.mean(1) for out in outputs])
    spread = np.abs(np.cov(rows.T, bias=True)).sum() / rows.shape[1] ** 2
    top = {int(i) for row in rows for i in np.argsort(-row, kind="stable")[:3]}
    values = coverage.values()
    assert values["NLC(rule=all)"] == pytest.approx(spread, rel=1e-5)
    assert values["TKNC(3)"] == len(top) / rows.shape[1]
    assert hooks_of(model) == 0


def test_generate_with_steps_of_varying_number_and_masks():
    """Prompts of unlike lengths, padded on the left, and texts that end early: passes of one coverage all the same."""
    model = gpt2()
    coverage = nc.Coverage(model, [nc.NLC(rule="all"), nc.LCC(over="mean")])
    calls = []
    model.register_forward_hook(lambda *_: calls.append(1))
    prompts = [torch.randint(2, 50, (size, length)) for size, length in ((2, 4), (3, 9), (1, 3))]
    with coverage.listen(calibrate=True):
        for prompt in prompts:
            model.generate(prompt, max_new_tokens=5, do_sample=False)
    calls.clear()
    with coverage.listen() as heard:
        for prompt, new in zip(prompts, (3, 8, 1), strict=True):
            mask = torch.ones_like(prompt)
            mask[:1, :2] = 0
            model.generate(prompt, attention_mask=mask, max_new_tokens=new, min_new_tokens=new, do_sample=False)
    assert heard.passes == len(calls) == 12
    assert heard.inputs == coverage.inputs == 2 * 3 + 3 * 8 + 1
    assert not heard.skipped
    assert all(value > 0 for value in coverage.values().values())


def test_beams_are_inputs_of_their_own():
    model = gpt2()
    prompt = torch.randint(2, 50, (2, 5), generator=torch.Generator().manual_seed(3))
    with nc.watch(model, [nc.TKNC(1)]) as coverage:
        model.generate(prompt, max_new_tokens=4, min_new_tokens=4, num_beams=3, do_sample=False)
    heard = coverage._measurement.heard
    assert heard.inputs == coverage.inputs == 3 * 2 * heard.passes


def test_relevance_is_not_heard_in_inference_mode():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
    ear = ear_of(Tap(model), [], relevance=True, predictions=True)
    with pytest.raises(InputError, match=r"inference mode: run the model under torch.no_grad\(\)"):
        torch.inference_mode()(hear)(ear, model, torch.zeros(2, 3))
    assert hooks_of(model) == 0


@pytest.mark.parametrize("pool", ["mean", "tokens"])
def test_steps_with_a_cache_are_masked_by_the_end_of_the_mask(pool):
    """Prompts padded on the left: the mask is of all tokens so far, of which those before the last lie in a cache."""
    model, layer = gpt2(), "transformer.h.1.mlp.c_fc"
    prompt, mask = torch.randint(2, 50, (3, 5)), torch.ones(3, 5, dtype=torch.long)
    mask[0, :2] = 0

    def use():
        model.generate(prompt, attention_mask=mask, max_new_tokens=4, min_new_tokens=4, do_sample=False)

    first, *others = inner_outputs(model, layer, use)
    coverage = nc.Coverage(model, [nc.NLC(rule="all")], layers=layer, pool=pool)
    with coverage.listen():
        use()
    assert not coverage.findings()
    kept = mask.bool().numpy()
    whole = [row[there] for row, there in zip(first, kept, strict=True)]
    rows = np.concatenate([*whole, *(out[:, 0] for out in others)])
    if pool == "mean":
        rows = np.concatenate([np.stack([row.mean(0) for row in whole]), *(out[:, 0] for out in others)])
    assert coverage.inputs == len(rows)
    spread = np.abs(np.cov(rows.T, bias=True)).sum() / rows.shape[1] ** 2
    assert coverage.values()["NLC(rule=all)"] == pytest.approx(spread, rel=1e-5)


def test_a_chunk_of_a_prompt_is_masked_by_its_own_part_of_the_mask():
    """A prompt in two chunks, as long prompts are run: padding within the second one does not count."""
    model, layer = gpt2(), "transformer.h.0.mlp.c_fc"
    ids, mask = torch.randint(2, 50, (2, 6)), torch.ones(2, 6, dtype=torch.long)
    mask[1, 4:] = 0
    coverage = nc.Coverage(model, [nc.NC(0.5)], layers=layer, pool="tokens")
    with coverage.listen(), torch.no_grad():
        cache = model(ids[:, :3], attention_mask=mask[:, :3], use_cache=True).past_key_values
        model(ids[:, 3:], attention_mask=mask, past_key_values=cache)
    assert coverage.inputs == int(mask.sum())
    assert not coverage.findings()


def test_an_encoder_that_generate_calls_by_itself_has_a_coverage_of_its_own():
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=40, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2, decoder_start_token_id=0, pad_token_id=0
    )
    model = transformers.T5ForConditionalGeneration(config).eval()
    prompt, mask = torch.randint(3, 40, (5, 7)), torch.ones(5, 7, dtype=torch.long)
    mask[0, 4:] = 0
    whole = nc.Coverage(model, [nc.NLC(rule="all")], layers="decoder.*wi")
    encoder = nc.Coverage(model.get_encoder(), [nc.NLC(rule="all")])
    with whole.listen() as heard, encoder.listen() as by_itself:
        model.generate(prompt, attention_mask=mask, max_new_tokens=4, min_new_tokens=4, do_sample=False)
    assert (heard.passes, by_itself.passes) == (4, 1)
    assert encoder.inputs == 5
    again = nc.Coverage(model.get_encoder(), [nc.NLC(rule="all")])
    again.assess([{"input_ids": prompt, "attention_mask": mask}])
    assert again.values() == encoder.values()
