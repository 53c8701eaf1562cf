"""Train a network from data to weights with a card: network, steps, checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from neuralcov.core.errors import InputError
from neuralcov.sources.data import image_folder
from neuralcov.sources.samples import Samples
from neuralcov_lab.networks import VAE, Discriminator, Generator
from neuralcov_lab.training.files import (
    Card,
    card_path,
    checkpoint_path,
    device_name,
    kept_path,
    read_checkpoint,
    require_writable,
    write_checkpoint,
    write_weights,
)
from neuralcov_lab.training.generate import Generation
from neuralcov_lab.training.recipe import Recipe, recipe_of
from neuralcov_lab.training.schedule import Schedule
from neuralcov_lab.training.tasks import AutoEncoding, Classification, Task
from neuralcov_lab.zoo import arguments_for, build, data

# Generators are judged a few times only, since that takes thousands of images through a large network.
_JUDGEMENTS = 6
# Seeds of epochs follow from it, and are numbers of 64 bits.
_HIGHEST_SEED = (1 << 44) - 1


@dataclass(frozen=True)
class Settings:
    """Hold what a user may set.

    Args:
        folder: the user's own copy of the data, in place of the cache.
        epochs: in place of the recipe's.
        minutes: a limit; learning rates then fall in time for it.
        batch_size: in place of the recipe's.
        learning_rate: in place of the recipe's.
        seed: seed of all random choices.
        device: where to train.
        limit: use only so many inputs of each split.
        resume: go on from a checkpoint if there is one.
        half: write the weights in float16.
        compile: let ``torch.compile`` speed up a classifier, where that works.
        checkpoint_seconds: the least time between two checkpoints.
        keep: epochs after which the weights are kept as they are then, beside the final ones.
        arguments: for building the network.
    """

    folder: Path | None = None
    epochs: int | None = None
    minutes: float | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    seed: int = 0
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    limit: int | None = None
    resume: bool = False
    half: bool = False
    compile: bool = False
    checkpoint_seconds: float = 30.0
    keep: tuple[int, ...] = ()
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class EpochReport:
    """Tell how a training stands after an epoch."""

    epoch: int
    epochs: int
    progress: float
    loss: float
    results: dict[str, float]
    seconds: float


def train(
    network: str,
    output: Path,
    data_name: str | None = None,
    settings: Settings | None = None,
    report: Callable[[EpochReport], None] = lambda standing: None,
) -> Card:
    """Train a network of the zoo and write its weights and their card.

    Args:
        network: a name with a recipe.
        output: the weights file, ``.safetensors``.
        data_name: a data set of the zoo, or ``folder:PATH`` with class folders below ``train`` and ``test``; by
            default the recipe's.
        settings: what differs from the recipe.
        report: told how it stands after every epoch.
    """
    chosen = settings or Settings()
    used = None if data_name is None else data_name.removeprefix("zoo:")
    recipe = recipe_of(network).changed(chosen.epochs, chosen.batch_size, chosen.learning_rate, used)
    late = [epoch for epoch in chosen.keep if not 1 <= epoch <= recipe.epochs]
    if late:
        raise InputError(f"--keep {late[0]}: the training has epochs 1 to {recipe.epochs}")
    if not 0 <= chosen.seed <= _HIGHEST_SEED:
        raise InputError(f"seed={chosen.seed}: expected a whole number from 0 to {_HIGHEST_SEED:,}")
    if output.suffix != ".safetensors":
        raise InputError(f"{output}: expected a file name that ends in .safetensors")
    require_writable(output)
    checkpoint = checkpoint_path(output)
    if checkpoint.exists() and not chosen.resume:
        raise InputError(f"{checkpoint} is left from a training that was stopped: pass --resume to go on, or delete it")
    train_set, test_set = (_limited(split, chosen.limit) for split in _splits(recipe.data, chosen.folder))
    if len(train_set) < 2:
        raise InputError(f"{train_set.name}: {len(train_set)} inputs are too few to train on")
    with _determined(chosen.device):
        torch.manual_seed(chosen.seed)
        arguments = {**arguments_for(network, train_set), **chosen.arguments}
        task = _task(network, arguments, train_set, test_set, recipe, chosen)
        identity = _identity(network, arguments, recipe, chosen.seed, train_set)
        training = TrainingLoop(identity, task, recipe, chosen, len(train_set), output)
        results = training.run(report)
    card = Card(
        network=network,
        arguments=arguments,
        parameters=sum(parameter.numel() for parameter in task.result().parameters()),
        data=train_set.name,
        inputs=len(train_set),
        test=f"{test_set.name}, {len(test_set):,} inputs",
        recipe=asdict(recipe),
        seed=chosen.seed,
        epochs=training.epoch,
        steps=training.schedule.done,
        results=results,
        seconds=round(training.schedule.elapsed, 1),
        device=device_name(chosen.device),
        resumed=training.resumed,
        kept=training.kept,
        weights_sha256=write_weights(task.result(), output, half=chosen.half),
    )
    card.write(card_path(output))
    checkpoint.unlink(missing_ok=True)
    return card


class TrainingLoop:
    """Run the epochs of a training; every epoch's random numbers follow from the seed and its number alone."""

    def __init__(
        self, identity: dict[str, Any], task: Task, recipe: Recipe, settings: Settings, inputs: int, output: Path
    ) -> None:
        self.identity, self.output, self.checkpoint = identity, output, checkpoint_path(output)
        self.kept: dict[str, dict[str, Any]] = {}
        self.task, self.settings, self.inputs = task, settings, inputs
        self.epochs, self.epoch, self.resumed = recipe.epochs, 0, 0
        self.per_epoch = max(inputs // task.inputs_per_step, 1)
        seconds = None if settings.minutes is None else settings.minutes * 60
        self.schedule = Schedule(recipe.epochs * self.per_epoch, seconds)
        self._saved = 0.0

    def run(self, report: Callable[[EpochReport], None]) -> dict[str, float]:
        """Train from the beginning, or from the checkpoint if there is one, and judge the result."""
        if self.checkpoint.exists():
            self._restore()
        judged = self._due()
        while self.epoch < self.epochs and self.schedule.progress < 1:
            loss = self.run_epoch()
            self.epoch += 1
            if not bool(loss.isfinite()):
                raise InputError(
                    f"the loss was {float(loss)} in epoch {self.epoch}: nothing was written; choose a lower "
                    "learning_rate= (or --learning-rate)"
                )
            due = self._due()
            results = self.task.evaluate(final=False) if due > judged and self.schedule.progress < 1 else {}
            judged = due
            progress, elapsed = self.schedule.progress, self.schedule.elapsed
            report(EpochReport(self.epoch, self.epochs, progress, float(loss), results, elapsed))
            self._keep(results)
            self._save()
        return self.task.evaluate(final=True)

    def _due(self) -> int:
        """Return how many judgements there should have been by now."""
        return int(self.schedule.progress * _JUDGEMENTS) if isinstance(self.task, Generation) else self.epoch

    def run_epoch(self) -> Tensor:
        """Train for one epoch and return its mean loss."""
        torch.manual_seed(self.settings.seed * 1_000_003 + self.epoch + 1)
        device = self.settings.device
        order = torch.randperm(self.inputs, device=device)
        size = min(self.task.inputs_per_step, self.inputs)
        total = torch.zeros((), device=device)
        steps = 0
        for number in range(self.per_epoch):
            if self.schedule.progress >= 1:
                break
            total += self.task.step(order[number * size : (number + 1) * size], self.schedule.progress)
            self.schedule.done += 1
            steps += 1
        return total / max(steps, 1)

    def _keep(self, results: dict[str, float]) -> None:
        if self.epoch in self.settings.keep:
            path = kept_path(self.output, self.epoch)
            digest = write_weights(self.task.result(), path, half=self.settings.half)
            judged = results or self.task.evaluate(final=False)
            self.kept[str(self.epoch)] = {**judged, "weights_sha256": digest}

    def _save(self) -> None:
        if self.schedule.elapsed - self._saved < self.settings.checkpoint_seconds and self.epoch < self.epochs:
            return
        self._saved = self.schedule.elapsed
        standing = {"epoch": self.epoch, "done": self.schedule.done, "spent": self._saved, "resumed": self.resumed}
        content = {"training": self.identity, **standing, "kept": self.kept, "task": self.task.state()}
        write_checkpoint(self.checkpoint, content)

    def _restore(self) -> None:
        content = read_checkpoint(self.checkpoint, self.identity, self.settings.device)
        self.task.restore(content["task"])
        self.epoch, self.resumed = content["epoch"], content["resumed"] + 1
        self.schedule.done, self.schedule.spent = content["done"], content["spent"]
        self.kept = content.get("kept", {})


def _identity(network: str, arguments: dict[str, Any], recipe: Recipe, seed: int, samples: Samples) -> dict[str, Any]:
    """Return what must stay the same for a stopped training to go on, by the names that the refusal uses."""
    return {
        "network": network,
        **asdict(recipe),
        "arguments": arguments,
        "inputs": len(samples),
        "data of SHA-256": samples.sha256(),
        "seed": seed,
    }


def _task(
    network: str, arguments: dict[str, Any], train_set: Samples, test_set: Samples, recipe: Recipe, settings: Settings
) -> Task:
    built, device = build(network, **arguments), settings.device
    _require_fit(network, built, train_set)
    if recipe.kind == "autoencode":
        assert isinstance(built, VAE)
        return AutoEncoding(built, train_set, test_set, recipe, device)
    if recipe.kind == "generate":
        assert isinstance(built, Generator)
        return Generation(built, Discriminator(built.num_classes, built.width), train_set, recipe, device)
    task = Classification(built, train_set, test_set, recipe, device)
    if settings.compile:
        task.runner = torch.compile(task.network)
    return task


def _require_fit(name: str, network: nn.Module, samples: Samples) -> None:
    wanted = (3, 32, 32) if isinstance(network, Generator) else getattr(network, "input_shape", None)
    found = tuple(samples.inputs.shape[1:])
    if wanted is not None and tuple(wanted) != found:
        raise InputError(f"{name} takes inputs of shape {tuple(wanted)}, but {samples.name} has {found}")


def _splits(name: str, folder: Path | None) -> tuple[Samples, Samples]:
    if not name.startswith("folder:"):
        return data(name, "train", folder), data(name, "test", folder)
    root = Path(name.removeprefix("folder:"))
    held_out = next((root / part for part in ("test", "val") if (root / part).is_dir()), root / "test")
    train_set, test_set = image_folder(root / "train"), image_folder(held_out)
    if train_set.classes != test_set.classes:
        raise InputError(f"{root}: {held_out.name} has other classes than train")
    return train_set, test_set


def _limited(samples: Samples, limit: int | None) -> Samples:
    if limit is None or limit >= len(samples):
        return samples
    if limit < 2:
        raise InputError(f"--limit {limit}: expected at least 2")
    return samples.take(slice(0, limit))


@contextmanager
def _determined(device: torch.device) -> Iterator[None]:
    """Random numbers of our own, convolutions timed once per shape; afterwards everything as before."""
    devices = [device] if device.type == "cuda" else []
    benchmark = torch.backends.cudnn.benchmark
    with torch.random.fork_rng(devices=devices):
        torch.backends.cudnn.benchmark = device.type == "cuda"
        try:
            yield
        finally:
            torch.backends.cudnn.benchmark = benchmark
