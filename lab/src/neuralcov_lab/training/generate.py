"""Learn to draw images of a class: a generator against a discriminator, judged by the Fréchet distance."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn
from typing_extensions import override

from neuralcov.fuzz.faults.quality import Gaussian, frechet_distance, gaussian_of
from neuralcov.sources.samples import Samples
from neuralcov_lab.errors import DataError
from neuralcov_lab.networks import Discriminator, Generator, Inception, inception
from neuralcov_lab.training.recipe import Recipe
from neuralcov_lab.training.schedule import plateau
from neuralcov_lab.training.tasks import Task, mixed_precision, placed, set_rate

_NORM_BATCHES = 40
_FEATURE_BATCH = 250
QUICK, _FULL = 10_000, 50_000


class Generation(Task):
    """Learn by hinge losses (Lim and Ye, 2017): several discriminator steps per generator step, averaged weights."""

    def __init__(
        self, generator: Generator, discriminator: Discriminator, train: Samples, recipe: Recipe, device: torch.device
    ) -> None:
        self.generator = placed(generator, device)
        self.discriminator = placed(discriminator, device)
        moving = get_ema_multi_avg_fn(recipe.averaging)  # type: ignore[no-untyped-call]
        self.average = AveragedModel(self.generator, multi_avg_fn=moving)
        self.average.requires_grad_(False).eval()
        self.best, self.best_distance = self._averaged, float("inf")
        self.recipe, self.device = recipe, device
        self.train = train.to(device)
        self.optimiser = _adam(self.generator, recipe.learning_rate)
        self.adversary = _adam(self.discriminator, recipe.discriminator_rate)
        self.parts = {
            "generator": self.generator,
            "discriminator": self.discriminator,
            "average": self.average,
            "optimiser": self.optimiser,
            "adversary": self.adversary,
        }
        self.inputs_per_step = recipe.batch_size * recipe.discriminator_steps
        self._features = features_if_fetched(device)
        self._real: Gaussian | None = None

    @override
    def step(self, rows: Tensor, progress: float) -> Tensor:
        # Several steps of the discriminator, one of the generator; the loss is the discriminator's last.
        share = plateau(progress, self.recipe.warm_up)
        set_rate(self.optimiser, self.recipe.learning_rate * share)
        set_rate(self.adversary, self.recipe.discriminator_rate * share)
        self.generator.train()
        self.discriminator.train()
        self.discriminator.requires_grad_(True)
        for part in rows.chunk(self.recipe.discriminator_steps):
            loss = self._discriminate(part)
        self._generate(self.recipe.batch_size)
        self.average.update_parameters(self.generator)
        return loss

    @override
    def evaluate(self, final: bool) -> dict[str, float]:
        # The Fréchet distance to the training images, where the feature network has been fetched.
        drawing = self._averaged
        update_norms(drawing, self.recipe.batch_size, self.device)
        if self._features is None:
            return {}
        if self._real is None:
            self._real = gaussian_of_samples(self._features, self.train, self.device)
        # As many images as there are real ones, where those were limited.
        quick, full = (min(count, len(self.train)) for count in (QUICK, _FULL))
        distance = self._distance(drawing, quick)
        if distance <= self.best_distance:
            self.best, self.best_distance = copy.deepcopy(drawing), distance
        if not final:
            return {f"FID of {quick:,}": distance}
        return {f"FID of {full:,}": self._distance(self.best, full), f"FID of {quick:,}": self.best_distance}

    @override
    def result(self) -> nn.Module:
        # The averaged generator: the best of those evaluated, or the last where none could be.
        return self.best if self._features is not None else self._averaged

    @override
    def state(self) -> dict[str, Any]:
        return {**super().state(), "best": self.best.state_dict(), "best distance": self.best_distance}

    @override
    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        self.best, self.best_distance = copy.deepcopy(self._averaged), state["best distance"]
        self.best.load_state_dict(state["best"])

    def _distance(self, drawing: Generator, count: int) -> float:
        assert self._features is not None
        assert self._real is not None
        return frechet_distance(self._real, gaussian_of_generator(self._features, drawing, count))

    @property
    def _averaged(self) -> Generator:
        return cast(Generator, self.average.module)

    def _discriminate(self, rows: Tensor) -> Tensor:
        real, classes = self._real_images(rows), self.train.labels[rows]
        drawn = torch.randint(0, self.generator.num_classes, (len(rows),), device=self.device)
        with mixed_precision(self.device):
            with torch.no_grad():
                fake = self._draw(drawn)
            # Both in one pass, so that the discriminator's weights are normalised once.
            scores = self.discriminator(torch.cat([real, fake.to(real.dtype)]), torch.cat([classes, drawn]))
        of_real, of_fake = scores.chunk(2)
        loss = functional.relu(1 - of_real).mean() + functional.relu(1 + of_fake).mean()
        self.adversary.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.adversary.step()
        return loss.detach()

    def _generate(self, size: int) -> None:
        classes = torch.randint(0, self.generator.num_classes, (size,), device=self.device)
        self.discriminator.requires_grad_(False)
        with mixed_precision(self.device):
            loss = -self.discriminator(self._draw(classes), classes).mean()
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        self.discriminator.requires_grad_(True)

    def _draw(self, classes: Tensor) -> Tensor:
        noise = torch.randn(len(classes), self.generator.linear.in_features, device=self.device)
        images: Tensor = self.generator(noise, classes)
        return images

    def _real_images(self, rows: Tensor) -> Tensor:
        """Real images in [−1, 1], mirrored at random."""
        images = self.train.pixels(rows) * 2 - 1
        if self.recipe.flip:
            mirrored = torch.rand(len(rows), 1, 1, 1, device=self.device) < 0.5
            images = torch.where(mirrored, images.flip(3), images)
        return images.contiguous(memory_format=torch.channels_last)


class _Drawing(nn.Module):
    """Draw images of given classes from fresh noise: the one argument that ``update_bn`` passes on."""

    def __init__(self, generator: Generator) -> None:
        super().__init__()
        self.generator = generator

    def forward(self, classes: Tensor) -> Tensor:
        noise = torch.randn(len(classes), self.generator.linear.in_features, device=classes.device)
        return cast(Tensor, self.generator(noise, classes))


def update_norms(generator: Generator, batch_size: int, device: torch.device) -> None:
    """Give batch normalisation the statistics of these very weights: averaged ones have never been run."""
    drawing = _Drawing(generator).eval()
    update_bn(
        (torch.randint(0, generator.num_classes, (batch_size,), device=device) for _ in range(_NORM_BATCHES)), drawing
    )


def _adam(network: nn.Module, rate: float) -> torch.optim.Optimizer:
    return torch.optim.Adam(network.parameters(), rate, betas=(0.0, 0.999), fused=next(network.parameters()).is_cuda)


def features_if_fetched(device: torch.device) -> Inception | None:
    """Return the network whose features the distance is taken of, ``None`` if it was not fetched."""
    try:
        return placed(inception(), device)
    except DataError:
        return None


@torch.no_grad()
def gaussian_of_samples(network: Inception, samples: Samples, device: torch.device) -> Gaussian:
    """Fit a Gaussian to the features of real images."""
    rows = torch.split(torch.arange(len(samples)), _FEATURE_BATCH)
    return gaussian_of(network.of_pixels(samples.pixels(part).to(device)) for part in rows)


@torch.no_grad()
def gaussian_of_generator(network: Inception, generator: Generator, count: int, seed: int = 0) -> Gaussian:
    """Fit a Gaussian to the features of generated images, classes in turn, rounded to 256 levels like real ones."""
    device = next(generator.parameters()).device
    random = torch.Generator().manual_seed(seed)
    generator.eval()

    def features() -> Iterable[Tensor]:
        for rows in torch.split(torch.arange(count), _FEATURE_BATCH):
            images = generator.sample((rows % generator.num_classes).to(device), random)
            yield network.of_pixels(((images.float() + 1) * 127.5).round() / 255)

    return gaussian_of(features())
