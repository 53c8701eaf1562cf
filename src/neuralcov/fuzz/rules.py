"""Rules of others as settings: those of the NLC paper's public artefact, and those of its text.

The artefact (Yuan, Pang and Wang, 2023) does otherwise than its paper says, and both do otherwise than we. Every
difference is a field of ``FuzzSettings``, so that each can be switched by itself:

=================  =======================  ====================  ================================
field              published                paper                 ours
=================  =======================  ====================  ================================
alpha, beta        0.4, 0.8                 0.2, 0.4              0.2, 0.4
counted            values                   positions             positions
compared           root                     parent                moved
move_once          yes                      no                    yes
exempt_styles      yes                      no                    no
border             white                    black                 black
mutation_choice    settings                 uniform               see the defaults
identities         yes                      no                    no
initial            given                    seeds                 seeds
schedule           picked                   uniform               see the defaults
wrong_seeds        yes                      no                    no
=================  =======================  ====================  ================================

One thing is not emulated: the artefact knows images by their printed text, of which NumPy shows the corners alone, so
that lineages get lost where two images print alike. That is a mistake rather than a rule.
"""

from __future__ import annotations

from collections.abc import Mapping

from neuralcov.core.errors import InputError
from neuralcov.fuzz.settings import FuzzSettings

OURS = FuzzSettings()

PUBLISHED = FuzzSettings(
    guide="coverage",
    mutation_choice="settings",
    stack=1,
    schedule="picked",
    alpha=0.4,
    beta=0.8,
    counted="values",
    compared="root",
    move_once=True,
    exempt_styles=True,
    border="white",
    identities=True,
    initial="given",
    wrong_seeds=True,
)

# Algorithm 1 compares a mutant with the seed it was made of and says nothing of moving that along, of one geometric
# mutation in a lineage, or of what coverage begins with.
PAPER = FuzzSettings(
    guide="coverage",
    mutation_choice="uniform",
    stack=1,
    schedule="uniform",
    alpha=0.2,
    beta=0.4,
    counted="positions",
    compared="parent",
    move_once=False,
    exempt_styles=False,
    border="black",
    identities=False,
    initial="seeds",
    wrong_seeds=False,
)

RULES: Mapping[str, FuzzSettings] = {"ours": OURS, "published": PUBLISHED, "paper": PAPER}


def settings_of(rules: str | None) -> FuzzSettings:
    """Return the settings of a name; ours without one.

    >>> settings_of("published").beta
    0.8
    """
    if rules is None:
        return OURS
    if rules not in RULES:
        raise InputError(f"rules={rules!r}: expected {', '.join(map(repr, RULES))}")
    return RULES[rules]
