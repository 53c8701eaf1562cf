"""Programs that ``torch.export`` made, beside the models that they were made of."""

import pytest
import torch
from torch import nn

import neuralcov as nc
from neuralcov.core.errors import InputError, LayerError
from neuralcov.sources.models import load_model
from neuralcov.tap import Tap

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning", "ignore::FutureWarning")
IMAGES = torch.randn(50, 1, 8, 8, generator=torch.Generator().manual_seed(0))
CRITERIA = (nc.NC(0.5), nc.KMNC(10), nc.TKNC(2), nc.NLC(), nc.LCC())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)
        self.blocks = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5))
        self.twice, self.drop = nn.Linear(5, 5), nn.Dropout(0.5)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x))).mean((2, 3))
        return self.drop(self.twice(self.twice(self.blocks(x))))


def exported(model, *given, batch=True):
    shapes = tuple({0: torch.export.Dim("batch", min=1)} for _ in given) if batch else None
    return torch.export.export(model, given, dynamic_shapes=shapes)


def measured(model, inputs=IMAGES, **options):
    coverage = nc.Coverage(model, CRITERIA, **options)
    coverage.calibrate([inputs[:30]])
    coverage.assess([(inputs[30:40], torch.arange(10) % 5), (inputs[40:], torch.arange(10) % 5)])
    return coverage


def test_values_layers_and_identity_are_those_of_the_model():
    net = Net().eval()
    theirs, ours = measured(net), measured(exported(net, IMAGES[:4]))
    assert ours.values() == theirs.values()
    assert ours.by_layer() == theirs.by_layer()
    assert [row.layer for row in ours.by_layer()] == ["conv", "blocks.0", "blocks.2", "twice", "twice#1"]
    assert ours.sanity() == theirs.sanity()
    assert ours.provenance()["model"]["id"] == theirs.provenance()["model"]["id"]


def test_a_loaded_program_is_listened_to(tmp_path):
    net = Net().eval()
    torch.export.save(exported(net, IMAGES[:4]), tmp_path / "net.pt2")
    coverage = nc.Coverage(torch.export.load(tmp_path / "net.pt2"), [nc.NC(0.5), nc.NLC()])
    with coverage.listen() as heard, torch.no_grad():
        scores = coverage.model(IMAGES[:20])
    assert (heard.passes, heard.training) == (1, 0)
    plain = nc.Coverage(net, [nc.NC(0.5), nc.NLC()])
    plain.update(IMAGES[:20])
    assert coverage.values() == plain.values()
    with torch.no_grad():
        assert torch.equal(scores, net(IMAGES[:20]))


def test_a_batch_of_one_size_alone():
    """Without a dynamic batch axis the program takes batches of its size, and no probe."""
    net = Net().eval()
    coverage = nc.Coverage(exported(net, IMAGES[:10], batch=False), [nc.NLC()])
    coverage.assess([IMAGES[:10], IMAGES[10:20]])
    plain = nc.Coverage(net, [nc.NLC()])
    plain.assess([IMAGES[:10], IMAGES[10:20]])
    assert coverage.values() == plain.values()


class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.fc, self.attention = nn.Linear(4, 4), nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x):
        x = self.fc(x)
        return self.attention(x, x, x, need_weights=False)[0].mean(1)


def test_what_forgot_how_it_lies_is_named():
    program = exported(Attends().eval(), torch.randn(4, 3, 4))
    with pytest.warns(nc.CoverageWarning, match="1 layer cannot be measured, .* exported modules .*'attention'"):
        coverage = nc.Coverage(program, [nc.NC(0.5)])
    coverage.assess([torch.randn(6, 3, 4)])
    assert [row.layer for row in coverage.by_layer()] == ["fc"]
    with pytest.raises(LayerError, match="'attention'"):
        nc.Coverage(program, [nc.NC(0.5)], layers="attention")


def test_layers_of_transformers():
    transformers = pytest.importorskip("transformers")
    layer = transformers.pytorch_utils.Conv1D(6, 4).eval()
    model = nn.Sequential(layer, nn.Linear(6, 2))
    assert list(Tap(exported(model, torch.randn(4, 3, 4))).chosen) == ["0", "1"]


def test_files_are_refused_in_one_sentence(tmp_path):
    torch.export.save(exported(Net().eval(), IMAGES[:4]), tmp_path / "net.pt2")
    for use in (lambda name: nc.Coverage(name, [nc.NC()]), load_model):
        with pytest.raises(InputError, match=r"net.pt2: reading a .pt2 file unpickles .* torch.export.load"):
            use(str(tmp_path / "net.pt2"))


def test_a_factory_may_give_a_program(tmp_path, monkeypatch):
    (tmp_path / "models_of_mine.py").write_text(
        "import torch\n\ndef build():\n    net = torch.nn.Sequential(torch.nn.Linear(4, 3)).eval()\n"
        "    return torch.export.export(net, (torch.zeros(2, 4),))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert list(Tap(load_model("models_of_mine:build")).chosen) == ["0"]
