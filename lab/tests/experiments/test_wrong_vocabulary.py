"""Texts in a wrong vocabulary: every suite is what its name says, and the table has a row for each."""

import pytest
import torch

from lab.benchmarks.wrong_vocabulary import table, wrong_vocabularies
from neuralcov_lab.experiments.lcc.subjects import proof_subject

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")


def test_words_are_looked_up_elsewhere_and_all_else_stays(context):
    test = proof_subject(context, "transformer-toy").test
    suites = dict(wrong_vocabularies(test, torch.Generator().manual_seed(0)))
    assert torch.equal(suites.pop("the test set").inputs, test.inputs)
    further = suites["one number further"].inputs
    last = len(test.words) - 1
    assert torch.equal(further[test.inputs == last].unique(), torch.tensor([2], dtype=further.dtype))
    between = (test.inputs >= 2) & (test.inputs < last)
    assert torch.equal(further[between], test.inputs[between] + 1)
    for name, suite in suites.items():
        assert torch.equal(suite.inputs == 0, test.inputs == 0), name
        assert not torch.equal(suite.inputs, test.inputs), name
        if not name.startswith("words drawn"):
            # The same word is the same number everywhere.
            assert all(len(suite.inputs[test.inputs == number].unique()) == 1 for number in test.inputs.unique()), name


def test_the_table_has_a_row_for_every_suite(context):
    lines = table(context, proof_subject(context, "transformer-toy")).splitlines()
    assert len(lines) == 2 + 7
    assert all(line.count("|") == lines[0].count("|") for line in lines)
