"""Criteria as command lines name them."""

import pytest

import neuralcov as nc
from neuralcov.sources.names import criterion_from_text


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
        ("nc:0.5,0.7", "NC takes threshold, memory, errors; it has no place for '0.7'"),
        ("nbc:3", "NBC takes memory, errors; it has no place for '3'"),
        ("nc:limit=3", "no place for 'limit'"),
        ("lvc:groups=2,3", "stands after a named argument"),
        ("nc:2", "threshold must be below 1"),
    ],
)
def test_wrong_text(text, message):
    with pytest.raises(nc.NeuralcovError, match=message):
        criterion_from_text(text)
