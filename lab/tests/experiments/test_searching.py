"""Experiments on rules, guides and retraining: their counts against plain ones, and their pages."""

import numpy as np
import pytest
import torch

import neuralcov as nc
from neuralcov import demo
from neuralcov_lab.experiments import ExperimentContext, JobFolder, run_jobs
from neuralcov_lab.experiments.jobs import JobResult
from neuralcov_lab.experiments.report import write_report
from neuralcov_lab.experiments.scales import FULL, SMOKE
from neuralcov_lab.experiments.searching import guides, retraining, rules
from neuralcov_lab.experiments.searching.measures import (
    FaultJudge,
    distinct_faults,
    k_means,
    nearest,
    outputs_in_three_ways,
)
from neuralcov_lab.experiments.searching.page import _factors_table, guides_lead
from neuralcov_lab.experiments.searching.subjects import features, predicted, search_subject


@pytest.fixture(scope="module")
def context():
    return ExperimentContext(SMOKE.smaller(2))


@pytest.fixture(scope="module")
def subject(context):
    return search_subject(context, "digits")


@pytest.fixture(scope="module")
def campaign(subject):
    seeds = subject.test.take(slice(0, 60))
    labels = seeds.labels.clone()
    labels[:6] = (labels[:6] + 1) % 10  # wrong before any mutation
    fuzzer = nc.Fuzzer(
        nc.Coverage(subject.model, [nc.NC(0.75)]), seeds.inputs, labels, levels=16, guide="random", wave=20
    )
    return fuzzer.run(iterations=200), seeds, labels


def test_three_ways_of_counting(campaign, subject):
    done, seeds, labels = campaign
    with torch.no_grad():
        seen = subject.model(seeds.inputs / 16).argmax(1)
        after = subject.model(done.inputs / 16).argmax(1)
    entries = done.state.corpus.entries
    kept = entries[60:]
    roots = kept["root"].astype(int)
    everything = torch.cat([seen, after])
    wrong = after != labels[roots]
    assert outputs_in_three_ways(done) == {
        "against the label": int(wrong.sum()),
        "of seeds that were right": int((wrong & (seen == labels)[roots]).sum()),
        "against the parent": int((after != everything[kept["parent"].astype(int)]).sum()),
    }
    counted = outputs_in_three_ways(done)
    assert counted["against the label"] > counted["of seeds that were right"] > 10
    assert counted["of seeds that were right"] == done.stats.faulty_kept


def test_faults_are_judged_by_the_other_networks(campaign, subject):
    done, seeds, _ = campaign
    faults = distinct_faults(done)
    assert len({(fault.root, fault.after) for fault in faults}) == len(faults) == done.stats.distinct
    judge = FaultJudge.of(subject)
    told = judge.figures(faults, seeds.inputs, 16)
    mutants = torch.stack([fault.input for fault in faults]).float()
    labels = torch.tensor([fault.label for fault in faults])
    right = torch.ones(len(faults), dtype=torch.bool)
    with torch.no_grad():
        for other in subject.others.values():
            right &= other(mutants / 16).argmax(1) == labels
    assert told["natural"] == int(right.sum())
    assert 0 < told["natural"] < len(faults)
    assert told["pairs"] == len({(fault.label, fault.after) for fault in faults})
    apart = [np.abs(fault.input.numpy() / 16 - seeds.inputs[fault.root].numpy() / 16).mean() for fault in faults]
    assert told["change"] == pytest.approx(np.mean(apart), rel=1e-5)
    assert 1 < told["clusters"] <= len(faults)
    assert judge.figures([], seeds.inputs, 16)["natural"] == 0


def test_cells_are_those_of_k_means():
    points = torch.cat([torch.randn(40, 3, generator=torch.Generator().manual_seed(n)) + 8 * n for n in range(3)])
    centres = k_means(points, 3)
    cells = nearest(points, centres)
    for cell in range(3):
        assert torch.allclose(points[cells == cell].double().mean(0), centres[cell], atol=1e-6)
    brute = [min(range(3), key=lambda c, x=x: float((x.double() - centres[c]).square().sum())) for x in points]
    assert cells.tolist() == brute


def test_features_are_what_the_last_layer_is_given(subject):
    some = subject.test.inputs[:7]
    model = demo.train_digits(2, 5)
    found = features(model, subject, some)
    last = [module for module in model.modules() if isinstance(module, torch.nn.Linear)][-1]
    with torch.no_grad():
        assert torch.equal(last(found).argmax(1), model(some / 16).argmax(1))
        assert torch.equal(predicted(model, subject, some), model(some / 16).argmax(1))


def test_unsure_seeds_are_those_of_a_plain_loop(subject, context):
    """Read rightly, and surer than none that was left out."""
    many = subject.seeds(context, 5 * 12, 0)
    chosen = {bytes(image.numpy().tobytes()) for image in subject.unsure_seeds(context, 12, 0).inputs}
    right = []
    with torch.no_grad():
        for image, label in zip(many.inputs, many.labels, strict=True):
            shares = subject.model(subject.prepare(image[None].float() / many.levels)).softmax(1)[0]
            if int(shares.argmax()) == int(label):
                right.append((1 - float((shares**2).sum()), bytes(image.numpy().tobytes())))
    right.sort(reverse=True)
    assert chosen == {image for _, image in right[:12]}


def test_reviews_are_scored_by_class_and_give_unsure_seeds(context):
    """A network of reviews takes tokens and lengths, and gives one logit."""
    reviews = search_subject(context, "lstm")
    some = reviews.seeds(context, 40, 0)
    with torch.no_grad():
        logits = reviews.model(some.inputs, some.lengths)[:, 0]
    assert torch.equal(predicted(reviews.model, reviews, some.inputs), (logits > 0).long())
    chosen = reviews.unsure_seeds(context, 8, 0)
    sure = sorted(logits[(logits > 0).long() == some.labels].abs().tolist())
    with torch.no_grad():
        found = reviews.model(chosen.inputs, chosen.lengths)[:, 0]
    assert sorted(found.abs().tolist()) == pytest.approx(sure[:8], abs=1e-5)


def test_a_switch_turns_one_rule_and_nothing_else():
    for name, fields in rules.SWITCHED.items():
        before, after = (
            settings.to_json() for settings in (rules.SETS["published"], rules.rules_of("published", name))
        )
        assert {field for field in before if before[field] != after[field]} == set(fields)


def test_jobs_give_pages(tmp_path, context):
    scale = context.scale
    wanted = [
        job
        for job in (*guides.plan(scale), *rules.plan(scale), *retraining.plan(scale))
        if job.parameters["run"] == 0
        and job.parameters.get("way", guides.RANDOM) in (guides.RANDOM, guides.DEFAULT)
        and job.parameters.get("criterion", "NLC") == "NLC"
        and job.parameters.get("switched") in (None, "compared")
    ]
    folder = JobFolder(tmp_path)
    outcome = run_jobs(wanted, folder, context)
    assert not outcome.failed
    write_report(folder)
    pages = {name: (tmp_path / f"fuzz-{name}.md").read_text() for name in ("guides", "rules", "retraining")}
    assert f"| digits | {guides.DEFAULT} (the default) | 1 |" in pages["guides"]
    assert "| published" not in pages["rules"]
    assert "### published, one rule switched to ours, under NLC" in pages["rules"]
    assert "| clean |" in pages["retraining"]
    done = {result.name: result.result for result in folder.results()}
    found = done["fuzz-guides.digits.random"]
    assert found["calls"] >= found["wanted"] == 5 * found["seeds"]
    assert found["readings"][-1][1] == found["distinct"]
    accuracy = done["fuzz-retraining.digits"]["accuracy"]
    assert accuracy["before"]["faults from test inputs"] == 0
    assert accuracy["with faults"]["faults from test inputs"] > accuracy["without faults"]["faults from test inputs"]


def test_the_lead_says_where_twice_as_much_is_found():
    def job(network, way, distinct, natural, clusters):
        found = {"calls": 1000, "distinct": distinct, "roots": distinct, "natural": natural, "pairs": 9}
        content = {"parameters": {"network": network, "way": way}, "result": found | {"clusters": clusters}}
        return JobResult(f"{network} {way}", content)

    jobs = [job("one", guides.RANDOM, 40, 10, 5), job("one", guides.DEFAULT, 90, 20, 5)]
    said = guides_lead(jobs)
    assert said.endswith("reached on one. Fewer pairs of classes or clusters: nowhere.")
    jobs += [job("other", guides.RANDOM, 40, None, 5), job("other", guides.DEFAULT, 90, None, 5)]
    assert "on one, other (natural ones not judged)." in guides_lead(jobs)
    jobs += [job("last", guides.RANDOM, 40, 10, 5), job("last", guides.DEFAULT, 60, 20, 4)]
    jobs += [job("alone", guides.RANDOM, 40, 10, 5), job("alone", "margin, forecast", 90, 30, 5)]
    assert ", alone (by margin, forecast);" in guides_lead(jobs)
    lacking = "not reached on last (distinct 1.50 ×, roots 1.50 ×)"
    assert guides_lead(jobs).endswith(f"{lacking}. Fewer pairs of classes or clusters: clusters on last.")


def test_factors_compare_runs_from_the_same_seeds():
    def job(way, run, distinct):
        found = {"calls": 1000, "roots": distinct, "natural": 0, "pairs": 9, "clusters": 5, "distinct": distinct}
        content = {"parameters": {"network": "one", "way": way, "run": run}, "result": found}
        return JobResult(f"{way} {run}", content)

    jobs = [job(guides.RANDOM, run, count) for run, count in enumerate((40, 60, 50, 500))]
    jobs += [job(guides.DEFAULT, run, count) for run, count in enumerate((88, 120, 105))]
    row = next(line for line in _factors_table(jobs, [guides.DEFAULT]).splitlines() if guides.DEFAULT in line)
    # Student's t of three runs is 4.30: 2.2, 2.0 and 2.1 have a geometric mean of 2.098, and logarithms .0477 apart.
    low, high = (2.098 * np.exp(sign * 4.30 * 0.0477 / 3**0.5) for sign in (-1, 1))
    assert f"| 2.09 × ({low:.2f} to {high:.2f}) |" in row
    assert "| – | 1.00 × (1.00 to 1.00) |" in row
    assert "×" in _factors_table(jobs[:2] + jobs[4:6], [guides.DEFAULT])
    assert "to" not in _factors_table(jobs[:2] + jobs[4:6], [guides.DEFAULT])


def test_the_full_scale_has_three_image_networks_and_the_lstm():
    networks = {job.parameters["network"] for job in guides.plan(FULL)}
    assert networks == {"resnet50", "vgg16_bn", "mobilenet_v2", "lstm"}
    assert {job.parameters["run"] for job in guides.plan(FULL)} == set(range(5))
    assert {job.parameters["rules"] for job in rules.plan(FULL)} == {"published", "paper", "ours"}


def test_faults_of_reviews_are_judged_by_networks_of_other_seeds():
    found = search_subject(ExperimentContext(SMOKE.smaller(2)), "lstm")
    assert found.texts
    assert list(found.others) == ["lstm 1", "lstm 2"]
    first, second = (predicted(model, found, found.test.inputs) for model in found.others.values())
    labels = found.test.labels
    assert min((seen == labels).float().mean() for seen in (first, second)) > 0.7
    assert not torch.equal(first, second)
    assert FaultJudge.of(found).centres is not None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_retraining_runs_on_a_gpu():
    accuracy = retraining.retrain(ExperimentContext(SMOKE.smaller(2), "cuda"), "digits", 0)["accuracy"]
    assert accuracy["with faults"]["faults from test inputs"] > accuracy["before"]["faults from test inputs"] == 0
