"""Coverage beside the metrics of a Hugging Face Trainer, by listening to its evaluations.

A Trainer has no event before an evaluation and none at which a callback could add to the metrics before these are
logged, so that its evaluation loop is wrapped instead of a callback added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from neuralcov.core.errors import InputError
from neuralcov.coverage.collection import AnyCriterion
from neuralcov.coverage.coverage import Coverage
from neuralcov.coverage.store import Place
from neuralcov.integrations.hearing import Hearing


def watch_trainer(
    trainer: Any,
    criteria: Sequence[AnyCriterion],
    *,
    calibration: Iterable[Any] | Place | None = None,
    **options: Any,
) -> Coverage:
    """Listen to every ``evaluate`` and ``predict`` of a Trainer, and add what they cover to the metrics.

    Masks and labels come from the collator, with which the model is called. Metrics have the Trainer's prefix
    (``eval_nc_0.75``), so that ``metric_for_best_model`` may name one. The states of all ranks are merged.

    Args:
        trainer: what evaluates.
        criteria: what to measure.
        calibration: training data or a saved calibration, from which to learn before every evaluation.
        options: further arguments of ``Coverage``, such as ``layers``.

    Returns:
        The coverage of the last evaluation.

    Examples:
        ``cov = watch_trainer(trainer, [nc.NC(0.75)]); trainer.evaluate()["eval_nc_0.75"]``
    """
    loop = getattr(trainer, "evaluation_loop", None)
    if not callable(loop):
        raise InputError(f"a {type(trainer).__name__} has no evaluation_loop: expected a Trainer of transformers")
    while isinstance(loop, _HeardLoop) and loop.model is not trainer.model:
        loop = loop.loop  # of a model that the Trainer has replaced
    coverage = Coverage(trainer.model, criteria, **options)
    trainer.evaluation_loop = _HeardLoop(trainer, loop, Hearing(coverage, calibration=calibration))
    return coverage


class _HeardLoop:
    """Run an evaluation loop and listen to it.

    Args:
        trainer: whose loop it is.
        loop: the Trainer's own, or one that is heard already.
        hearing: what listens.
    """

    def __init__(self, trainer: Any, loop: Callable[..., Any], hearing: Hearing) -> None:
        self._trainer, self.loop, self._hearing = trainer, loop, hearing
        self.model = trainer.model

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._trainer.model is not self.model:
            raise InputError(
                "the Trainer has built another model since watch_trainer (model_init=): call watch_trainer once more "
                "after train()"
            )
        self._hearing.start()
        try:
            with self._labels_heard():
                output = self.loop(*args, **kwargs)
        except BaseException:
            self._hearing.drop()
            raise
        prefix = kwargs.get("metric_key_prefix", "eval")
        output.metrics.update({f"{prefix}_{key}": value for key, value in self._hearing.stop().items()})
        return output

    @contextmanager
    def _labels_heard(self) -> Iterator[None]:
        """Give passes the labels of their batch where a loss keeps them from the model, as label smoothing does."""
        trainer, hearing = self._trainer, self._hearing
        own = trainer.prediction_step
        replaced = "prediction_step" in vars(trainer)

        def step(model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            found = own(model, inputs, *args, **kwargs)
            hearing.batch_ended(inputs, if_they_fit=True)
            return found

        trainer.prediction_step = step
        try:
            yield
        finally:
            if replaced:
                trainer.prediction_step = own
            else:
                del trainer.prediction_step
