"""Statically quantised models, and those with scripted and traced parts."""

import pytest
import torch
from torch import nn

import neuralcov as nc
from neuralcov.core.errors import LayerError
from tests.tap.plain_hooks import nlc

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning", "ignore::UserWarning")


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
    with pytest.raises(
        LayerError, match="2 layers cannot be measured, inside scripted, traced or exported modules that run"
    ):
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
