"""Every criterion, with several settings, under every law."""

import pytest

import neuralcov as nc
from neuralcov.core.criterion import Criterion
from neuralcov.core.find_criterion import criterion_class
from neuralcov.testing import check_criterion

CRITERIA = [
    nc.NC(),
    nc.NC(0),
    nc.KMNC(1),
    nc.KMNC(7),
    nc.NBC(),
    nc.SNAC(),
    nc.TKNC(1),
    nc.TKNC(3),
    nc.TKNP(1),
    nc.TKNP(2),
    nc.SS(),
    nc.CC(1),
    nc.CC(2, squared=True),
    nc.LSC(1),
    nc.LSC(1, 0.5, by=None, min_variance=0),
    nc.DSC(0.1),
    nc.DSC(0.2, by="label", upper=2.0),
    nc.MDSC(0.5),
    nc.MDSC(0.5, by="label"),
    nc.NPC(clusters=2, buckets=7),
    nc.NPC(0.5, 0.6, 2, 4, "activation"),
    nc.NLC(),
    nc.NLC(rule="all"),
    nc.NLC(classes=3),
    nc.NLC(classes=2, rule="all"),
    nc.LVC(),
    nc.LVC(relative=True),
    nc.LVC(groups=4),
    nc.LCC(),
    nc.LCC(over="trimmed"),
    nc.LCC(resolution=0.2, directions=2, over="mean", seed=4),
]
WITH_ERRORS = [
    nc.NC(errors=True),
    nc.KMNC(1, errors=True),
    nc.KMNC(7, errors=True),
    nc.NBC(errors=True),
    nc.SNAC(errors=True),
    nc.TKNC(2, errors=True),
    nc.NPC(clusters=2, buckets=7, errors=True),
    nc.NPC(0.5, 0.6, 2, 4, "activation", errors=True),
]


@pytest.mark.parametrize("criterion", CRITERIA, ids=lambda criterion: criterion.name)
def test_laws(criterion):
    check_criterion(criterion)


@pytest.mark.parametrize("criterion", WITH_ERRORS, ids=lambda criterion: criterion.name)
def test_laws_with_errors(criterion):
    check_criterion(criterion)


def test_every_criterion_takes_part():
    known = (criterion_class(name) for name in Criterion.known)
    ours = {cls.__name__.lower() for cls in known if cls and cls.__module__.startswith("neuralcov.criteria")}
    assert {type(criterion).__name__.lower() for criterion in CRITERIA} == ours
