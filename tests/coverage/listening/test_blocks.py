"""Blocks of listening: several models, compiled ones, threads, exceptions, and hooks that are gone afterwards."""

import threading
import warnings

import pytest
import torch
from torch import nn

import neuralcov as nc
from tests.coverage.listening.support import Net, calibrated, forward_hooks, listen_to, run

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")


def test_several_models_in_nested_blocks(loader, training):
    nets = [Net(0).eval(), Net(1).eval()]
    heard = [calibrated(net, [nc.SNAC(), nc.NLC()], training) for net in nets]
    assessed = [calibrated(net, [nc.SNAC(), nc.NLC()], training) for net in nets]
    for one in assessed:
        one.assess(loader)
    with heard[0].listen() as first, heard[1].listen() as second:
        for images, _ in loader:
            nets[0](images)
            nets[1](images)
            nets[1](images[:0])
    assert (first.passes, second.passes) == (4, 8)
    assert [one.values() for one in heard] == [one.values() for one in assessed]


def test_a_model_within_another(loader):
    """A student that calls its teacher: each is heard for itself."""

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.teacher, self.student = Net(0), nn.Linear(64, 3)

        def forward(self, x):
            return self.student(x.flatten(1)) + self.teacher(x)

    both = Both().eval()
    outer, inner = nc.Coverage(both, [nc.TKNC(1)]), nc.Coverage(both.teacher, [nc.TKNC(1)])
    with outer.listen() as around, inner.listen() as within:
        run(both, loader)
    alone = nc.Coverage(both.teacher, [nc.TKNC(1)])
    alone.assess(loader)
    assert inner.values() == alone.values()
    assert (around.passes, within.passes) == (4, 4)
    assert list(outer.by_layer()[0].values) == ["TKNC(1)"]


def test_two_coverages_of_one_model(net, loader, training):
    one, other = (calibrated(net, criteria, training) for criteria in ([nc.SNAC()], [nc.NLC(), nc.LCC()]))
    both = calibrated(net, [nc.SNAC(), nc.NLC(), nc.LCC()], training)
    both.assess(loader)
    with one.listen(), other.listen():
        run(net, loader)
    assert {**one.values(), **other.values()} == both.values()


@pytest.mark.filterwarnings("ignore:.*torch.compile.*")
@pytest.mark.parametrize("whole", [True, False])
def test_compiled_models(net, loader, training, whole):
    heard, assessed = (calibrated(net, [nc.SNAC(), nc.NLC()], training) for _ in range(2))
    assessed.assess(loader)
    compiled = torch.compile(net, backend="eager")
    if whole:
        heard = calibrated(compiled, [nc.SNAC(), nc.NLC()], training)
    run(compiled, loader)  # it has its code by now
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(2):
            heard.reset()
            with heard.listen():
                run(compiled, loader)
    assert heard.values() == assessed.values()
    assert sum("its original module runs" in str(one.message) for one in said) == (2 if whole else 0)


def test_a_model_compiled_in_place(net, loader):
    assessed = nc.Coverage(net, [nc.NLC()])
    assessed.assess(loader)
    net.compile(backend="eager")
    run(net, loader)
    heard = nc.Coverage(net, [nc.NLC()])
    with pytest.warns(nc.CoverageWarning, match="the model is compiled"), heard.listen():
        run(net, loader)
    assert heard.values() == assessed.values()
    assert net._compiled_call_impl is not None
    run(net, loader)


def test_hooks_are_gone_after_an_exception(net, loader):
    images, _ = next(iter(loader))
    coverage = nc.Coverage(net, [nc.NC()])
    with pytest.raises(ZeroDivisionError):
        listen_to(coverage, lambda: net(images), lambda: net(images[:5]), lambda: 1 / 0)
    assert forward_hooks(net) == 0
    # All passes but the last were observed.
    assert coverage.inputs == 20
    with coverage.listen():
        net(images)
    assert coverage.inputs == 40


def test_a_pass_that_raises_is_counted_and_not_observed(net, loader):
    images, _ = next(iter(loader))
    coverage = nc.Coverage(net, [nc.NC()])
    with coverage.listen() as block:
        with pytest.raises(RuntimeError):
            net(torch.zeros(2, 7, 8, 8))
        net(images)
        with pytest.raises(RuntimeError):
            net(torch.zeros(2, 7, 8, 8))
    assert (block.failed, block.passes, coverage.inputs) == (2, 1, 20)
    assert forward_hooks(net) == 0


def test_an_interruption_within_a_pass(net, loader):
    images, _ = next(iter(loader))
    coverage = nc.Coverage(net, [nc.NC()])

    def interrupt(*_):
        raise KeyboardInterrupt

    with coverage.listen():
        handle = net.fc2.register_forward_pre_hook(interrupt)
        with pytest.raises(KeyboardInterrupt):
            net(images)
        handle.remove()
        net(images)
    assert coverage.inputs == 20
    assert forward_hooks(net) == 0


def test_a_block_without_a_pass_is_an_error(net):
    coverage = nc.Coverage(net, [nc.NC()])
    with pytest.raises(nc.NeuralcovError, match="no pass of the model was heard"), coverage.listen():
        pass
    assert coverage.inputs == 0
    assert forward_hooks(net) == 0


def test_calls_of_parts_alone_are_counted_and_not_heard(net, loader):
    images, _ = next(iter(loader))
    coverage = nc.Coverage(net, [nc.NC()])
    with pytest.raises(nc.NeuralcovError, match="'conv' were called, but not by the model itself"), coverage.listen():
        net.conv(images)
    with coverage.listen() as block:
        net.conv(images)
        net(images)
        net.fc1(torch.zeros(3, 16))
        net.fc1(torch.zeros(3, 16))
    assert block.outside == {"conv": 1, "fc1": 2}
    assert coverage.inputs == 20


def test_a_block_within_itself_and_assess_within_it_are_refused(net, loader):
    coverage = nc.Coverage(net, [nc.NC()])
    images, _ = next(iter(loader))
    with coverage.listen():
        net(images)
        with pytest.raises(nc.NeuralcovError, match="listening already"), coverage.listen():
            pass
        with pytest.raises(nc.NeuralcovError, match="listens to the passes that others make"):
            coverage.assess(loader)
        twin = coverage.fork()
        twin.assess(loader)
    assert coverage.inputs == 20
    assert twin.inputs == 70


def test_another_threads_passes_come_one_after_the_other(net, loader):
    coverage = nc.Coverage(net, [nc.NC(), nc.NLC(rule="all")])
    with coverage.listen() as block:
        threads = [threading.Thread(target=run, args=(net, loader)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (block.passes, block.inputs, coverage.inputs) == (8, 140, 140)
    assert forward_hooks(net) == 0


def test_weights_that_change_between_passes_are_refused(net, loader):
    coverage = nc.Coverage(net, [nc.NC()])
    images, _ = next(iter(loader))

    @torch.no_grad()
    def change():
        net.fc1.weight.mul_(1.01)

    with pytest.raises(nc.NeuralcovError, match="the weights changed"):
        listen_to(coverage, lambda: net(images), change, lambda: net(images))
    assert forward_hooks(net) == 0
