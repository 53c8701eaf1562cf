"""What LCC says of texts whose words were looked up in another vocabulary, and why.

    python lab/benchmarks/wrong_vocabulary.py

Needs `neuralcov data get newsgroups` and the weights of the transformer (`neuralcov train transformer`). Prints a table
in Markdown: half a minute on two cores.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from neuralcov.sources.samples import Samples
from neuralcov_lab.experiments import SCALES, ExperimentContext
from neuralcov_lab.experiments.lcc.figures import Measure
from neuralcov_lab.experiments.lcc.maps import Cut, Map
from neuralcov_lab.experiments.lcc.projections import Directions, Projections, project
from neuralcov_lab.experiments.lcc.subjects import ProofSubject, proof_subject
from neuralcov_lab.experiments.lcc.texts import FIRST_WORD, mixed_words, random_words
from neuralcov_lab.experiments.tables import markdown

_USUAL, _MORE = Directions(), Directions(16)
_HEADER = (
    "texts",
    "right",
    "off the map",
    "in the layer with most",
    "`relative`",
    "off the map, 16 directions",
    "spread in the layers",
    "shift in the layers",
)


def wrong_vocabularies(test: Samples, random: torch.Generator) -> Iterator[tuple[str, Samples]]:
    """Iterate over the test texts, the same in other vocabularies, and texts of drawn words."""
    assert test.words is not None
    words = len(test.words) - FIRST_WORD
    moved = torch.arange(words)
    yield "the test set", test
    yield "words in random order", _looked_up(test, torch.randperm(words, generator=random))
    yield "one number further", _looked_up(test, (moved + 1) % words)
    yield "1,000 numbers further", _looked_up(test, (moved + 1_000) % words)
    yield "up to 100 numbers off", _looked_up(test, (moved + 100 * torch.rand(words, generator=random)).argsort())
    yield "words drawn from all texts", mixed_words(test, random)
    yield "words drawn from the vocabulary", random_words(test, random)


def table(context: ExperimentContext, subject: ProofSubject) -> str:
    """Return one row per suite, in Markdown."""
    reader = subject.reader(context)

    def placed(samples: Samples) -> Projections:
        return project(reader.run(subject.batches(samples, context.scale.batch)), [_USUAL, _MORE])

    base = placed(subject.train)
    usual, more = (Map.learn(base, Cut(directions=directions)) for directions in (_USUAL, _MORE))
    middle, deviation = (getattr(base.places[_USUAL], of)(1, keepdim=True) for of in ("mean", "std"))
    rows = []
    for name, suite in wrong_vocabularies(subject.test, torch.Generator().manual_seed(0)):
        found = placed(suite)
        here = usual.place(found)
        figures, finer = Measure(usual, here).figures(), Measure(more, more.place(found)).figures()
        worst = Measure(usual, here).figures(over=lambda layers: float(layers.max()))
        standard = (found.places[_USUAL] - middle) / deviation
        rows.append(
            [
                name,
                f"{float((found.decisions == suite.labels).double().mean()):.0%}",
                f"{figures.off_map:.1%}",
                f"{worst.off_map:.0%}",
                f"{figures.relative:.2f}",
                f"{finer.off_map:.0%}",
                _range(standard.std(1).mean(1)),
                _range(standard.mean(1).abs().mean(1)),
            ]
        )
    return markdown(_HEADER, rows)


def _looked_up(test: Samples, order: Tensor) -> Samples:
    """Return texts with each word's number replaced; padding and the unknown word stay."""
    numbers = torch.cat([torch.arange(FIRST_WORD), FIRST_WORD + order])
    return replace(test, inputs=numbers[test.inputs.long()].to(test.inputs.dtype))


def _range(layers: Tensor) -> str:
    return f"{float(layers.min()):.2f} to {float(layers.max()):.2f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--subject", default="transformer-newsgroups")
    parser.add_argument("--device", default="cpu")
    chosen = parser.parse_args()
    context = ExperimentContext(SCALES["full"], torch.device(chosen.device))
    print(table(context, proof_subject(context, chosen.subject)))


if __name__ == "__main__":
    main()
