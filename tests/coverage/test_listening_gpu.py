"""Listening on a GPU: values of ``assess`` to the bit, nothing waits, and single tokens are those of a CPU."""

import warnings

import pytest
import torch
from torch import nn

import neuralcov as nc

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning"),
]
FIXED = (nc.NC(0.5), nc.KMNC(10), nc.NBC(), nc.SNAC(), nc.TKNC(3), nc.NLC(), nc.NLC(rule="all"), nc.LVC())
GROWING = (nc.TKNP(3), nc.LCC(), nc.CC(1), nc.SS(), nc.LSC(1), nc.DSC(0.1), nc.MDSC(1))


def network():
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(288, 16), nn.ReLU())
    return nn.Sequential(*layers, nn.Linear(16, 5)).eval().cuda()


def images(count, seed):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(16, 3, 8, 8, generator=generator).cuda() for _ in range(count)]


def calibrated(model, criteria, **options):
    found = []
    for _ in range(2):
        coverage = nc.Coverage(model, criteria, cuda_graph=False, **options)
        coverage.calibrate(images(8, 1), progress=False)
        found.append(coverage)
    return found


@pytest.mark.parametrize("criterion", [*FIXED, *GROWING], ids=lambda criterion: criterion.name)
def test_values_equal_those_of_assess_to_the_bit(criterion):
    model, suite = network(), images(4, 2)
    assessed, heard = calibrated(model, [criterion])
    assessed.assess(suite, progress=False)
    with heard.listen(), torch.no_grad():
        for batch in suite:
            model(batch)
    assert heard.values() == assessed.values()


def test_autocast_of_the_user_is_heard_as_it_is_assessed():
    model, suite = network(), images(4, 2)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assessed, heard = calibrated(model, [nc.NC(0.5), nc.NLC(rule="all"), nc.LCC()])
        assessed.assess(suite, progress=False)
    with heard.listen(), torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
        for batch in suite:
            model(batch)
    assert heard.values() == assessed.values()


def test_a_pass_that_is_heard_never_waits_for_the_device():
    model, suite = network(), images(4, 2)
    heard = calibrated(model, FIXED)[1]
    with heard.listen(), torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for batch in suite[:2]:
            model(batch)
        torch.cuda.set_sync_debug_mode("warn")
        try:
            for batch in suite[2:]:
                model(batch)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert sum("synchronizing" in str(warning.message) for warning in caught) == 0


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.fc1, self.fc2, self.head = nn.Linear(4, 9), nn.Linear(9, 9), nn.Linear(9, 3)

    def forward(self, x, attention_mask):
        hidden = self.fc2(torch.relu(self.fc1(x)))
        return self.head((hidden * attention_mask[:, :, None]).sum(1) / attention_mask.sum(1, keepdim=True))


def test_tokens_are_those_of_a_cpu():
    model, x, mask = Tagger().eval(), torch.randn(30, 7, 4), torch.ones(30, 7, dtype=torch.long)
    mask[::3, 5:] = 0
    labels, found = torch.arange(30) % 3, {}
    for device in ("cpu", "cuda"):
        coverage = nc.Coverage(model.to(device), [nc.NLC(rule="all"), nc.LCC(), nc.NC(0.5)], pool="tokens")
        training = {"x": x + 0.1, "attention_mask": mask}
        coverage.calibrate([training], progress=False)
        coverage.assess([({"x": x, "attention_mask": mask}, labels)], progress=False, per_input=True)
        found[device] = coverage
    assert found["cuda"].inputs == found["cpu"].inputs == int(mask.sum())
    assert found["cuda"].values()["NLC(rule=all)"] == pytest.approx(found["cpu"].values()["NLC(rule=all)"], rel=1e-2)
    for column in ("id", "token", "label"):
        assert list(found["cuda"].per_input()[column]) == list(found["cpu"].per_input()[column])
    assert found["cuda"].has_runs_of(found["cpu"])


def test_steps_of_generate_on_a_gpu():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=2, n_embd=16, n_head=2, n_positions=64, vocab_size=50, bos_token_id=0, eos_token_id=1, pad_token_id=1
    )
    model = transformers.GPT2LMHeadModel(config).eval().cuda()
    prompt, mask = torch.randint(2, 50, (3, 5)).cuda(), torch.ones(3, 5, dtype=torch.long).cuda()
    mask[0, :2] = 0

    def use():
        return model.generate(prompt, attention_mask=mask, max_new_tokens=6, min_new_tokens=6, do_sample=False)

    expected = use()
    for pool, inputs in (("mean", 18), ("last", 18), ("tokens", 13 + 15)):
        coverage = nc.Coverage(model, [nc.NC(0.5), nc.NLC(rule="all")], pool=pool)
        with coverage.listen() as heard:
            assert torch.equal(use(), expected)
        assert (heard.passes, coverage.inputs) == (6, inputs)
        assert not coverage.findings()
