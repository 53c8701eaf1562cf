"""Name the variants of LCC that are compared, one setting changed at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace

from neuralcov_lab.experiments.lcc.figures import DEFAULT, Weighting
from neuralcov_lab.experiments.lcc.maps import Cut
from neuralcov_lab.experiments.lcc.projections import Directions

LCC = "LCC"
CUT = Cut()
RESOLUTIONS = (0.2, 0.35, 0.65, 0.8, 1.0)
DIRECTIONS = (4, 6, 12, 16, 32)
SEEDS = (1, 2, 3, 4)
EXPONENTS = (0.0, 0.25, 0.75, 1.0)
CALIBRATIONS = (500, 1_000, 2_000, 5_000, 10_000, 20_000)


@dataclass(frozen=True)
class Variant:
    """Describe a variant of LCC.

    Args:
        name: shown in tables.
        group: the setting that differs from the definition.
        cut: how outputs are cut.
        weighting: what kinds weigh.
        over: how layers become one number.
        training: so many training inputs only; ``None`` for all.
    """

    name: str
    group: str
    cut: Cut = CUT
    weighting: Weighting = DEFAULT
    over: str = "median"
    training: int | None = None


def variants(training: int) -> tuple[Variant, ...]:
    """Return the definition and everything near it, for so many training inputs."""
    return (
        Variant(LCC, "definition"),
        *(Variant(f"resolution {r:g}", "resolution", replace(CUT, resolution=r)) for r in RESOLUTIONS),
        *(Variant(f"{d} directions", "directions", replace(CUT, directions=Directions(d))) for d in DIRECTIONS),
        *(Variant(f"seed {s}", "seed", replace(CUT, directions=Directions(seed=s))) for s in SEEDS),
        *(Variant(f"exponent {e:g}", "exponent", weighting=Weighting(e)) for e in EXPONENTS),
        *(Variant(f"over the {over}", "layers", over=over) for over in ("mean", "trimmed")),
        Variant("without decision", "decision", replace(CUT, decision=False)),
        *(Variant(f"novel boxes {w:g}", "novel boxes", weighting=Weighting(novel=w)) for w in (0.25, 0.5, 1.0)),
        *(Variant(f"new decisions {w:g}", "new decisions", weighting=Weighting(new_decision=w)) for w in (0.0, 0.5)),
        Variant("exponent 0.25, new decisions 0.5", "two changes", weighting=Weighting(0.25, new_decision=0.5)),
        Variant("exponent 0.25, novel boxes 1", "two changes", weighting=Weighting(0.25, novel=1.0)),
        Variant("novel boxes 1, new decisions 0", "two changes", weighting=Weighting(new_decision=0.0, novel=1.0)),
        *(Variant(f"{n:,} training inputs", "calibration", training=n) for n in CALIBRATIONS if n < training),
    )


# Names of what is near the definition, the definition itself left out.
VARIANTS = frozenset(variant.name for variant in variants(10**9)) - {LCC}
