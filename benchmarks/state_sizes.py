"""``python -m benchmarks.state_sizes``: what states take at other sizes of suites and layers, by formula, as a table.

Nothing is measured or allocated: the formulas are those of ``neuralcov layers --cost``, which tests hold against real
states.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import neuralcov as nc
from neuralcov.core.cost import Workload, cost_of
from neuralcov.core.criterion import Criterion
from neuralcov.core.layout import Layout
from neuralcov.core.memory import show_bytes

CRITERIA: tuple[Criterion[Any], ...] = (
    nc.NC(),
    nc.KMNC(),
    nc.NBC(),
    nc.SNAC(),
    nc.TKNC(),
    nc.TKNP(),
    nc.SS(),
    nc.CC(),
    nc.LSC(),
    nc.DSC(),
    nc.MDSC(),
    nc.NPC(),
    nc.NLC(),
    nc.LVC(),
    nc.LCC(),
)


def state_sizes(
    hidden: Sequence[int], inputs: Sequence[int], layers: int = 1, training_inputs: int = 50_000
) -> list[list[str]]:
    """Return a table's rows, the head first: what the state of each criterion takes.

    Args:
        hidden: sizes of layers.
        inputs: sizes of suites.
        layers: how many layers of that size there are.
        training_inputs: that were learnt from; no part of states.
    """
    sizes = [(width, count) for width in hidden for count in inputs]
    rows = [["criterion", *(f"{layers} × {width:,}, {count:,} inputs" for width, count in sizes)]]
    for criterion in CRITERIA:
        cells = []
        for width, count in sizes:
            layout = Layout({f"layer{index}": width for index in range(layers)})
            cost = cost_of(criterion, layout, Workload(count, training_inputs))
            cells.append(f"{'≤ ' if cost.grows else ''}{show_bytes(cost.state)}")
        rows.append([criterion.name, *cells])
    return rows


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden", type=int, nargs="+", default=[4_096, 11_008])
    parser.add_argument("--inputs", type=int, nargs="+", default=[10**6, 10**9])
    parser.add_argument("--layers", type=int, default=2)
    options = parser.parse_args()
    head, *rows = state_sizes(options.hidden, options.inputs, options.layers)
    print(f"| {' | '.join(head)} |")
    print("|---" + "|--:" * (len(head) - 1) + "|")
    for row in rows:
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
