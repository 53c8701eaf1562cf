"""Layers measured apart on the same inputs, put side by side: the numbers of one process that held all of them."""

import pytest
import torch
from torch import nn

import neuralcov as nc
from tests.distributed.group_ranks import CLASSES, SUITE, TRAINING, Net

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")
TO_THE_BIT = [
    nc.NC(0.5),
    nc.NC(0.25, errors=True),
    nc.KMNC(10, errors=True),
    nc.NBC(),
    nc.SNAC(),
    nc.TKNC(2),
    nc.CC(1.5),
    nc.CC(2, squared=True),
    nc.NLC(),
    nc.NLC(rule="all"),
    nc.NLC(classes=CLASSES),
    nc.NLC(sketch=5),
]
ROUNDED = [nc.LVC(), nc.LVC(relative=True), nc.LVC(groups=3), nc.LVC(sketch=5)]
ACROSS = [
    nc.TKNP(2),
    nc.SS(),
    nc.LSC(1),
    nc.DSC(0.1),
    nc.MDSC(0.5),
    nc.NPC(clusters=2, buckets=20),
    nc.LCC(),
]
STAGED = (nc.NLC(), nc.KMNC(10, errors=True), nc.LVC())


def measured(layers=None, criteria=(*TO_THE_BIT, *ROUNDED), suite=SUITE, net=None, **options):
    cov = nc.Coverage(Net() if net is None else net, criteria, layers=layers, **options)
    cov.calibrate(TRAINING)
    cov.assess(suite)
    return cov


@pytest.fixture(scope="module")
def whole():
    return measured()


@pytest.mark.parametrize(
    "parts", [("up", "down|head"), ("up|down", "head"), ("up", "down", "head")], ids=lambda parts: " + ".join(parts)
)
def test_values_are_those_of_one_process(whole, parts):
    united = nc.Coverage.united([measured(layers) for layers in parts])
    again = nc.Coverage.from_bytes(united.to_bytes())
    for cov in (united, again):
        values, expected = cov.values(), whole.values()
        for criterion in TO_THE_BIT:
            name = criterion.name
            assert values[name] == expected[name], name
            assert cov.details().get(name) == whole.details().get(name), name
            rows = zip(cov.by_layer(), whole.by_layer(), strict=True)
            assert all(one.values.get(name) == other.values.get(name) for one, other in rows), name
        for criterion in ROUNDED:
            assert values[criterion.name] == pytest.approx(expected[criterion.name], rel=1e-12, abs=0), criterion.name
        assert list(cov.layout) == list(whole.layout)
        assert cov.inputs == whole.inputs == 59
        assert cov.sanity() == whole.sanity()
        assert cov.provenance()["model"] == whole.provenance()["model"]
    # An input's length is that over all its layers, which nobody saw together.
    assert "beyond" in whole.details()["LVC"]
    assert "LVC" not in united.details()


def test_what_was_learnt_of_the_layers_is_learnt_of_all(whole):
    """More inputs, given as activations, count as they do for one process."""
    united = nc.Coverage.united([measured("up"), measured("down|head")])
    more = whole.run(*TRAINING[0])[0]
    both = [united, whole.fork()]
    for cov in both:
        cov.update(activations=more)
    assert both[0].values() == pytest.approx(both[1].values(), rel=1e-12, abs=0)


@pytest.mark.parametrize("criterion", ACROSS, ids=lambda criterion: criterion.name)
def test_criteria_that_look_at_layers_together_are_refused(criterion):
    parts = [measured(layers, [criterion]) for layers in ("up", "down|head")]
    with pytest.raises(nc.NeuralcovError) as found:
        nc.Coverage.united(parts)
    assert str(found.value) == (
        f"{criterion.name} looks at several layers of an input together, which were never in one place: measure it in "
        "a process that holds all layers, or leave it out"
    )


def test_shards_of_united_layers_merge():
    shards = [SUITE[:4], SUITE[4:]]
    parts = [nc.Coverage.united([measured(layers, suite=shard) for layers in ("up", "down|head")]) for shard in shards]
    parts[0].merge(parts[1])
    merged = measured(suite=shards[0])
    merged.merge(measured(suite=shards[1]))
    assert parts[0].values() == pytest.approx(merged.values(), rel=1e-12, abs=0)
    assert parts[0].calibration_ids()["KMNC(10)"] != merged.calibration_ids()["KMNC(10)"]  # learnt apart


class First(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.up = net.up

    def forward(self, x):
        return torch.relu(self.up(x))


class Second(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.down, self.head = net.down, net.head

    def forward(self, x):
        return self.head(torch.relu(self.down(x)))


def stages(criteria=STAGED):
    """Two stages, the second of which has the first's outputs for inputs."""
    first, second = First(Net()), Second(Net())
    found = []
    for net, before in ((first, lambda x: x), (second, first)):
        cov = nc.Coverage(net, criteria)
        with torch.no_grad():
            cov.calibrate([(before(x), y) for x, y in TRAINING])
            cov.assess([(before(x), y) for x, y in SUITE])
        found.append(cov)
    return found


def test_stages_of_a_pipeline_have_other_inputs():
    parts = stages()
    with pytest.raises(nc.NeuralcovError, match=r"not known to be the same inputs.*over=\"stages\""):
        nc.Coverage.united(parts)
    united = nc.Coverage.united(parts, over="stages")
    expected = measured(None, united.criteria)
    assert united.values() == pytest.approx(expected.values(), rel=1e-12, abs=0)
    assert {name: united.values()[name] for name in ("NLC", "KMNC(10)")} == {
        name: expected.values()[name] for name in ("NLC", "KMNC(10)")
    }
    # Which fold an input is dealt to follows from its key, and that of a later stage is another.
    assert "error" in expected.details()["KMNC(10)"]
    assert "KMNC(10)" not in united.details()
    model = united.provenance()["model"]
    assert model["class"] == "First + Second"
    assert model["stages"] == [part.provenance()["model"]["id"] for part in parts]
    with pytest.raises(nc.NeuralcovError, match=r"LVC\(groups=2\): which fold an input is dealt to.*without groups="):
        nc.Coverage.united(stages([nc.LVC(groups=2)]), over="stages")


def test_one_sentence_for_what_does_not_belong_together():
    one, other = measured("up", [nc.NC(0.5)]), measured("down|head", [nc.NC(0.5)])
    shorter = measured("down|head", [nc.NC(0.5)], suite=SUITE[:3])
    broken = [(torch.where(torch.arange(9)[:, None] == 3, torch.nan, x), y) for x, y in SUITE[:1]]
    for parts, over, said in (
        ([one, measured("up|down", [nc.NC(0.5)])], "layers", "layer 'up' is in two parts"),
        ([one, shorter], "layers", "59 inputs with plain keys here and 27 inputs with plain keys there are not known"),
        ([one, shorter], "stages", r"NC\(0.5\): one part has 59 inputs, of which 0 were excluded, another 27"),
        ([one, measured("down", [nc.NC(0.25)])], "layers", "criteria differ"),
        ([one, nc.Coverage(Net(), [nc.NC(0.5)], layers="down")], "layers", "one part has observed nothing"),
        ([one, measured("head", [nc.NC(0.5)], keys="none")], "layers", "no keys there are not known"),
        ([one, other], "inputs", "over='inputs': expected 'layers' or 'stages'"),
        (
            [measured("up", [nc.NC(0.5)], broken), measured("head", [nc.NC(0.5)], SUITE[:1])],
            "stages",
            "1 were excluded",
        ),
        ([], "layers", "give at least one coverage"),
    ):
        with pytest.raises(nc.NeuralcovError, match=said):
            nc.Coverage.united(parts, over=over)
    torch.manual_seed(5)
    with pytest.raises(nc.NeuralcovError, match="models differ"):
        nc.Coverage.united([one, measured("head", [nc.NC(0.5)], net=_trained_otherwise())])


def _trained_otherwise():
    net = Net()
    nn.init.normal_(net.head.weight)
    return net
