"""What the sections of a report show beside values: growth, references, neurons, a map, inputs to look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class GrowthCurve:
    """Hold how a criterion's value grew with the suite.

    Args:
        sizes: numbers of inputs, rising; the last is the whole suite.
        values: the value at each size.
        errors: the standard error at each size, ``None`` where none is known.
        order: ``"rarefied"`` if a value is the mean over all orders, ``"as measured"`` if it follows the suite's order.
        forecast: what more such inputs would give: (inputs, value, error or ``None``) each.
        cost: the share of the run's time that reading these values took; ``None`` where it was no part of the run.
    """

    sizes: tuple[int, ...]
    values: tuple[float, ...]
    errors: tuple[float, ...] | None = None
    order: str = "as measured"
    forecast: tuple[tuple[int, float, float | None], ...] = ()
    cost: float | None = None

    @property
    def second_half(self) -> float | None:
        """Return what the second half of the suite added, as a share of the value; ``None`` if that is not known."""
        half = self.sizes[-1] / 2 if self.sizes else 0
        if len(self.sizes) < 2 or self.values[-1] == 0 or self.sizes[0] > half:
            return None
        above = next(i for i, size in enumerate(self.sizes) if size >= half)
        below = max(above - 1, 0)
        width = self.sizes[above] - self.sizes[below]
        share = (half - self.sizes[below]) / width if width else 0.0
        middle = self.values[below] + share * (self.values[above] - self.values[below])
        return 1 - middle / self.values[-1]


@dataclass(frozen=True)
class Reference:
    """Hold a criterion's value for held-out training inputs, beside which the suite's stands.

    Args:
        value: the value for ``inputs`` of them, interpolated in log n to the suite's size where that is possible.
        inputs: how many held-out inputs the value is for; fewer than the suite's where there were no more.
        sizes: the sizes it was taken at.
        values: the value at each size.
        beside: where the suite has more inputs than were held out: its value for as many of them, drawn at random;
            ``None`` where that cannot be told, or need not.
    """

    value: float
    inputs: int
    sizes: tuple[int, ...]
    values: tuple[float, ...]
    beside: float | None = None


@dataclass(frozen=True)
class LayerNeurons:
    """Hold what a suite shows of one layer's neurons.

    Args:
        layer: its name.
        neurons: how many it has.
        visited: by criterion, the share of each neuron's cells that the suite covers: at most 128 numbers, of the
            least visited neurons, with their numbers in ``numbers``.
        numbers: by criterion, the numbers of those neurons.
        dead: neurons that were never above 0, by number, at most 128; ``None`` where it was not looked at.
        constant: neurons that gave one value for all inputs, by number, at most 128; ``None`` likewise.
        eigenvalues: the ten largest of the covariance of the suite's outputs, as shares of its trace, of a sample of
            up to 256 inputs.
        dead_count: how many are dead, ``None`` where it was not looked at.
        constant_count: how many are constant, likewise.
        living: by criterion, the visited share of the neurons that are not dead.
    """

    layer: str
    neurons: int
    visited: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    numbers: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    dead: tuple[int, ...] | None = None
    constant: tuple[int, ...] | None = None
    eigenvalues: tuple[float, ...] = ()
    dead_count: int | None = None
    constant_count: int | None = None
    living: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class SuiteMap:
    """Hold training and suite in the two main directions of a layer's outputs over training data.

    Args:
        layer: whose outputs these are.
        explained: the share of their variance that each direction has.
        training: points (x, y), at most 2,000.
        suite: points (x, y), at most 2,000.
        classes: the class of each point of the suite, as text; empty where none is known.
        wrong: whether the model was wrong about it; empty where no labels are known.
        named: (name, x, y) of the most surprising inputs, which reports show as pictures too.
    """

    layer: str
    explained: tuple[float, float]
    training: tuple[tuple[float, float], ...]
    suite: tuple[tuple[float, float], ...]
    classes: tuple[str, ...] = ()
    wrong: tuple[bool, ...] = ()
    named: tuple[tuple[str, float, float], ...] = ()


@dataclass(frozen=True)
class GalleryItem:
    """Hold one input to look at: its name, what the model said, why it is shown, and a picture (PNG) or a text."""

    id: str
    why: str
    label: str | None = None
    prediction: str | None = None
    picture: bytes | None = None
    text: str | None = None


@dataclass(frozen=True)
class Gallery:
    """Hold inputs that are shown for one reason: ``title`` names it, ``explanation`` says how to read them."""

    title: str
    explanation: str
    items: tuple[GalleryItem, ...]


@dataclass(frozen=True)
class FewerInputs:
    """Hold how few inputs would do: pairs (inputs, share of the criterion's value kept), and mistakes kept if known."""

    criterion: str
    sizes: tuple[int, ...]
    shares: tuple[float, ...]
    mistakes: tuple[float, ...] | None = None
