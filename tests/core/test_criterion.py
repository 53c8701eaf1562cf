import pytest

import neuralcov as nc
from neuralcov.core.criterion import criterion_from_text


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("nlc", "NLC"),
        ("NLC:rule=all", "NLC(rule=all)"),
        (" nc:0.5 ", "NC(0.5)"),
        ("kmnc", "KMNC(100)"),
        ("kmnc:sections=10", "KMNC(10)"),
        ("lvc:relative=true,groups=10", "LVC(relative=True, groups=10)"),
        ("nlc:classes=none", "NLC"),
    ],
)
def test_named_on_the_command_line(text, name):
    assert criterion_from_text(text).name == name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("abc", "no criterion is called 'abc'; there are"),
        ("nc:0.5,0.7", "NC takes threshold; it has no place for '0.7'"),
        ("nbc:3", "NBC takes nothing"),
        ("nc:limit=3", "no place for 'limit'"),
        ("lvc:groups=2,3", "stands after a named argument"),
        ("nc:2", "threshold must be below 1"),
    ],
)
def test_wrong_text(text, message):
    with pytest.raises(nc.NeuralcovError, match=message):
        criterion_from_text(text)


def test_gain_by_definition_serves_criteria_without_their_own():
    from neuralcov.core.criterion import Criterion
    from tests.support import as_tensors, covered, suite

    coverage = covered(nc.NC(0.5), suite(1, 5))
    candidates = nc.Activations(as_tensors(suite(2, 4)))
    state = coverage._ledger.states[0]
    default = Criterion.gain(nc.NC(0.5), state, candidates)
    assert default.tolist() == nc.NC(0.5).gain(state, candidates).tolist()
    assert Criterion.gain(nc.NC(0.5), state, candidates.take(slice(0, 0))).shape == (0,)
