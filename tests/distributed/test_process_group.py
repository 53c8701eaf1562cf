"""Shards measured in several processes and brought together, against one process that measures all."""

import pytest
import torch

import neuralcov as nc
from neuralcov.distributed import ranks_of
from tests.distributed import group_ranks as ranks

pytestmark = [
    pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="needs gloo"),
    pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning"),
]
SIZES = (1, 2, 3)
EXACT, ROUNDED, BY_ORDER = (
    [criterion.name for criterion in some] for some in (ranks.EXACT, ranks.ROUNDED, ranks.BY_ORDER)
)


@pytest.fixture(scope="module", params=SIZES, ids=lambda size: f"{size} ranks")
def group(request, tmp_path_factory):
    """The number of ranks, and what each of them found."""
    found = ranks.spawned(ranks.work, request.param, tmp_path_factory.mktemp("group"))
    return request.param, found


def single(batches, criteria=ranks.CRITERIA):
    cov = ranks.coverage(criteria)
    cov.assess(batches)
    return ranks.told(cov)


@pytest.fixture(scope="module")
def whole():
    """What one process finds."""
    return single(ranks.SUITE)


@pytest.mark.parametrize("scenario", ["at_the_end", "empty_shards", "twice", "reduced"])
def test_states_are_those_of_one_process(group, whole, scenario):
    _, found = group
    for rank in found:
        assert rank[scenario]["inputs"] == whole["inputs"] == rank[scenario]["runs"] == 59
        for name in EXACT:
            assert rank[scenario]["values"][name] == whole["values"][name], name
            assert rank[scenario]["details"].get(name) == whole["details"].get(name), name
        for name in ROUNDED:
            assert rank[scenario]["values"][name] == pytest.approx(whole["values"][name], rel=1e-12, abs=0), name


@pytest.mark.parametrize("scenario", ["at_the_end", "empty_shards", "step_by_step", "twice", "reduced"])
def test_all_ranks_hold_the_same_to_the_bit(group, scenario):
    _, found = group
    for rank in found[1:]:
        assert rank[scenario]["states"] == found[0][scenario]["states"]
        assert rank[scenario]["values"] == found[0][scenario]["values"]


def test_steps_are_one_process_with_batches_of_all_ranks(group):
    size, found = group
    steps = [ranks.SUITE[start : start + size] for start in range(0, len(ranks.SUITE), size)]
    joined = [tuple(torch.cat(parts) for parts in zip(*step, strict=True)) for step in steps]
    if size == 1:
        expected = single(ranks.SUITE)
    else:
        # The forward pass is that of each rank's own batch; rows of a product may depend on how many there are.
        expected = single_of_activations(steps)
        assert found[0]["step_by_step"]["values"] == pytest.approx(single(joined)["values"], rel=1e-6)
    assert found[0]["step_by_step"]["values"] == expected["values"]
    assert found[0]["step_by_step"]["states"] == expected["states"]
    assert not any("measured apart" in finding for finding in found[0]["step_by_step"]["findings"])


def single_of_activations(steps):
    """Observe in one process what the forward passes of the ranks' own batches give."""
    cov = ranks.coverage()
    for step in steps:
        cov.update(activations=nc.Activations.cat([cov.run(*batch)[0] for batch in step]))
    return ranks.told(cov)


def test_what_depends_on_order_is_marked_as_merged(group):
    size, found = group
    marked = {name for name in BY_ORDER for text in found[0]["at_the_end"]["findings"] if text.startswith(f"{name}: ")}
    assert marked == (set(BY_ORDER) if size > 1 else set())
    if size > 1:
        sentence = next(text for text in found[0]["at_the_end"]["findings"] if text.startswith("NLC: "))
        assert f"NLC: {size} parts measured apart were merged" in sentence


def test_a_second_reduce_changes_nothing_and_one_that_counts_twice_is_refused(group):
    size, found = group
    for rank in found:
        assert rank["reduced"]["again"]
        assert ("count once for each: reset()" in rank["reduced"].get("refused", "")) == (size > 1)


def test_a_rank_that_fails_is_told_to_all(group):
    size, found = group
    assert found[-1]["failing"] == ["RuntimeError", "no number at all"]
    for rank in found[:-1]:
        assert rank["failing"] == ["RankError", f"rank {size - 1} failed: RuntimeError: no number at all"]


def test_no_batch_anywhere_is_an_error(group):
    _, found = group
    for rank in found:
        assert rank["nothing"][0] == "InputError"
        assert "gave no batch" in rank["nothing"][1]


def test_other_criteria_are_refused(group):
    size, found = group
    for number, rank in enumerate(found):
        if size == 1:
            assert rank["strangers"] is None
        else:
            assert rank["strangers"][0] == ("MismatchError" if number == 0 else "RankError")
            assert "rank 1 holds NC(0.25), expected NC(0.5)" in rank["strangers"][1]


def test_a_rank_that_dies_ends_the_others_with_a_sentence(tmp_path):
    found = ranks.spawned(ranks.dying, 3, tmp_path)
    assert found[2] is None
    for (kind, sentence), seconds in found[:2]:
        assert kind == "RankError"
        assert "rank 2 is gone" in sentence
        assert seconds < 20


def test_a_rank_that_does_not_come_is_given_up_in_time(tmp_path):
    found = ranks.spawned(ranks.sleeping, 3, tmp_path)
    assert "rank 2 did not answer within 2 s" in found[0][0][1]
    for (kind, _), seconds in found[:2]:
        assert kind == "RankError"
        assert seconds < 2 + 6


def test_one_process_needs_no_group():
    cov = ranks.coverage([nc.NC(0.5)])
    cov.assess(ranks.SUITE)
    before = cov.values()
    cov.reduce()
    assert cov.values() == before
    assert ranks_of() is None
    with pytest.raises(nc.NeuralcovError, match="no process group was started"):
        cov.assess(ranks.SUITE, group=object())
    with pytest.raises(nc.NeuralcovError, match="sync='never': expected 'end' or 'step'"):
        cov.assess(ranks.SUITE, sync="never")
