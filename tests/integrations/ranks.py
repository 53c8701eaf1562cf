"""One rank of an evaluation that two processes share: ``python -m tests.integrations.ranks NAME`` under torchrun.

Prints values, inputs and accuracy as JSON.
"""

import json
import sys
import tempfile
import warnings

import torch
from torch import distributed, nn

import neuralcov as nc
from tests.integrations.parts import batches, data, hooks, loader, network

EXACT = (nc.NC(0.5), nc.TKNC(2), nc.TKNP(2), nc.KMNC(10), nc.LCC(), nc.DSC(0.1))
CRITERIA = (*EXACT, nc.NLC(rule="all"))
TRAINING = batches(seed=2)


def shard(rank, ranks):
    """Every other batch."""
    return batches()[rank::ranks]


def told(coverage, metrics, model):
    sanity = coverage.sanity()
    return {
        "values": coverage.values(warn=False),
        "inputs": coverage.inputs,
        "accuracy": sanity.accuracy,
        "metrics": {key: float(value) for key, value in metrics.items()},
        "hooks": hooks(model),
    }


def run_lightning(rank, ranks):
    import lightning

    from neuralcov.integrations.lightning import CoverageCallback

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = network()

        def forward(self, x):
            return self.net(x)

        def training_step(self, batch, index):
            return nn.functional.cross_entropy(self(batch[0]), batch[1])

        def validation_step(self, batch, index):
            self(batch[0])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.0)

    module, callback = Module(), CoverageCallback(CRITERIA, calibration=TRAINING)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=ranks,
        strategy="ddp",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        max_epochs=1,
        callbacks=[callback],
    )
    before = hooks(module)
    trainer.fit(module, loader(seed=2), loader())
    assert hooks(module) == before
    found = told(callback.coverage, callback.values["validate"], module)
    return {**found, "hooks": 0, "metrics": {k: float(v) for k, v in trainer.callback_metrics.items()}}


def run_ignite(rank, ranks, own=None):
    from ignite.engine import create_supervised_evaluator

    from neuralcov.integrations.ignite import CoverageHandler

    distributed.init_process_group("gloo")
    model = network()
    engine, handler = create_supervised_evaluator(model), CoverageHandler(model, CRITERIA, calibration=TRAINING)
    handler.attach(engine)
    own = shard(rank, ranks) if own is None else own
    state = engine.run(own, epoch_length=len(own))
    return told(handler.coverage, state.metrics, model)


def run_torchmetrics(rank, ranks):
    from neuralcov.integrations.torchmetrics import CoverageMetric

    distributed.init_process_group("gloo")
    model = network()
    coverage = nc.Coverage(model, CRITERIA)
    coverage.calibrate(TRAINING, progress=False)
    metric = CoverageMetric(coverage)
    half = shard(rank, ranks)
    for inputs, labels in half[:2]:
        metric.update(inputs=inputs, labels=labels)
    metric.compute()  # which leaves each rank with its own
    assert coverage.inputs == 20
    for inputs, labels in half[2:]:
        metric(inputs=inputs, labels=labels)
    metrics = metric.compute()
    assert coverage.inputs == 30
    with metric.sync_context():
        return told(coverage, metrics, model)


def run_torchmetrics_empty(rank, ranks):
    """Give all to the last rank."""
    from neuralcov.integrations.torchmetrics import CoverageMetric

    distributed.init_process_group("gloo")
    model = network()
    coverage = nc.Coverage(model, CRITERIA)
    coverage.calibrate(TRAINING, progress=False)
    metric = CoverageMetric(coverage)
    if rank == ranks - 1:
        metric.update(inputs=data()[0], labels=data()[1])
    metrics = metric.compute()
    with metric.sync_context():
        return told(coverage, metrics, model)


def run_huggingface(rank, ranks):
    from transformers import Trainer, TrainingArguments
    from transformers.modeling_outputs import SequenceClassifierOutput

    from neuralcov.integrations.huggingface import watch_trainer

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = network()

        def forward(self, x, labels=None):
            scores = self.net(x)
            loss = None if labels is None else nn.functional.cross_entropy(scores, labels)
            return SequenceClassifierOutput(loss=loss, logits=scores)

    rows = [{"x": x, "labels": int(label)} for x, label in zip(*data(), strict=True)]
    model = Model()
    arguments = TrainingArguments(
        tempfile.mkdtemp(), per_device_eval_batch_size=10, use_cpu=True, report_to=[], disable_tqdm=True
    )
    trainer = Trainer(model, arguments, eval_dataset=rows)
    coverage = watch_trainer(trainer, CRITERIA, calibration=[{"x": x, "labels": y} for x, y in TRAINING])
    metrics = trainer.evaluate()
    return told(coverage, {k: v for k, v in metrics.items() if "_per_second" not in k and "time" not in k}, model)


if __name__ == "__main__":
    import os

    warnings.simplefilter("ignore")
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    found = globals()[f"run_{sys.argv[1]}"](rank, ranks)
    with open(f"{sys.argv[2]}/{rank}.json", "w") as file:
        json.dump(found, file)
    distributed.destroy_process_group()
