import pytest

from neuralcov.report.text import show_value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.99999, "0.9999"),
        (1.0, "1.0000"),
        (1e-9, "1e-09"),
        (0.0, "0"),
        (12.0, "12"),
        (99.99, "99.990"),
        (-0.5, "-0.5000"),
    ],
)
def test_no_false_zero_or_one(value, text):
    assert show_value(value) == text
