"""Faults of every kind, in models whose faults are known beforehand; each is saved, comes back and gets smaller."""

import time

import pytest
import torch
from torch import nn

import neuralcov as nc
from neuralcov.core.errors import InputError
from neuralcov.fuzz import SecondModel, mutation
from tests.fuzz.support import Brightness, Lighter, Nothing, fuzzer_of, grey


def small(model, seeds, labels=None, **settings):
    """A search in which everything new gains: with so small a distance, every new output is a cluster of its own."""
    settings = {"mutations": [Lighter()], "wave": 8, "beta": 1.0, "tries": 3} | settings
    return nc.Fuzzer(nc.Coverage(model, [nc.CC(1e-6)]), seeds, labels, **settings)


def shades(campaign):
    return [float(fault.input.float().mean()) / 255 for fault in campaign.faults]


def test_a_misprediction_needs_an_origin_that_was_right():
    # The second is wrong from the start, the third is right and stays so.
    fuzzer = small(Brightness(), grey(0.3, 0.2, 0.8), [0, 1, 1])
    campaign = fuzzer.run(iterations=80)
    assert {fault.root for fault in campaign.faults} == {0}
    for fault, shade in zip(campaign.faults, shades(campaign), strict=True):
        assert fault.fault_types == ("misprediction",)
        assert (fault.label, fault.before, fault.after) == (0, 0, 1)
        assert shade > 0.5
        assert fault.group == ("misprediction", "0", "1")
        if fault.entry is not None:
            assert torch.equal(campaign.state.corpus.inputs(slice(fault.entry, fault.entry + 1))[0], fault.input)
    right = [entry for entry in campaign.state.corpus.entries[3:] if entry["root"] == 0 and entry["prediction"] == 1]
    assert len(right) == sum(fault.entry is not None for fault in campaign.faults) == campaign.stats.faulty_kept
    assert len(campaign.faults) == campaign.stats.faults
    assert (campaign.stats.classes, campaign.stats.entropy) == (1, 0.0)


def test_without_labels_what_the_model_says_of_the_origin_counts_as_right():
    campaign = small(Brightness(), grey(0.3, 0.2, 0.8)).run(iterations=80)
    assert {fault.root for fault in campaign.faults} == {0, 1}


def test_two_models_that_disagree():
    # Both say 0 of the first, they differ on the second from the start.
    rival = SecondModel(Brightness(0.7).eval(), predict=lambda output: output.argmax(1))
    fuzzer = small(Brightness(0.5), grey(0.3, 0.6), [0, 1], against=rival)
    campaign = fuzzer.run(iterations=60)
    found = [fault for fault in campaign.faults if "disagreement" in fault.fault_types]
    assert found
    for fault in found:
        assert fault.root == 0
        assert 0.5 < float(fault.input.float().mean()) / 255 < 0.71
    assert all(entry.reproduced for entry in fuzzer.replay(campaign.faults))


class Refusing(Brightness):
    """Takes no image at all, or none that is light."""

    def __init__(self, limit):
        super().__init__()
        self.limit = limit

    def forward(self, images):
        if (images.flatten(1).mean(1) > self.limit).any():
            raise ValueError("too light")
        return super().forward(images)


def test_a_second_model_that_fails_on_the_origin_says_nothing_about_its_mutants():
    plain, none, some = (
        small(Brightness(), grey(0.3, 0.8), [0, 1], against=rival).run(iterations=40)
        for rival in (None, Refusing(0.0), Refusing(0.6))
    )
    assert none.stats.faults == plain.stats.faults > 0
    threw = [fault for fault in some.faults if "exception" in fault.fault_types]
    assert threw
    assert {fault.root for fault in threw} == {0}


@pytest.mark.parametrize(
    "limits", [{"seconds": float("nan")}, {"iterations": 1.5}, {"iterations": "a"}, {"faults": -1}]
)
def test_limits_that_are_none(limits):
    with pytest.raises(InputError, match=rf"{next(iter(limits))}=.*: expected a (whole )?number of at least 0"):
        small(Brightness(), grey(0.3, 0.8), [0, 1]).run(**limits)


class Broken(nn.Module):
    """NaN for shades from 0.5, an exception from 0.7."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(16, 3)

    def forward(self, images):
        shade = images.flatten(1).mean(1)
        if (shade > 0.7).any():
            raise ValueError("an overflow: too light")
        return self.fc(images.flatten(1)).masked_fill((shade > 0.5)[:, None], torch.nan)


def test_nan_and_exceptions_are_findings_and_not_the_end(tmp_path):
    torch.manual_seed(0)
    fuzzer = small(Broken(), grey(0.3, 0.45), wave=8, folder=tmp_path / "campaign", mutations=[Lighter((0.1, 0.3))])
    campaign = fuzzer.run(iterations=60)
    kinds = {
        kind: [fault for fault in campaign.faults if kind in fault.fault_types] for kind in ("not finite", "exception")
    }
    for fault in kinds["not finite"]:
        assert 0.5 < float(fault.input.float().mean()) / 255 < 0.71
        assert fault.after is None
        assert fault.group == ("not finite", str(fault.before), "none")
    for fault in kinds["exception"]:
        assert float(fault.input.float().mean()) / 255 > 0.7
        assert fault.message == "ValueError: an overflow: too light"
        assert fault.group == ("exception", "ValueError")
        assert fault.entry is None
        assert fault.after is None
    assert all(kinds.values())
    # What is no class is not among the classes reached.
    assert (campaign.stats.classes, campaign.stats.entropy) == (0, 0.0)
    assert campaign.inputs.float().mean((1, 2, 3)).div(255).max() < 0.51
    # Inputs that break the model are no seeds: what is kept can be run.
    assert campaign.stats.judged + campaign.stats.faulty == campaign.stats.valid
    again = fuzzer.replay(campaign.faults)
    assert all(entry.reproduced and entry.rebuilt for entry in again)


class NanAbove(Brightness):
    """As the brightness model, with NaN for shades from 0.7 on."""

    def forward(self, images):
        return super().forward(images).masked_fill((images.flatten(1).mean(1) > 0.7)[:, None], torch.nan)


def test_a_second_model_without_numbers_does_not_agree():
    """Class 0 is what the largest of NaN would be; it is the class that the first model gives, too."""
    fuzzer = small(Brightness(2.0), grey(0.3, 0.8), [0, 0], against=NanAbove(2.0), mutations=[Lighter((0.2,))])
    found = fuzzer.run(iterations=30).faults
    assert {fault.root for fault in found} == {0}  # on the other the two never agreed
    assert all(float(fault.input.float().mean()) / 255 > 0.69 for fault in found)
    assert {fault.fault_types for fault in found} == {("disagreement",)}


def test_seeds_that_break_the_model_are_left_out():
    fuzzer = small(Broken(), grey(0.3, 0.6, 0.9))
    campaign = fuzzer.run(iterations=10)
    assert campaign.state.corpus.entries["prediction"][1:3].tolist() == [-1, -1]
    assert campaign.excluded == {1: "NaN or infinite outputs", 2: "ValueError: an overflow: too light"}
    with pytest.raises(InputError, match="none of 1 input can serve as a seed; input 0: ValueError"):
        small(Broken(), grey(0.9)).run(iterations=1)


class Slow(Brightness):
    """Hangs at shades from 0.6 on."""

    def forward(self, images):
        if (images.flatten(1).mean(1) > 0.6).any():
            while True:
                time.sleep(0.001)
        return super().forward(images)


def test_a_model_that_hangs_is_a_finding():
    fuzzer = small(Slow(), grey(0.3, 0.4), [0, 0], time_limit=0.4, mutations=[Lighter((0.1, 0.4))], wave=3)
    campaign = fuzzer.run(faults=1)
    late = [fault for fault in campaign.faults if fault.fault_types == ("time-out",)]
    assert late
    assert all("took longer than 0.4 s" in fault.message for fault in late)


def test_a_check_of_ones_own():
    def far_from_origin(case):
        assert case.labels.tolist() == [0] * len(case.inputs)
        assert case.inputs.shape == case.origins.shape
        return (case.output - case.origin_output).abs().amax(1) > 0.1

    fuzzer = small(Brightness(0.95), grey(0.3, 0.4), [0, 0], checks=far_from_origin)
    campaign = fuzzer.run(iterations=40)
    found = [fault for fault in campaign.faults if fault.fault_types[-1] == "far_from_origin"]
    assert found
    for entry, predicted in enumerate(campaign.predictions, 2):
        lighter = (
            float(campaign.inputs[entry - 2].float().mean()) / 255
            - (0.3, 0.4)[campaign.state.corpus.entries["root"][entry]]
        )
        assert (entry in {fault.entry for fault in found}) == (lighter > 0.1), (lighter, predicted)
    again = fuzzer.replay(campaign.faults)
    assert all(entry.reproduced for entry in again)


def test_a_check_that_says_nonsense():
    fuzzer = small(Brightness(), grey(0.3), [0], checks={"odd": lambda case: torch.zeros(99)})
    with pytest.raises(InputError, match="odd"):
        fuzzer.run(iterations=3)


def test_a_check_alone_needs_no_classes():
    """A model whose output is no class at all, as a generator's or a detector's."""

    class Image(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(1, 2, 3, padding=1)

        def forward(self, images):
            return self.conv(images)

    campaign = small(Image(), grey(0.3), checks={"any": lambda case: case.output.flatten(1).amax(1) > -9}).run(3)
    assert {fault.group for fault in campaign.faults} == {("any", "none", "none")}


def test_every_fault_comes_back_and_gets_smaller(net, digits, tmp_path):
    fuzzer = fuzzer_of(net, digits, [nc.NLC()], wave=32, folder=tmp_path / "campaign")
    campaign = fuzzer.run(faults=25)
    again = fuzzer_of(net, digits, [nc.NLC()], wave=32, folder=tmp_path / "campaign")
    faults = again.load()
    assert len(faults) == len(campaign.faults) >= 25
    assert all(entry.reproduced and entry.rebuilt for entry in again.replay(faults))
    shrunk = again.shrink(faults)
    assert any(entry.smaller for entry in shrunk)
    for entry in shrunk:
        assert set(entry.steps) <= set(entry.fault.steps)
        assert len(entry.steps) >= 1
        with torch.no_grad():
            assert int(net(entry.input[None] / 16).argmax()) == entry.fault.after


def test_only_what_is_needed_is_left():
    """Of two mutations, one of which does nothing, only the other is left."""
    fuzzer = small(
        Brightness(), grey(0.3), [0], mutations=[Lighter((0.1, 0.15)), Nothing(), Nothing(geometric=True)][:2],
        guide="random", wave=8,
    )  # fmt: skip
    campaign = fuzzer.run(iterations=120)
    long = [fault for fault in campaign.faults if len(fault.steps) > 2]
    shrunk = fuzzer.shrink(long)
    assert long
    for entry in shrunk:
        assert {step.mutation for step in entry.steps} == {0}
        needed = sum((0.1, 0.15)[step.setting] for step in entry.steps)
        assert needed - 0.1 < 0.21 < needed + 0.02


def test_a_fault_that_does_not_come_back_is_told():
    noise = mutation(lambda images, generator: images + 0.25, name="lighter by a quarter")
    model = Brightness()
    fuzzer = small(model, grey(0.3), [0], mutations=[noise])
    campaign = fuzzer.run(faults=1)
    model.limit = 0.99
    entry = fuzzer.replay(campaign.faults)[0]
    assert (entry.reproduced, entry.rebuilt, entry.after) == (False, True, 0)
