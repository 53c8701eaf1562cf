"""Say how each network of the zoo is trained: data, length, optimiser, augmentation."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from neuralcov.core.errors import InputError

TaskKind = Literal["classify", "autoencode", "generate"]


@dataclass(frozen=True)
class Recipe:
    """Describe one network's training.

    Args:
        kind: what is learnt: classes, a code to draw the input from, or to draw new inputs.
        data: the data set it is meant for.
        epochs: passes over the training data.
        batch_size: inputs per step.
        learning_rate: the highest, of a schedule that rises first and falls to 0.
        optimiser: ``sgd`` with Nesterov momentum 0.9, or ``adam`` with decoupled weight decay.
        weight_decay: for weights; gains, offsets and biases are left alone.
        smoothing: of labels (Szegedy et al., 2016).
        warm_up: the share of training in which the learning rate rises.
        crop: pixels of padding from which images are cropped at random.
        flip: whether images are mirrored at random.
        cutout: side of a square of each image that is blanked (DeVries and Taylor, 2017).
        word_dropout: share of words replaced by the unknown one.
        clip: largest norm of a gradient; 0 for none.
        discriminator_rate: learning rate of the discriminator.
        discriminator_steps: its steps for each of the generator's.
        averaging: weight of the past in the running average of a generator's weights.
    """

    kind: TaskKind
    data: str
    epochs: int
    batch_size: int
    learning_rate: float
    optimiser: Literal["sgd", "adam"] = "sgd"
    weight_decay: float = 0.0
    smoothing: float = 0.0
    warm_up: float = 0.2
    crop: int = 0
    flip: bool = False
    cutout: int = 0
    word_dropout: float = 0.0
    clip: float = 0.0
    discriminator_rate: float = 0.0
    discriminator_steps: int = 1
    averaging: float = 0.0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "learning_rate", "discriminator_steps"):
            if getattr(self, name) <= 0:
                raise InputError(f"{name}={getattr(self, name)}: expected more than 0")
        if not math.isfinite(self.learning_rate):
            raise InputError(f"learning_rate={self.learning_rate}: expected a finite number")

    def changed(
        self,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        data: str | None = None,
    ) -> Recipe:
        """Return the recipe with what a user set otherwise."""
        given = {"epochs": epochs, "batch_size": batch_size, "learning_rate": learning_rate, "data": data}
        return replace(self, **{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]


_IMAGES = Recipe(
    kind="classify",
    data="cifar10",
    epochs=100,
    batch_size=512,
    learning_rate=0.4,
    weight_decay=5e-4,
    smoothing=0.1,
    warm_up=0.25,
    crop=4,
    flip=True,
    cutout=8,
    clip=5.0,
)
_NET = Recipe(kind="classify", data="mnist", epochs=15, batch_size=256, learning_rate=2e-3, optimiser="adam")

RECIPES: dict[str, Recipe] = {
    "resnet50": _IMAGES,
    "vgg16_bn": replace(_IMAGES, learning_rate=0.15, epochs=50),
    "mobilenet_v2": replace(_IMAGES, learning_rate=0.3, weight_decay=3e-4, epochs=60),
    "lstm": Recipe(
        kind="classify",
        data="imdb",
        epochs=6,
        batch_size=128,
        learning_rate=2e-3,
        optimiser="adam",
        weight_decay=0.01,
        word_dropout=0.1,
        clip=1.0,
    ),
    # Rates and steps between those of Brock et al. (2019) for CIFAR-10, four steps of one rate for both, and two
    # rates with fewer steps (Heusel et al., 2017), since minutes rather than days are meant.
    "generator": Recipe(
        kind="generate",
        data="cifar10",
        epochs=120,
        batch_size=128,
        learning_rate=2e-4,
        optimiser="adam",
        warm_up=0.01,
        flip=True,
        discriminator_rate=4e-4,
        discriminator_steps=2,
        averaging=0.999,
    ),
    "net_classifier": _NET,
    "vae": replace(_NET, kind="autoencode", epochs=30),
    "cvae": replace(_NET, kind="autoencode", epochs=30),
    "convnet": replace(_NET, data="fashion-mnist", epochs=10, learning_rate=4e-3, weight_decay=0.01, flip=True),
    "mlp": replace(_NET, data="letter", epochs=40, learning_rate=3e-3, weight_decay=0.01),
    "transformer": Recipe(
        kind="classify",
        data="newsgroups",
        epochs=8,
        batch_size=64,
        learning_rate=2e-3,
        optimiser="adam",
        weight_decay=0.05,
        word_dropout=0.2,
        clip=1.0,
    ),
    "digits": replace(_NET, data="digits", epochs=20, batch_size=64, learning_rate=3e-3),
}


def recipe_of(network: str) -> Recipe:
    """Return the recipe for a network.

    >>> recipe_of("resnet50").data
    'cifar10'
    """
    if network not in RECIPES:
        raise InputError(f"there is no recipe to train {network!r}: there are {', '.join(RECIPES)}")
    return RECIPES[network]
