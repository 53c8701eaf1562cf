"""Names beside results: the table of inputs, judged inputs, and findings that name whom they leave out."""

import csv
import json
import sys

import numpy as np
import pytest
import torch
from torch import nn

import neuralcov as nc
from neuralcov.core.digests import content_keys

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")

COUNTED = [nc.NC(0.4), nc.KMNC(5), nc.NBC(), nc.SNAC(), nc.TKNC(2), nc.NPC(0.7), nc.TKNP(2), nc.DSC(0.1), nc.LSC(1.0)]


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))


def inputs(count=40, seed=1):
    return torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))


def calibrated(model, criteria):
    found = nc.Coverage(model, criteria)
    with torch.no_grad():
        found.calibrate([(inputs(90, 0), model(inputs(90, 0)).argmax(1))])
    return found


@pytest.mark.parametrize("criterion", COUNTED, ids=lambda criterion: criterion.name)
def test_an_input_shows_first_what_nothing_before_it_showed(model, criterion):
    suite = inputs()
    found, slow = calibrated(model, [criterion]), calibrated(model, [criterion])
    found.assess(suite.split(7), per_input=True)
    gains = []
    for row in suite.split(1):
        gains.append(float(slow.gain(row)[criterion.name]))
        slow.update(row)
    shown = np.array(found.per_input()[f"{criterion.name}.first"])
    assert shown.sum() > 0
    # A gain is a share of all cells, or a number of kinds.
    assert shown / shown.sum() == pytest.approx(np.array(gains) / sum(gains), rel=1e-9)


def test_every_kind_of_several_columns_counts(model):
    suite = inputs()
    found, slow = calibrated(model, [nc.LCC()]), calibrated(model, [nc.LCC()])
    found.assess(suite.split(7), per_input=True)
    kinds = [0]
    for row in suite.split(1):
        slow.update(row)
        kinds.append(int(slow.states[0].seen.present().sum()))
    assert kinds[-1] > len(suite)
    assert np.array_equal(found.per_input()["LCC.first"], np.diff(kinds))


def test_criteria_that_do_not_count_have_no_such_column(model):
    found = nc.Coverage(model, [nc.NLC(), nc.SS(), nc.CC(1.0), nc.NC(0.4)])
    found.assess([inputs()], per_input=True)
    assert list(found.per_input().columns) == ["id", "key", "prediction", "excluded", "NC(0.4).first"]


def test_the_table_has_names_classes_scores_and_reasons(model, tmp_path):
    suite = inputs()
    suite[3] = torch.nan
    found = calibrated(model, [nc.NC(0.4), nc.DSC(0.1)])
    labels, ids = torch.arange(40) % 3, [f"{number}.png" for number in range(40)]
    weather = ["rain", "sun"] * 20
    loader = [
        nc.Batch(suite[rows], labels[rows], ids=ids[rows], metadata={"weather": weather[rows]})
        for rows in (slice(0, 25), slice(25, 40))
    ]
    found.assess(loader, per_input=True)
    table = found.per_input()
    assert len(table) == 40
    assert table["id"] == ids
    assert table["weather"] == weather
    assert table["label"].tolist() == labels.tolist()
    with torch.no_grad():
        assert table["prediction"].tolist() == model(suite).argmax(1).tolist()
    scores = found.scores(suite)["DSC(0.1)"].numpy()
    assert np.array_equal(np.isnan(table["DSC(0.1).score"]), np.isnan(scores))
    assert table["DSC(0.1).score"][4] == scores[4]
    assert [row for row, why in enumerate(table["excluded"]) if why] == np.flatnonzero(np.isnan(scores)).tolist()
    assert table["excluded"][3] == "NaN or infinite outputs"
    assert list(table)[3]["DSC(0.1).score"] is None
    table.write(tmp_path / "t.csv")
    table.write(tmp_path / "t.jsonl")
    with open(tmp_path / "t.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    lines = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == [line["id"] for line in lines] == ids
    assert rows[3]["DSC(0.1).score"] == ""
    assert lines == list(table)
    with pytest.raises(nc.NeuralcovError, match=r"expected a name that ends in \.csv or \.jsonl"):
        table.write(tmp_path / "t.parquet")


def test_inputs_without_names_are_called_by_their_place_and_parts_may_be_missing(model):
    found = nc.Coverage(model, [nc.NC(0.4)])
    found.update(inputs())
    with pytest.raises(nc.NeuralcovError, match="there is no table of inputs"):
        found.per_input()
    loader = [inputs(3), nc.Batch(inputs(2), [1, 2], ids=["x", "y"], metadata={"weather": ["rain", "sun"]})]
    found.assess(loader, per_input=True)
    table = found.per_input()
    assert table["id"] == [0, 1, 2, "x", "y"]
    assert table["weather"] == [None, None, None, "rain", "sun"]
    assert table["label"] == [None, None, None, 1, 2]
    found.update(inputs(1))
    with pytest.raises(nc.NeuralcovError, match="read it right after"):
        found.per_input()


def test_a_model_without_classes_has_a_table_as_well():
    found = nc.Coverage(nn.Conv1d(4, 2, 1), [nc.NC(0.4)])
    found.assess([torch.randn(3, 4, 2), torch.randn(3, 4, 2)], per_input=True)
    assert list(found.per_input().columns) == ["id", "key", "excluded", "NC(0.4).first"]


def test_judged_inputs_have_their_gains_and_nothing_changes(model):
    found = calibrated(model, [nc.NC(0.9), nc.DSC(0.1)])
    found.update(inputs(5))
    before, others = found.values(), inputs(20, 5)
    table = found.judge([nc.Batch(others, ids=list("abcdefghijklmnopqrst"))])
    assert found.values() == before
    assert table["id"][2] == "c"
    gain, scores = found.gain(others), found.scores(others)
    assert table["NC(0.9).gain"].tolist() == gain["NC(0.9)"].tolist()
    assert table["DSC(0.1).score"] == pytest.approx(scores["DSC(0.1)"].numpy(), nan_ok=True)
    with pytest.raises(nc.NeuralcovError, match="nothing was judged"):
        found.judge([])


def test_a_table_takes_some_sixty_bytes_for_an_input(model):
    found = calibrated(model, [nc.NC(0.9), nc.KMNC(5), nc.TKNP(2), nc.DSC(0.1)])
    ids = [str(number) for number in range(4000)]
    weather = ["rain" if number % 2 else "sun" for number in range(4000)]
    found.assess(
        [
            nc.Batch(inputs(2000), ids=ids[:2000], metadata={"weather": weather[:2000]}),
            nc.Batch(inputs(2000), ids=ids[2000:]),
        ],
        per_input=True,
    )
    columns = [column for name, column in found.per_input().columns.items() if name != "id"]
    held = sum(column.nbytes if isinstance(column, np.ndarray) else sys.getsizeof(column) for column in columns)
    assert held / 4000 < 64
    assert len({id(value) for value in found.per_input()["weather"]}) == 3


@pytest.mark.parametrize("criterion", [nc.NC(0.4), nc.TKNP(2), nc.NLC()], ids=lambda criterion: criterion.name)
def test_findings_name_the_first_inputs_that_were_left_out(model, criterion, tmp_path):
    suite = inputs()
    suite[[3, 17, 20, 31]] = torch.nan
    found = nc.Coverage(model, [criterion])
    found.assess(suite.split(16))
    (finding,) = found.findings()
    assert finding.ids == (3, 17, 20, 31)
    assert str(finding).endswith("4 inputs with NaN or infinite outputs were left out (inputs 3, 17, 20, …)")
    found.assess([nc.Batch(suite[15:18], ids=["a", "b", "c"])])
    assert found.findings()[0].ids == (3, 17, 20, 31, "c")
    found.save(tmp_path / "a.ncov")
    assert nc.Coverage.load(tmp_path / "a.ncov").findings()[0].ids == (3, 17, 20, 31, "c")
    assert found.fork().findings() == found.findings()
    found.reset()
    assert found.findings() == ()


def test_inputs_without_a_place_are_named_and_names_stay_here_where_keys_are_not_to_tell(model, tmp_path):
    found = nc.Coverage(model, [nc.LSC(1.0, by="label")], keys="salted", salt="pepper")
    found.calibrate([(inputs(90, 0), torch.arange(90) % 2)])
    found.update(nc.Batch(inputs(4), [0, 5, 1, 5], ids=list("abcd")))
    assert found.findings()[0].ids == ("b", "d")
    found.save(tmp_path / "a.ncov")
    loaded = nc.Coverage.load(tmp_path / "a.ncov", keys="salted", salt="pepper")
    assert loaded.findings()[0].ids == ()
    assert b'"excluded":{"' not in (tmp_path / "a.ncov").read_bytes()


def test_merged_findings_name_inputs_of_both(model):
    parts = []
    for number in range(2):
        part = nc.Coverage(model, [nc.NC(0.4)])
        suite = inputs(5, number)
        suite[number] = torch.nan
        part.update(nc.Batch(suite, ids=[f"{number}-{row}" for row in range(5)]))
        parts.append(part)
    findings = (parts[0] + parts[1]).findings()
    assert [finding.ids for finding in findings if finding.criterion == "NC(0.4)"] == [("0-0", "1-1")]


def test_labels_given_twice_are_refused(model):
    with pytest.raises(nc.NeuralcovError, match="labels are given twice"):
        nc.Coverage(model, [nc.NC(0.4)]).update(nc.Batch(inputs(2), [0, 1]), [0, 1])


class _Observed(nc.NC):
    """Count how often it observes."""

    batches = 0
    fixed_size = False
    exclusions = nc.criteria.Criterion.exclusions

    def observe(self, state, batch, *, donate=False):
        type(self).batches += 1
        return super().observe(state, batch, donate=donate)


def test_names_of_excluded_inputs_cost_no_second_observation(model):
    coverage = nc.Coverage(model, [_Observed()])
    coverage.update(inputs(8))
    assert _Observed.batches == 1


def hexed(keys):
    return ["".join(f"{word % (1 << 64):016x}" for word in row) for row in keys.tolist()]


def test_keys_are_those_of_the_inputs_content(model):
    suite = inputs()
    expected = hexed(content_keys([suite]))
    found = nc.Coverage(model, [nc.NC(0.4)])
    found.assess(suite.split(7), per_input=True)
    assert found.per_input()["key"] == expected
    assert found.per_input()["key"][3:5] == expected[3:5]
    # Whoever must not show which inputs these are has other keys, or none; a column of metadata is no key.
    salted = nc.Coverage(model, [nc.NC(0.4)], keys="salted", salt="ours")
    salted.assess(suite.split(9), per_input=True)
    assert not set(salted.per_input()["key"]) & set(expected)
    assert len(set(salted.per_input()["key"])) == len(set(expected))
    none = nc.Coverage(model, [nc.NC(0.4)], keys="none")
    none.assess([nc.Batch(suite, metadata={"key": ["mine"] * 40})], per_input=True)
    assert "key" not in none.per_input().columns
    judged = found.judge(suite.split(11))
    assert judged["key"] == expected


def test_inputs_of_one_kind_share_a_word(model):
    suite = torch.cat([inputs(), inputs()[:5]])
    suite[3] = torch.nan
    found = calibrated(model, [nc.LCC()])
    found.assess(suite.split(7), per_input=True)
    table = found.per_input()
    kinds = found.criteria[0].kinds(found.run(suite)[0])[..., 0].numpy()
    for column, words in (("LCC.kind", kinds[:, -1]), ("LCC.alike", kinds.sum(1))):
        named = table[column]
        assert named[3] is None
        there = [row for row in range(45) if row not in (3, 43)]
        for one in there:
            assert [named[one] == named[other] for other in there] == (words[one] == words[there]).tolist()


@pytest.mark.parametrize("keep", [False, True], ids=["", "kept"])
def test_gains_are_noted_on_request(model, keep, tmp_path):
    suite = inputs().split(10)
    found, slow = (calibrated(model, [nc.NC(0.4), nc.NLC(), nc.LVC()]) for _ in range(2))
    found.assess(suite, gains=["NLC", "LVC"], keep_inputs=keep)
    expected = {"NLC": [], "LVC": []}
    for batch in suite:
        gains = slow.gain(batch)
        for name, numbers in expected.items():
            numbers += gains[name].tolist()
        slow.update(batch)
    assert found.values() == slow.values()
    table = found.per_input()
    assert [name for name in table.columns if name.endswith((".first", ".gain"))] == [
        "NC(0.4).first",
        "NLC.gain",
        "LVC.gain",
    ]
    for name, numbers in expected.items():
        assert table[f"{name}.gain"] == pytest.approx(np.array(numbers), rel=1e-12)
    found.save(tmp_path / "suite.ncov")
    again = nc.Coverage.load(tmp_path / "suite.ncov", model).input_table
    assert (again is not None) is keep or again["NLC.gain"] == pytest.approx(table["NLC.gain"])
    with pytest.raises(nc.NeuralcovError, match=r"gains: there is no criterion 'SS'; there are NC\(0.4\), NLC, LVC"):
        found.assess(suite, gains=["SS"])
