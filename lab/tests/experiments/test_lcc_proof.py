"""The proof of LCC: the lab's figures are the library's, suites are what they should be, the page tells it all."""

from dataclasses import replace

import pytest
import torch

import neuralcov as nc
from neuralcov import criteria
from neuralcov_lab.experiments import ExperimentContext, JobFolder, run_jobs, takeaways
from neuralcov_lab.experiments.comparisons import ALONE, ON_TOP, Comparison
from neuralcov_lab.experiments.lcc import images, plan, texts
from neuralcov_lab.experiments.lcc.figures import OVER, Measure
from neuralcov_lab.experiments.lcc.honest_sections import forecast_takeaway
from neuralcov_lab.experiments.lcc.judged import Judged, jobs_by_part, score, wrong_orders
from neuralcov_lab.experiments.lcc.maps import Cut, Map
from neuralcov_lab.experiments.lcc.network_sections import fooling_section, fooling_takeaway
from neuralcov_lab.experiments.lcc.page import proof_lead, proof_page
from neuralcov_lab.experiments.lcc.panel import best_settings, panel_section, panel_takeaway
from neuralcov_lab.experiments.lcc.projections import Directions, project
from neuralcov_lab.experiments.lcc.small import train_on_the_spot
from neuralcov_lab.experiments.lcc.subjects import proof_plan, proof_subject
from neuralcov_lab.experiments.lcc.variants import variants
from neuralcov_lab.experiments.ranking import family
from neuralcov_lab.experiments.scales import SCALES

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")
SUBJECTS = ("digits", "lstm", "mlp-toy")
SETTINGS = [{}, {"resolution": 0.8, "directions": 5, "seed": 3, "over": "mean"}, {"over": "trimmed"}]


@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_the_lab_and_the_library_agree(context, subject, setting):
    found = proof_subject(context, subject)
    criterion = nc.LCC(**setting)
    library = found.learn(context, [criterion])
    cut = Cut(criterion.resolution, Directions(criterion.directions, criterion.seed))
    ground = Map.learn(project(library.run(found.batches(found.train, 40)), [cut.directions]), cut)
    measure = Measure(ground, ground.place(project(library.run(found.batches(found.test, 40)), [cut.directions])))
    reading = library.measure(found.batches(found.test, 40))[-1]
    over = OVER[criterion.over]
    figures, errors = measure.figures(over=over), measure.errors(over=over)
    beside = reading["beside"][criterion.name]
    assert figures.value == pytest.approx(reading["own"][criterion.name], rel=1e-12)
    for name, theirs in (
        ("relative", "relative"),
        ("off_map", "off_map"),
        ("expected_off_map", "off_map_expected"),
        ("new_decisions", "new_decisions"),
        ("next", "next"),
    ):
        assert getattr(figures, name) == pytest.approx(beside[theirs], rel=1e-9), name
    assert (errors.value, errors.relative) == pytest.approx((beside["error"], beside["relative_error"]), rel=1e-9)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_orders_are_among_suites_of_the_sizes_they_say(context, subject):
    found = proof_subject(context, subject)
    planned = proof_plan(context, found, draws=2)
    sizes = {}
    for pool in planned.pools():
        inputs = sum(_size(batch) for batch in pool.batches())
        for name, by_draw in pool.suites.items():
            for draw, rows in by_draw.items():
                sizes[name, draw] = inputs if rows is None else len(rows)
    for order in planned.orders:
        draws = [draw for draw in range(2) if (order.above, draw) in sizes and (order.below, draw) in sizes]
        assert draws == [0, 1], order
        if order.group not in ("sizes", "copies, all", "copies, more"):
            assert sizes[order.above, 0] == sizes[order.below, 0], order
    groups = {order.group for order in planned.orders}
    assert {"sizes", "classes", "duplicates", "copies, all", "copies, equal", "one input", "noise inputs"} <= groups
    assert ("attacks" in groups) == (subject != "lstm")


def _size(batch):
    return len(batch["tokens"]) if isinstance(batch, dict) else len(batch[0])


def test_a_part_of_a_subject_has_part_of_its_data(context):
    whole, part = proof_subject(context, "digits"), proof_subject(context, "digits", 10)
    assert (len(part.train), len(part.test)) == (len(whole.train) // 10, len(whole.test) // 10)
    assert part.model is whole.model


def test_made_images_are_images(context):
    test = proof_subject(context, "digits").test
    pixels = images.varied(test.pixels(), 0.1, 1, 0.4, seed=1)
    noise = [images.noise_images(name, test, torch.Generator().manual_seed(0)) for name in images.NOISE]
    for made in (pixels, *noise):
        assert made.shape == test.inputs.shape
        assert 0 <= float(made.min()) <= float(made.max()) <= 1
    assert torch.equal(noise[2].flatten(1).sort(1).values, test.pixels().flatten(1).sort(1).values)
    one = images.varied(test.pixels()[:1].expand(3, -1, -1, -1), 0.0, 0, 0.0, seed=1)
    assert torch.allclose(one, test.pixels()[:1].expand(3, -1, -1, -1), atol=1e-6)


def test_random_words_leave_padding_alone(context):
    test = proof_subject(context, "lstm").test
    for made in (texts.random_words, texts.mixed_words):
        tokens = made(test, torch.Generator().manual_seed(0)).inputs
        assert torch.equal(tokens == 0, test.inputs == 0)
        assert not torch.equal(tokens, test.inputs)


def test_bounded_attacks_stay_within_bounds_and_mislead(context):
    found = proof_subject(context, "digits")
    chosen = found.test.take(slice(0, 30))
    chosen = replace(chosen, labels=images.predicted(found.model, chosen, 20))
    moved = images.bounded_attack(found.model, chosen, 0.2, 10, 20, (0.0, 1.0))
    assert float((moved - chosen.pixels()).abs().max()) <= 0.2 + 1e-6
    after = images.predicted(found.model, replace(chosen, inputs=moved), 20)
    assert float((after != chosen.labels).double().mean()) > 0.5


def test_checkpoints_are_stages_of_one_training(context):
    train = proof_subject(context, "digits").train
    early, later, end = train_on_the_spot("mlp", train, 20, seed=1, checkpoints=(5, 10))
    again = train_on_the_spot("mlp", train, 10, seed=1)[-1]
    assert all(torch.equal(a, b) for a, b in zip(later.parameters(), again.parameters(), strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(early.parameters(), end.parameters(), strict=True))


def test_ties_are_wrong_and_half_of_the_draws_are_not_enough():
    signs = {"LCC": "++-", "a": "+-", "b": "++=="}
    judged = [Judged("digits", "sizes", "x > y", signs)]
    assert [judged[0].right(name) for name in signs] == [True, False, False]
    assert score(judged, "b") == (0, 1, 0.5)


def test_wrong_orders_come_with_the_variants_that_get_them_right():
    judged = [
        Judged("digits", "noise inputs", "test > noise", {"LCC": "--", "new decisions 0": "++", "32 directions": "+-"}),
        Judged("digits", "attacks", "PGD > test", {"LCC": "+-", "new decisions 0": "--", "novel boxes 1": "++"}),
        Judged("digits", "attacks", "PGD, 5 > test, 5", {"LCC": "++", "new decisions 0": "--", "novel boxes 1": "++"}),
        Judged("digits", "sizes", "more > fewer", {"LCC": "-", "new decisions 0": "-"}),
    ]
    text = "\n".join(wrong_orders(judged))
    assert "1 of 4 ground-truth orders" in text
    assert "| digits | noise inputs | test > noise | 0 of 2 | ✓ |  |  |" in text
    assert "| digits | attacks | PGD > test | 1 of 2 |  |  | ✓ |" in text
    assert "PGD, 5" not in text
    assert "- 1 of 3 come out with new decisions counting 0" in text
    assert "It loses 1 others (attacks 1)." in text
    assert "- 1 come out with none of these." in text


def test_variants_differ_in_one_setting_and_in_their_names():
    found = variants(30_000)
    assert len({variant.name for variant in found}) == len(found)
    assert [variant.name for variant in found if variant.training] == [
        f"{n:,} training inputs" for n in (500, 1_000, 2_000, 5_000, 10_000, 20_000)
    ]


@pytest.fixture(scope="module")
def proof(tmp_path_factory, tiny):
    folder = JobFolder(tmp_path_factory.mktemp("lcc"))
    small = plan.Extent(("digits",), ("digits",), ("digits",), ("mlp-digits",), 2, 3, 1, 2, 2, 64, {"mlp-digits": 2})
    context = ExperimentContext(tiny)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(plan.EXTENTS, "smoke", small)
        outcome = run_jobs(plan.plan(tiny), folder, context)
    assert outcome.failed == {}
    return list(folder.results())


def test_the_page_says_first_what_is_wrong_and_shows_every_part(proof):
    page = proof_page(proof, ["A note."])
    titles = [line for line in page.splitlines() if line.startswith("## ")]
    assert titles == [
        "## What it gets wrong",
        "## Orders",
        "## What `next` foretells",
        "## What a forecast of more inputs is worth",
        "## `relative` of inputs like training data",
        "## Errors",
        "## Suites made to fool it",
        "## Across checkpoints and seeds",
        "## Settings",
    ]
    assert "| KMNC(100) |" in page
    assert "nan" not in page.lower().replace("finance", "")


def test_every_section_opens_with_what_to_take_away(proof):
    lead, page = proof_lead(proof), proof_page(proof, ["A note."])
    assert lead.startswith("- **LCC puts ")
    assert "`relative` is fooled by" in lead or "No suite reads more varied" in lead
    for title in (
        "What `next` foretells",
        "What a forecast of more inputs is worth",
        "Errors",
        "Suites made to fool it",
        "Across checkpoints and seeds",
        "Settings",
    ):
        assert page.partition(f"## {title}\n\n")[2].startswith("**"), title
    # Behind folds there are no folds.
    assert all(part.count("<details>") <= 1 for part in page.split("</details>"))
    whole = takeaways.page("lcc", lead, page)
    assert all(part.count("<details>") <= 1 for part in whole.split("</details>"))


def test_of_large_networks_a_part_of_the_data_is_measured(proof, tiny):
    planned = {job.name: job.parameters for job in plan.plan(SCALES["full"])}
    assert planned["lcc.stability.mobilenet_v2-cifar10"]["part"] == 5
    assert "part" not in planned["lcc.stability.convnet-mnist"]
    found, inputs = jobs_by_part(proof)["stability"]["mlp-digits"], tiny.test // 2
    assert 0 < found["inputs"] < inputs
    right = [model["accuracy"] * inputs for model in found["models"]]
    assert right == pytest.approx([round(number) for number in right])


def test_stability_is_about_every_criterion(proof):
    measured = jobs_by_part(proof)["stability"]["mlp-digits"]["models"][0]["suites"]["test"]
    names = {family(name) for name in measured}
    assert {kind.__name__ for kind in criteria.ALL} <= names


def test_a_forecast_is_held_against_what_the_same_inputs_showed(proof):
    parts = jobs_by_part(proof)["forecast"]["digits"]["parts"]
    assert set(parts) == {"30"}
    for by_name in parts["30"].values():
        assert set(by_name) == {"LCC", "KMNC(100)", "NC(0.75)", "SNAC"}
        for own in by_name.values():
            assert all(now <= said and now <= seen for now, said, seen in zip(*own.values(), strict=True))
    # All of the test set is the last size of every split: the same value, whatever the order.
    assert len(set(parts["30"]["120"]["LCC"]["seen"])) == 1


def test_forecasts_are_off_by_shares_of_what_was_seen():
    own = {"now": [0.1, 0.1], "said": [0.2, 0.3], "seen": [0.2, 0.2]}
    results = {"one": {"parts": {"10": {"20": {"LCC": own}, "40": {"LCC": own | {"said": [0.1, 0.1]}}}}}}
    assert forecast_takeaway(results) == (
        "**A forecast of so many times as many inputs is off, on average, by:** LCC ×2 +25%, ×4 -50%."
    )


def test_suites_that_read_above_the_test_inputs_are_named():
    drawn = {"LCC.relative": 1.0, "LCC.off_map": 0.01, "LCC.expected_off_map": 0.01, "LCC.value": 0.1}
    drawn |= {"SNAC": 0.1, "inputs": 10}
    suites = {"test": [drawn], "noise": [drawn | {"LCC.relative": 0.1, "SNAC": 0.2}], "blurred": [drawn]}
    results = {"one": {"suites": suites}, "two": {"suites": suites | {"noise": [drawn | {"LCC.relative": 1.2}]}}}
    assert fooling_takeaway(results) == (
        "**`relative` is fooled by:** noise (on 1 of 2). None of the 1 others is above them."
    )
    table = "\n".join(fooling_section(results))
    assert "| LCC.relative | 1 of 4 | 0 of 2 | 1 of 2 |" in table
    assert "| SNAC | 1 of 4 | 1 of 2 | 0 of 2 |" in table


def test_a_panel_takes_the_best_setting_of_the_others_and_lcc_as_defined():
    def one(experiment, basis, runs):
        return Comparison(experiment, "mlp", "noise", basis, ("test", "x1"), (10, 10), runs)

    right, wrong = [[2.0, 1.0]], [[1.0, 2.0]]
    found = [
        one("faults", ALONE, {"LCC": right, "LCC(over=mean)": right, "NC(0.25)": wrong, "NC(0.5)": right}),
        one("faults", ON_TOP, {"LCC": right, "LCC(over=mean)": right, "NC(0.25)": wrong, "NC(0.5)": wrong}),
        one("perturbations", ALONE, {"LCC": wrong, "LCC(over=mean)": right, "NC(0.25)": wrong, "NC(0.5)": right}),
    ]
    chosen = best_settings(found)
    assert {name: str(own.total) for name, own in chosen.items()} == {"LCC": "2/3", "NC(0.5)": "2/3"}
    assert panel_takeaway(chosen) == (
        "**LCC gets 2 of 3 orders right; no other criterion gets more right.** At least one other is ahead of it in "
        f"perturbations, {ALONE} (0/1; NC(0.5) 1/1). It is ahead of all in faults, {ON_TOP} (1/1; NC(0.5) 0/1)."
    )


def test_without_a_panel_the_page_says_nothing_of_it(tmp_path):
    assert panel_section(JobFolder(tmp_path)) == []


def test_what_is_not_scaled_lies_off_the_map(proof):
    suites = jobs_by_part(proof)["fooling"]["digits"]["suites"]
    assert suites["not scaled to [0, 1]"][0]["LCC.off_map"] > 0.9
    assert suites["test, twice"][0]["LCC.value"] == suites["test"][0]["LCC.value"]
    # Grey images that nothing is subtracted from have no colours to swap, and are normalised as they are.
    assert not {"colours swapped", "not normalised"} & set(suites)


def test_orders_are_checked_against_the_library(proof):
    for both in jobs_by_part(proof)["orders"]["digits"]["library"].values():
        assert both[0] == pytest.approx(both[1], rel=1e-9)
