"""Say how large experiments are: ``smoke`` and ``small`` for two cores, ``full`` for one GPU."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from neuralcov.core.errors import InputError

_SIZES = (
    "training",
    "test",
    "attacked",
    "perturbed",
    "cw_inputs",
    "drawn",
    "order_inputs",
    "time_inputs",
    "fuzz_seeds",
    "fuzz_iterations",
    "path_training",
    "path_inputs",
    "reviews",
    "generated",
    "pictured",
)

TOY = "toy"

_FREE = frozenset(
    {
        "batch",
        "alone",
        "runs",
        "draws",
        "orders",
        "order_batches",
        "time_batches",
        "time_runs",
        "fuzz_seconds",
        "fuzz_wave",
    }
)


@dataclass(frozen=True)
class Scale:
    """Hold the sizes of all experiments.

    Args:
        name: ``smoke``, ``small`` or ``full``.
        networks: image classifiers, the one that single-network experiments use first.
        batch: inputs per forward pass.
        chunk: inputs at a time for criteria whose value depends on how inputs are batched.
        paper_chunk: the same as the paper's code has it, for NLC once more.
        training: training inputs, for calibration and as what suites are added to.
        test: inputs of the test suite.
        noise_seeds: images that noisy copies, or reviews that shuffled ones, are made of.
        noises: bounds of the noise, the paper's first.
        multiples: noisy copies as multiples of the test suite.
        alone: up to which multiple copies are measured on their own under all criteria; beyond it only under those
            that can fall.
        runs: how often an experiment with random suites is repeated, with other seeds.
        draws: random subsets of each suite where suites are compared at equal size.
        drawn: inputs of such a subset.
        attacked: inputs attacked by PGD.
        pgd_steps: steps of that attack.
        cw_inputs: inputs attacked by Carlini and Wagner's attack.
        cw_steps: steps of that attack.
        perturbed: perturbed inputs that keep their prediction.
        orders: random orders in which one suite is observed.
        order_inputs: inputs of that suite.
        order_batches: batch sizes in which it is observed.
        time_inputs: inputs whose measuring is timed.
        time_batches: batch sizes for that.
        time_runs: how often.
        fuzz_seeds: inputs a fuzzing campaign starts from.
        fuzz_iterations: seeds it samples.
        fuzz_seconds: after which it stops.
        fuzz_wave: seeds that advance together.
        path_training: training inputs for NPC, whose relevance pass is costly.
        path_inputs: inputs of each suite for NPC.
        text: ``imdb``, or ``toy`` for a small language made on the spot.
        reviews: training reviews, and as many for the test suite.
        generator: ``cifar10``, or ``toy`` for a small one that was not trained.
        generated: inputs of the generator.
        pictured: inputs behind a figure.
        divided: by what the sizes were divided for trying out.
    """

    name: str
    networks: tuple[str, ...]
    batch: int
    chunk: int
    paper_chunk: int
    training: int
    test: int
    noise_seeds: int
    noises: tuple[float, ...]
    multiples: tuple[int, ...]
    alone: int
    runs: int
    draws: int
    drawn: int
    attacked: int
    pgd_steps: int
    cw_inputs: int
    cw_steps: int
    perturbed: int
    orders: int
    order_inputs: int
    order_batches: tuple[int, ...]
    time_inputs: int
    time_batches: tuple[int, ...]
    time_runs: int
    fuzz_seeds: int
    fuzz_iterations: int
    fuzz_seconds: float
    fuzz_wave: int
    path_training: int
    path_inputs: int
    text: str
    reviews: int
    generator: str
    generated: int
    pictured: int
    divided: int = 1

    def smaller(self, by: int) -> Scale:
        """Return the same experiments with every number of inputs divided, for trying out."""
        if by < 1:
            raise InputError(f"divide={by}: expected at least 1")
        sizes: dict[str, Any] = {name: max(20, getattr(self, name) // by) for name in _SIZES}
        return replace(self, **sizes, divided=self.divided * by) if by > 1 else self

    def differs(self, other: Scale) -> str | None:
        """Return the first thing in which suites or verdicts of the two would differ, in words; ``None`` for nothing.

        How often something is repeated, and in what batches it is run, may differ among the jobs of one folder.
        """
        for field in fields(Scale):
            ours, theirs = getattr(self, field.name), getattr(other, field.name)
            if field.name not in _FREE and ours != theirs:
                return f"{field.name} {theirs!r} and not {ours!r}"
        return None

    @property
    def made_up(self) -> tuple[str, ...]:
        """The experiments whose data are made up on the spot: they show that everything works, and no more."""
        behind = {"diversity-text": self.text, "diversity-generative": self.generator}
        return tuple(experiment for experiment, data in behind.items() if data == TOY)

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


FULL = Scale(
    name="full",
    networks=("resnet50", "vgg16_bn", "mobilenet_v2"),
    batch=2000,
    chunk=1000,
    paper_chunk=100,
    training=50_000,
    test=10_000,
    noise_seeds=100,
    noises=(0.1, 0.2, 0.05, 0.4),
    multiples=(1, 10),
    alone=1,
    runs=5,
    draws=10,
    drawn=5_000,
    attacked=10_000,
    pgd_steps=10,
    cw_inputs=10_000,
    cw_steps=100,
    perturbed=1_000,
    orders=5,
    order_inputs=10_000,
    order_batches=(1000, 100, 20),
    time_inputs=10_000,
    time_batches=(1000,),
    time_runs=5,
    fuzz_seeds=1_000,
    fuzz_iterations=10_000,
    # Room for slower machines: on a GPU the longest took a minute and a half.
    fuzz_seconds=3600.0,
    fuzz_wave=1000,
    path_training=20_000,
    path_inputs=10_000,
    text="imdb",
    reviews=17_500,
    generator="cifar10",
    generated=32_000,
    pictured=2_000,
)

SMOKE = Scale(
    name="smoke",
    networks=("digits",),
    batch=100,
    chunk=50,
    paper_chunk=10,
    training=1_200,
    test=500,
    noise_seeds=10,
    noises=(0.1, 0.4),
    multiples=(1, 4),
    alone=4,
    runs=2,
    draws=3,
    drawn=200,
    attacked=300,
    pgd_steps=10,
    cw_inputs=100,
    cw_steps=100,
    perturbed=50,
    orders=3,
    order_inputs=400,
    order_batches=(100, 20),
    time_inputs=400,
    time_batches=(100,),
    time_runs=2,
    fuzz_seeds=60,
    fuzz_iterations=200,
    fuzz_seconds=5.0,
    fuzz_wave=60,
    path_training=600,
    path_inputs=200,
    text=TOY,
    reviews=300,
    generator=TOY,
    generated=400,
    pictured=300,
)

# Images of clothes and digits, networks trained on all of them; text and generator are as in smoke.
SMALL = replace(
    SMOKE,
    name="small",
    networks=("convnet-fashion-mnist", "mlp-fashion-mnist", "convnet-mnist"),
    batch=500,
    chunk=100,
    training=5_000,
    test=1_000,
    noise_seeds=20,
    noises=(0.1, 0.2, 0.05, 0.4),
    multiples=(1, 10),
    alone=1,
    runs=2,
    draws=10,
    drawn=400,
    attacked=1_000,
    cw_inputs=1_000,
    perturbed=200,
    order_inputs=1_000,
    time_inputs=1_000,
    path_training=2_000,
    path_inputs=1_000,
)

SCALES = {scale.name: scale for scale in (SMOKE, SMALL, FULL)}


def scale_from_json(content: dict[str, Any]) -> Scale:
    """Return the scale that ``Scale.to_json`` described."""
    known = {field.name for field in fields(Scale)}
    plain: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in content.items()}
    if not set(plain) <= known:
        odd = sorted(set(plain) - known)[0]
        raise InputError(f"these results were made by another version: this one does not know {odd!r}")
    return Scale(**plain)
