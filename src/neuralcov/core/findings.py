"""What a measurement has to say beside its values, as plain data: rows of layers, findings, what was not measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from neuralcov.core.input_names import Plain

# So many inputs are named.
_SHOWN = 3
# Above this share a person should know.
NOTEWORTHY = 0.05


@dataclass(frozen=True)
class LayerRow:
    """Hold one layer of a coverage: its values by criterion, ``None`` where a criterion has none for it.

    ``figures`` are those beside the values, such as ``LCC.relative``, for criteria that tell them of layers.
    """

    layer: str
    neurons: int
    values: Mapping[str, float | None]
    figures: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Finding:
    """Tell something about a measurement that a person should know.

    Args:
        criterion: whose finding it is.
        sentence: what to know.
        inputs: how many inputs it is about.
        ids: names of the first of these, where they are known.
    """

    criterion: str
    sentence: str
    inputs: int | None = None
    ids: tuple[Plain, ...] = ()

    def __str__(self) -> str:
        return f"{self.criterion}: {self.sentence}{self._named}"

    @property
    def _named(self) -> str:
        if not self.ids:
            return ""
        more = ", …" if self.inputs is not None and self.inputs > len(self.ids[:_SHOWN]) else ""
        return f" (inputs {', '.join(map(str, self.ids[:_SHOWN]))}{more})"


@dataclass(frozen=True)
class Unmeasured:
    """Tell the share of a model's parameters that belong to no measured layer.

    Args:
        share: of all parameters, those of no measured layer.
        unseen: the same without embeddings, norms and layers that ``layers=`` leaves out on purpose.
        largest: the largest parameters behind ``unseen``, with their sizes.
    """

    share: float
    unseen: float
    largest: Mapping[str, int]

    @property
    def noteworthy(self) -> bool:
        """Return whether so much is unseen that a person should know."""
        return self.unseen > NOTEWORTHY

    def __str__(self) -> str:
        names = ", ".join(f"{name} ({size:,})" for name, size in self.largest.items())
        return (
            f"{100 * self.unseen:.0f} % of the model's parameters, not counting embeddings and norms, belong to "
            f"no measured layer, so that what they compute is not measured; the largest are {names}"
        )
