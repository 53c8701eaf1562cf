"""Verdicts on ground-truth orders, the ranking, and the tables that show them."""

from dataclasses import replace

import pytest

from neuralcov_lab.experiments import paper, tables
from neuralcov_lab.experiments.comparisons import ALONE, EQUAL, ON_TOP, Comparison, compare_copies
from neuralcov_lab.experiments.ranking import Score, beside, family, ranking


def comparison(runs, experiment="diversity-image", basis=ON_TOP, suites=("test", "x10", "x1")):
    return Comparison(experiment, "resnet50", "noise ±0.1", basis, suites, (10, 100, 10)[: len(suites)], runs)


def test_an_order_is_right_only_if_it_falls_strictly():
    found = comparison({"NLC": [[3.0, 2.0, 1.0]], "NC(0.75)": [[3.0, 3.0, 1.0]], "KMNC(10)": [[1.0, 2.0, 0.5]]})
    assert [found.right(name) for name in found.runs] == [True, False, False]
    assert found.pairs("NC(0.75)") == [False, True, True]
    assert found.pairs("KMNC(10)") == [False, True, True]


def test_runs_are_averaged_and_counted():
    found = comparison({"NLC": [[3.0, 2.0, 1.0], [5.0, 6.0, 1.0]]})
    assert found.means("NLC") == [4.0, 4.0, 1.0]
    assert found.deviations("NLC") == pytest.approx([2**0.5, 8**0.5, 0.0])
    assert not found.right("NLC")
    assert found.runs_right("NLC") == 1
    assert found.to_json()["criteria"]["NLC"]["runs right"] == 1


def test_ranking_counts_all_settings_and_puts_those_judged_seldom_last():
    found = [
        comparison({"NC(0.25)": [[1, 2, 3]], "NC(0.5)": [[3, 2, 1]], "NLC": [[3, 2, 1]], "LVC": [[1, 1, 1]]}),
        comparison({"NC(0.25)": [[1, 2, 3]], "NC(0.5)": [[3, 2, 1]], "NLC": [[3, 2, 1]], "LVC": [[3, 2, 1]]}),
        comparison({"NC(0.25)": [[1, 2, 3]], "NLC": [[3, 2, 1]], "NPC(0.7)": [[3, 2, 1]]}, basis=ALONE),
    ]
    standings = ranking(found, {"NC(0.75)": 1.5}, ["NC(0.75)", "TKNP(50)", "NLC", "NLC(rule=all)"])
    order = [standing.criterion for standing in standings]
    assert order[:3] == ["NLC", "LVC", "NC"]
    assert order.index("NPC") > 2
    nc = standings[2]
    assert str(nc.total) == "2/5"
    assert nc.best == "NC(0.5)"
    assert nc.balanced == 0.25
    assert nc.cost == 1.5
    assert str(nc.by_part[f"diversity-image, {ALONE}"]) == "0/1"
    assert set(order) == {"NLC", "LVC", "NC", "NPC", "TKNP", "NLC(rule=all)"}
    assert str(standings[-1].total) == "–"
    assert str(Score()) == "–"


def test_a_later_criterion_is_compared_on_its_own_orders_and_runs():
    runs = {"LCC": [[3.0, 1.0]], "SNAC": [[3.0, 1.0], [0.0, 9.0]]}
    found = [
        comparison({"LVC": [[5.0, 1.0, 4.0], [0.0, 0.0, 9.0]]}, basis=ALONE),
        replace(comparison(runs, basis=ALONE, suites=("test", "x1")), label="noise ±0.1, x1 only"),
        replace(comparison({"NPC": [[3.0, 1.0]]}, basis=ALONE, suites=("test", "x1")), label="noise ±0.1, x1 only"),
        comparison({"SNAC": [[3.0, 2.0, 1.0]], "LVC": [[3.0, 2.0, 1.0]]}),
        comparison({"LCC": [[1.0, 2.0, 3.0]]}),
    ]
    (alike,) = beside(found, "LCC")
    assert alike.runs == {"LCC": [[3.0, 1.0]], "SNAC": [[3.0, 1.0]], "LVC": [[5.0, 4.0]]}
    assert [str(standing.total) for standing in ranking([alike], {})] == ["1/1", "1/1", "1/1"]
    assert beside(found, "NLC") == []


def test_ranking_says_how_often_a_single_run_would_be_right():
    found = [
        # Right by the means, (10, 4, 1), though by one run of two only.
        comparison({"NLC": [[2.0, 6.0, 1.0], [18.0, 2.0, 1.0]]}),
        comparison({"NLC": [[3.0, 2.0, 1.0]] * 5}),
        comparison({"NLC": [[1.0, 2.0, 3.0]]}),
    ]
    standing = ranking(found, {})[0]
    assert str(standing.total) == "2/3"
    assert standing.share_once == pytest.approx((0.5 + 1 + 0) / 3)
    assert "| NLC | 2/3 | 67% | 50% |" in tables.ranking_table([standing])
    assert "| NLC | 67% (21% to 94%) of 3 |" in tables.bases_table([standing])
    assert standing.to_json()["share once"] == standing.share_once


def test_every_setting_belongs_to_a_ranked_criterion():
    assert {family(name) for name in ("LSC(10, by=label)", "NLC(rule=all)", "NPC(0.7)", "SS")} == {
        "LSC",
        "NLC(rule=all)",
        "NPC",
        "SS",
    }


def test_table_sets_our_values_beside_the_papers():
    text = tables.suite_table(comparison({"NLC": [[3.0, 2.0, 1.0]], "LVC": [[0.1, 0.2, 0.3]]}))
    lines = text.splitlines()
    assert lines[2] == "| NLC | 3 | 2 | 1 | ✓ | 1.03 | 0.47 | 0.05 | ✓ |"
    assert lines[3] == "| LVC | 0.1 | 0.2 | 0.3 | ✗ | – | – | – | – |"


def test_page_has_every_way_of_measuring():
    runs = {"NLC": [[3.0, 2.0, 1.0], [3.0, 2.0, 2.5]]}
    pair = comparison({"NLC": [[3.0, 2.0]]}, basis=EQUAL, suites=("test", "five classes"))
    page = tables.experiment_page(
        "diversity-image", [comparison(runs), comparison(runs, basis=ALONE), pair], ["A note."]
    )
    assert "A note." in page
    assert "Expected: test > x10 > x1. Inputs: test 10, x10 100, x1 10." in page
    assert "✓ 1/2" in page
    assert "### resnet50, at equal size" in page
    assert "Our verdict is the paper's for 1 of 1 settings." in page


def test_the_papers_own_verdict_is_judged_alike():
    assert paper.figure("perturbations", "vgg16_bn", "AP PGD", "NLC") == 48.35
    assert paper.figure("perturbations", "vgg16_bn", "test", "NLC") == 403.9
    assert paper.figure("diversity-generative", "generator", "C/10", "CC(50)") == 89
    assert paper.figure("diversity-generative", "generator", "Normal", "LSC(10, by=label)") == 216
    assert paper.figure("diversity-text", "lstm", "x10", "DSC(0.1)") == 24
    assert paper.figure("faults-test", "resnet50", "PGD", "NLC") == 8.6
    assert paper.figure("faults-test", "resnet50", "CW", "NLC") is None
    assert paper.figure("diversity-image", "digits", "test", "NLC") is None
    # The paper marks NLC on all three networks, and no other criterion on CIFAR-10.
    for network in ("resnet50", "vgg16_bn", "mobilenet_v2"):
        marked = [
            name
            for name, values in paper.figures()["diversity-image"].items()
            if values[network][0] > values[network][1] > values[network][2]
        ]
        assert marked == ["NLC"]


def test_runs_that_followed_fewer_criteria_are_compared_in_what_all_followed():
    def reading(own):
        return {"inputs": 10, "increase": {"NC(0.5)": 1.0, "LVC": 1.0}, "own": own}

    both, one = {"NC(0.5)": 0.5, "LVC": 0.5}, {"LVC": 0.4}
    first = {"test": reading(both), "x10": reading(both), "x1": reading(both)}
    second = {"test": reading(both), "x10": reading(one), "x1": reading(both)}
    top, alone, fewer = compare_copies("diversity-image", "net", "noise", ("x10", "x1"), [first, second])
    assert list(top.runs) == ["NC(0.5)", "LVC"]
    assert list(alone.runs) == ["LVC"]
    assert list(fewer.runs) == ["NC(0.5)"]
    assert fewer.suites == ("test", "x1")
    assert len(fewer.runs["NC(0.5)"]) == 2
