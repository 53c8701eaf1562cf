import numpy as np
import pytest

from neuralcov.core.errors import InputError
from neuralcov.fuzz import Schedule


@pytest.mark.parametrize("kind", ["uniform", "fresh"])
def test_seeds_come_as_often_as_their_weight_says(kind):
    schedule = Schedule(kind)
    picks = np.array([0, 2, 9, 4, 1])
    usable = np.array([True, True, True, False, True])
    chances = (np.arange(200_000) + 0.5) / 200_000
    found = np.bincount(schedule.sample(picks, usable, chances), minlength=5) / len(chances)
    wanted = np.where(usable, schedule.weights(picks), 0)
    np.testing.assert_allclose(found, wanted / wanted.sum(), atol=1e-4)


def test_weights_are_deephunters():
    wanted = [max(1 - picks / 5, 0.01) for picks in range(8)]
    assert Schedule("fresh").weights(np.arange(8)).tolist() == pytest.approx(wanted)
    assert Schedule("fresh", gamma=2, floor=0.5).weights(np.array([0, 1, 7])).tolist() == [1, 0.5, 0.5]


def test_the_last_chance_is_still_a_seed():
    for kind in ("uniform", "fresh"):
        picks, usable = np.zeros(3, dtype=int), np.array([True, True, False])
        assert Schedule(kind).sample(picks, usable, np.array([np.nextafter(1, 0)])).tolist() == [1]


def test_wrong_settings():
    with pytest.raises(InputError, match="schedule='new': expected 'uniform', 'fresh' or 'picked'"):
        Schedule("new")
    with pytest.raises(InputError, match="gamma above 0"):
        Schedule(gamma=0)
