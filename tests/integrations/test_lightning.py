"""The callback, in real trainers of Lightning."""

import lightning
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import neuralcov as nc
from neuralcov.core.errors import CalibrationError, InputError
from neuralcov.integrations.lightning import CoverageCallback
from tests.integrations.parts import CRITERIA, LEARNING, assessed, batches, counted, hooks, loader, network, same

pytestmark = pytest.mark.filterwarnings("ignore")


class Module(lightning.LightningModule):
    """Logs a loss, counts what its steps run, and fails where it is told to."""

    def __init__(self, fails_at=None):
        super().__init__()
        self.net, self.fails_at = network(), fails_at

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, index):
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch, index):
        if index == self.fails_at:
            raise RuntimeError("in a step")
        self.log("loss", nn.functional.cross_entropy(self(batch[0]), batch[1]))

    test_step = validation_step

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def one_by_one(batches):
    return DataLoader(batches, batch_size=None)


def trainer(*callbacks, **options):
    return lightning.Trainer(
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=list(callbacks),
        **options,
    )


@pytest.mark.parametrize("part", ["", "net"])
@pytest.mark.parametrize("stage", ["validate", "test"])
def test_values_are_those_of_assess_without_a_pass_more(part, stage):
    module, callback = Module(), CoverageCallback(CRITERIA, module=part)
    before = hooks(module)
    with counted(module.net) as passes:
        (found,) = getattr(trainer(callback), stage)(module, loader(), verbose=False)
    assert passes == [6]
    assert hooks(module) == before
    expected = assessed(module.get_submodule(part), CRITERIA, loader())
    same(callback.coverage, expected)
    assert expected.sanity().accuracy is not None
    values = expected.values()
    assert callback.values[stage]["nc_0.5"] == values["NC(0.5)"]
    assert found["neuralcov/nc_0.5"] == pytest.approx(values["NC(0.5)"], rel=1e-6)  # Lightning logs float32
    assert "loss" in found


def test_the_check_before_training_is_not_heard():
    class Watcher(lightning.Callback):
        seen = ()

        def on_validation_batch_end(self, trainer, pl_module, *more):
            self.seen = (*self.seen, (trainer.sanity_checking, hooks(pl_module) > 0))

        def on_validation_end(self, trainer, pl_module):
            if not trainer.sanity_checking:
                self.epochs = (*getattr(self, "epochs", ()), float(trainer.callback_metrics["neuralcov/inputs"]))

    callback, watcher = CoverageCallback([nc.NC(0.5)]), Watcher()
    module = Module()
    trainer(callback, watcher, max_epochs=2, num_sanity_val_steps=2).fit(module, loader(seed=2), loader())
    assert watcher.seen == ((True, False),) * 2 + ((False, True),) * 12
    assert watcher.epochs == (60, 60)
    same(callback.coverage, assessed(module, [nc.NC(0.5)], loader()))


def test_both_stages_and_several_loaders():
    module, callback = Module(), CoverageCallback([nc.NC(0.5)])
    trained = trainer(callback, max_epochs=1, num_sanity_val_steps=0)
    trained.fit(module, loader(seed=2), loader())
    trained.test(module, loader(seed=3), verbose=False)
    assert list(callback.values) == ["validate", "test"]
    expected = assessed(module, [nc.NC(0.5)], loader(seed=3))
    assert callback.values["test"]["nc_0.5"] == expected.values()["NC(0.5)"]

    class Two(Module):
        def validation_step(self, batch, index, dataloader_idx=0):
            super().validation_step(batch, index)

    both, module = CoverageCallback([nc.NC(0.5)]), Two()
    trainer(both).validate(module, [loader(), loader(seed=3)], verbose=False)
    same(both.coverage, assessed(module, [nc.NC(0.5)], [*loader(), *loader(seed=3)]))


def test_one_stage_alone_is_heard():
    callback = CoverageCallback([nc.NC(0.5)], stages=["test"])
    trainer(callback).validate(Module(), loader(), verbose=False)
    with pytest.raises(InputError, match="nothing was evaluated yet"):
        _ = callback.coverage
    for wrong in ("test", ["fit"]):
        with pytest.raises(InputError, match="expected a list of 'validate' and 'test'"):
            CoverageCallback([nc.NC(0.5)], stages=wrong)


def test_calibration_before_every_evaluation():
    training = loader(seed=2)
    callback, module = CoverageCallback(LEARNING, calibration=training), Module()
    trainer(callback, max_epochs=2, num_sanity_val_steps=2).fit(module, loader(seed=2), loader())
    same(callback.coverage, assessed(module.eval(), LEARNING, loader(), training))


def test_criteria_that_learn_say_what_they_need():
    module = Module()
    with pytest.raises(CalibrationError):
        trainer(CoverageCallback(LEARNING)).validate(module, loader(), verbose=False)
    assert not hooks(module)


def test_hooks_are_gone_after_an_exception():
    module, callback = Module(fails_at=2), CoverageCallback([nc.NC(0.5)])
    before = hooks(module)
    with pytest.raises(RuntimeError, match="in a step"):
        trainer(callback).validate(module, loader(), verbose=False)
    assert hooks(module) == before
    module.fails_at = None
    trainer(callback).validate(module, loader(), verbose=False)
    same(callback.coverage, assessed(module, [nc.NC(0.5)], loader()))


def test_a_step_that_calls_a_part_alone_is_told_how():
    class Part(Module):
        def validation_step(self, batch, index):
            self.net(batch[0])

    with pytest.raises(InputError, match=r"'net\.0' were called, but not by the model itself"):
        trainer(CoverageCallback([nc.NC(0.5)])).validate(Part(), loader(), verbose=False)
    callback, module = CoverageCallback([nc.NC(0.5)], module="net"), Part()
    trainer(callback).validate(module, loader(), verbose=False)
    same(callback.coverage, assessed(module.net, [nc.NC(0.5)], loader()))


def test_labels_of_mappings_and_of_a_function():
    class Named(Module):
        def validation_step(self, batch, index):
            self(batch["x"])

    named = [{"x": inputs, "labels": labels} for inputs, labels in batches()]
    module, callback = Named(), CoverageCallback([nc.NC(0.5)])
    trainer(callback).validate(module, one_by_one(named), verbose=False)
    assert callback.coverage.sanity() == assessed(module, [nc.NC(0.5)], loader()).sanity()
    odd = [{"x": inputs, "digit": labels} for inputs, labels in batches()]
    told = CoverageCallback([nc.NC(0.5)], labels=lambda batch: batch["digit"])
    trainer(told).validate(module, one_by_one(odd), verbose=False)
    assert told.coverage.sanity() == callback.coverage.sanity()
    none = CoverageCallback([nc.NC(0.5)])
    trainer(none).validate(module, one_by_one(odd), verbose=False)
    assert none.coverage.sanity().accuracy is None


def test_options_reach_the_coverage():
    callback, module = CoverageCallback([nc.NC(0.5)], layers="net.0", prefix="cov_"), Module()
    (found,) = trainer(callback).validate(module, loader(), verbose=False)
    assert list(callback.coverage.layout) == ["net.0"]
    assert "cov_nc_0.5" in found
