"""What campaigns are run on: a network with seeds, mutations, and other networks that know the same classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from neuralcov.fuzz import FuzzSettings, Mutation, Stylise, image_mutations, style_folder, text_mutations
from neuralcov.sources.samples import Samples
from neuralcov.tap.outputs import scores_of
from neuralcov_lab import zoo
from neuralcov_lab.errors import DataError
from neuralcov_lab.experiments.context import ExperimentContext, numbers_of
from neuralcov_lab.experiments.lcc.subjects import REVIEWS, proof_subject
from neuralcov_lab.experiments.scales import TOY
from neuralcov_lab.experiments.subjects import trained
from neuralcov_lab.experiments.toys import toy_lstm

_SEED_ROWS = 29
_AT_ONCE = 200
# So many times as many inputs as are wanted, for DeepGini to choose from.
_TO_CHOOSE_FROM = 5
_TRAININGS = 12
# Of the trainings of the other networks, where the zoo has one network for such data.
_OTHER_SEEDS = (1, 2)


@dataclass(frozen=True, eq=False)
class SearchSubject:
    """Hold what a campaign is run on.

    Args:
        network: its name.
        model: the network.
        train: training data.
        test: what seeds are drawn from.
        others: networks of the same classes, trained apart, by name.
    """

    network: str
    model: nn.Module
    train: Samples
    test: Samples
    others: dict[str, nn.Module]

    @property
    def texts(self) -> bool:
        """Return whether inputs are texts."""
        return self.test.lengths is not None

    def seeds(self, context: ExperimentContext, count: int, run: int) -> Samples:
        """Return the seeds of a run."""
        return self.test.take(context.rows(len(self.test), count, *numbers_of(_SEED_ROWS, run)))

    def unsure_seeds(self, context: ExperimentContext, count: int, run: int) -> Samples:
        """Return seeds that DeepGini would take: of several times as many, those read rightly with the least certainty.

        It orders inputs by 1 − Σ p², the chance that two draws by the model's probabilities differ.
        """
        some = self.seeds(context, _TO_CHOOSE_FROM * count, run)
        shares = scores(self.model, self, some.inputs).softmax(1)
        impurity = (1 - shares.square().sum(1)).masked_fill(shares.argmax(1) != some.labels.cpu(), -1)
        order = torch.argsort(impurity, descending=True, stable=True)[:count]
        return some.take(order.sort().values.to(some.inputs.device))

    def prepare(self, decoded: Tensor) -> Any:
        """Turn decoded inputs into what the networks take."""
        if self.texts:
            return {"tokens": decoded, "lengths": (decoded != 0).sum(1).clamp(min=1)}
        return self.test.prepare(decoded)

    def mutations(self, settings: FuzzSettings, style: Stylise | None = None) -> list[Mutation]:
        """Return the usual mutations, with styles where there are some."""
        if self.texts:
            return text_mutations(self.test.words)
        side = min(self.test.inputs.shape[2:])
        found = image_mutations(side, identities=settings.identities, border=settings.border)
        return [*found, *([] if style is None else [style])]

    def training_batches(self, size: int) -> Any:
        """Serve training data ready for the network."""
        return self.train.named_batches(size) if self.texts else self.train.batches(size)


def search_subject(context: ExperimentContext, network: str) -> SearchSubject:
    """Return a network of the zoo with its data and others of the same classes.

    Those beside digits are trained on the spot; those beside the network for reviews are trained from other seeds.
    """

    def make() -> SearchSubject:
        own = proof_subject(context, network)
        others: dict[str, nn.Module]
        if network == "digits":
            others = {f"digits {seed}": zoo.train_digits(_TRAININGS, seed, progress=False) for seed in _OTHER_SEEDS}
        elif network == REVIEWS:
            others = _other_reviewers(context, own.train)
        else:
            names = [name for name in context.scale.networks if name not in (network, "digits")]
            others = {name: proof_subject(context, name).model for name in names}
        ready = {name: model.to(context.device).eval() for name, model in others.items()}
        return SearchSubject(network, own.model, own.train, own.test, ready)

    return context.prepare(("search subject", network), make)


def _other_reviewers(context: ExperimentContext, train: Samples) -> dict[str, nn.Module]:
    """Return networks that judge the same reviews, trained from other seeds."""
    if context.scale.text == TOY:
        return {f"{REVIEWS} {seed}": toy_lstm(train.to("cpu"), seed=seed) for seed in _OTHER_SEEDS}
    return {f"{REVIEWS} {seed}": trained(REVIEWS, context.scale.text, seed) for seed in _OTHER_SEEDS}


def styles(context: ExperimentContext) -> Stylise | None:
    """Return stylising by the shipped styles; ``None`` where the published weights are not here."""
    if "digits" in context.scale.networks:
        return None  # too small to keep what they show

    def make() -> Stylise | None:
        try:
            network = zoo.adain().to(context.device)
        except DataError:
            return None
        return Stylise(network.encoder, network.decoder, style_folder())

    return context.prepare("styles", make)


@torch.no_grad()
def scores(model: nn.Module, subject: SearchSubject, stored: Tensor) -> Tensor:
    """Return the scores that a network gives stored inputs, one per class: 0 and z where it gives one logit z."""
    return _over(stored, lambda part: _by_class(_run(model, subject, part)))


def predicted(model: nn.Module, subject: SearchSubject, stored: Tensor) -> Tensor:
    """Return the classes that a network gives stored inputs."""
    return scores(model, subject, stored).argmax(1)


@torch.no_grad()
def features(model: nn.Module, subject: SearchSubject, stored: Tensor) -> Tensor:
    """Return what the last linear layer of a network is given for stored inputs."""
    last = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
    heard: list[Tensor] = []
    handle = last.register_forward_pre_hook(lambda module, given: heard.append(given[0].detach()))

    def once(part: Tensor) -> Tensor:
        heard.clear()
        _run(model, subject, part)
        return heard[-1].flatten(1)

    try:
        return _over(stored, once)
    finally:
        handle.remove()


def _run(model: nn.Module, subject: SearchSubject, stored: Tensor) -> Tensor:
    ready = subject.prepare(_decoded(subject, stored))
    found = scores_of(model(**ready) if isinstance(ready, Mapping) else model(ready))
    assert found is not None, "networks of the zoo give scores"
    return found


def _by_class(given: Tensor) -> Tensor:
    return given if given.shape[1] > 1 else torch.cat([torch.zeros_like(given), given], 1)


def _over(stored: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    parts: Sequence[Tensor] = [function(part) for part in torch.split(stored, _AT_ONCE)]
    return torch.cat(list(parts)).cpu()


def _decoded(subject: SearchSubject, stored: Tensor) -> Tensor:
    return stored.float() / subject.test.levels if stored.dtype == torch.uint8 else stored
