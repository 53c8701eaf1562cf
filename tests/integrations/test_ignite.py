"""The handler, on real engines of Ignite."""

import pytest
import torch
from ignite.engine import Engine, Events, create_supervised_evaluator
from ignite.metrics import Accuracy

import neuralcov as nc
from neuralcov.core.errors import InputError
from neuralcov.integrations.ignite import CoverageHandler
from tests.integrations.parts import CRITERIA, LEARNING, assessed, batches, counted, hooks, network, same

pytestmark = pytest.mark.filterwarnings("ignore")


def test_values_are_those_of_assess_without_a_pass_more():
    model = network()
    engine = create_supervised_evaluator(model, {"accuracy": Accuracy()})
    handler = CoverageHandler(model, CRITERIA, prefix="cov_")
    handler.attach(engine)
    with counted(model) as passes:
        state = engine.run(batches())
    assert passes == [6]
    assert not hooks(model)
    expected = assessed(model, CRITERIA, batches())
    same(handler.coverage, expected)
    assert state.metrics["cov_nc_0.5"] == expected.values()["NC(0.5)"]
    assert state.metrics["accuracy"] == pytest.approx(expected.sanity().accuracy)
    # Once more, from nothing.
    assert engine.run(batches()).metrics["cov_inputs"] == 60


def test_every_epoch_is_calibrated_anew():
    model = network()
    handler = CoverageHandler(model, LEARNING, calibration=batches(seed=2))
    engine = create_supervised_evaluator(model)
    handler.attach(engine)
    for _ in range(2):
        with torch.no_grad():
            model[0].weight.mul_(1.5)
        engine.run(batches())
        same(handler.coverage, assessed(model, LEARNING, batches(), batches(seed=2)))


def failing(model):
    def step(engine, batch):
        model(batch[0])
        if engine.state.iteration == 3:
            raise RuntimeError("in a step")

    return Engine(step)


def test_hooks_are_gone_after_an_exception():
    model = network().eval()
    engine = failing(model)
    CoverageHandler(model, [nc.NC(0.5)]).attach(engine)
    with pytest.raises(RuntimeError, match="in a step"):
        engine.run(batches())
    assert not hooks(model)


@pytest.mark.parametrize("first", [True, False])
def test_a_handler_of_exceptions_decides_as_without_ours(first):
    model, seen, alone = network().eval(), [], []
    engine = failing(model)
    engine.add_event_handler(Events.EXCEPTION_RAISED, lambda engine, error: alone.append(error))
    engine.run(batches())
    engine, handler = failing(model), CoverageHandler(model, [nc.NC(0.5)])
    if first:
        engine.add_event_handler(Events.EXCEPTION_RAISED, lambda engine, error: seen.append(error))
    handler.attach(engine)
    if not first:
        engine.add_event_handler(Events.EXCEPTION_RAISED, lambda engine, error: seen.append(error))
    engine.run(batches())
    assert str(seen[0]) == "in a step"
    assert [repr(error) for error in seen] == [repr(error) for error in alone]
    assert not hooks(model)


def test_an_engine_that_is_terminated():
    model = network().eval()
    engine = Engine(lambda engine, batch: model(batch[0]))
    CoverageHandler(model, [nc.NC(0.5)]).attach(engine)
    engine.add_event_handler(Events.ITERATION_COMPLETED(once=2), lambda engine: engine.terminate())
    engine.run(batches())
    assert not hooks(model)


def test_labels():
    model = network().eval()
    engine = Engine(lambda engine, batch: model(batch["x"]))
    handler = CoverageHandler(model, [nc.NC(0.5)], labels=lambda batch: batch["y"])
    handler.attach(engine)
    engine.run([{"x": inputs, "y": labels} for inputs, labels in batches()])
    assert handler.coverage.sanity() == assessed(model, [nc.NC(0.5)], batches()).sanity()


def test_an_engine_of_another_model():
    engine = create_supervised_evaluator(network())
    CoverageHandler(network(), [nc.NC(0.5)]).attach(engine)
    with pytest.raises(InputError, match="no pass of the model was heard"):
        engine.run(batches())
