"""The naive forms that benchmarks compare with give what the criteria give: otherwise the comparison means nothing."""

import pytest
import torch
from benchmarks import naive
from torch import nn

import neuralcov as nc


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(80, 4), nn.Linear(4, 3)
    ).eval()


@pytest.fixture(scope="module")
def inputs():
    return torch.randn(90, 3, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def training():
    return torch.randn(200, 3, 8, 8, generator=torch.Generator().manual_seed(2))


def layers_of(network, inputs, size=30):
    return [naive.activations(network, batch) for batch in inputs.split(size)]


def ours(network, criterion, inputs, training):
    coverage = nc.Coverage(network, [criterion])
    with torch.no_grad():
        labels = network(training).argmax(1)
    if criterion.learns:
        coverage.calibrate([(training, labels)], progress=False)
    coverage.assess(inputs.split(30), progress=False)
    return coverage.values()[criterion.name]


def predicted(layers):
    return layers[-1].argmax(1)


@pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")
@pytest.mark.parametrize(
    ("criterion", "form"),
    [
        (nc.NC(0.75), lambda b, t: naive.nc(b)),
        (nc.KMNC(100), lambda b, t: naive.kmnc(b, [(a.min(0).values, a.max(0).values) for a in t])),
        (nc.NBC(), lambda b, t: naive.nbc(b, [(a.min(0).values, a.max(0).values) for a in t])),
        (nc.SNAC(), lambda b, t: naive.snac(b, [(a.min(0).values, a.max(0).values) for a in t])),
        (nc.TKNC(2), lambda b, t: naive.tknc(b, 2)),
        (nc.TKNP(2), lambda b, t: naive.tknp(b, 2)),
        (nc.NLC(), lambda b, t: naive.nlc(b)),
        (nc.LVC(), lambda b, t: naive.lvc(b, [torch.cov(a.double().T, correction=0) for a in t])),
        (nc.CC(0.3), lambda b, t: naive.cc(b, 0.3)),
        (nc.SS(), lambda b, t: naive.ss(b)),
        (nc.LSC(10), lambda b, t: naive.lsc(b, torch.cat(t, 1), predicted(t), predicted)),
        (nc.DSC(0.1), lambda b, t: naive.dsc(b, torch.cat(t, 1), predicted(t), predicted)),
        (nc.MDSC(10), lambda b, t: naive.mdsc(b, naive.mdsc_fits(torch.cat(t, 1), predicted(t)), predicted)),
    ],
    ids=lambda part: part.name if isinstance(part, nc.Criterion) else "",
)
def test_a_naive_form_gives_the_criterions_value(network, inputs, training, criterion, form):
    # A few inputs as well, since many show everything that can be shown.
    for some in (inputs[:9], inputs):
        found = form(layers_of(network, some), layers_of(network, training, 200)[0])
        assert found == pytest.approx(ours(network, criterion, some, training), rel=1e-5)
    assert found > 0


def test_naive_paths_cover_what_npc_covers(network, inputs, training):
    coverage = nc.Coverage(network, [nc.NPC(clusters=2)])
    with torch.no_grad():
        coverage.calibrate([(training, network(training).argmax(1))], progress=False)
    learnt = coverage.criteria[0].learnt.abstract
    abstract = {
        label: [set(path.nonzero()[:, 0].tolist()) for path in learnt.paths[index]]
        for index, label in enumerate(learnt.classes.tolist())
    }
    with coverage.tap():
        batches = [coverage.run(one)[0] for one in inputs.split(1)]
        found = naive.npc(((list(b.relevance.values()), b.predictions) for b in batches), abstract)
        for batch in batches:
            coverage.update(activations=batch)
    assert found == coverage.values()["NPC(0.7, clusters=2)"]
    assert found > 0
