import pytest
import torch
from torch import nn

from neuralcov.tap.preserve import original_module, preserved


@pytest.fixture
def net():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Sequential(nn.BatchNorm1d(4)))
    net.train()
    net[1].eval()
    return net


def everything(net):
    modes = [module.training for module in net.modules()]
    buffers = {name: buffer.clone() for name, buffer in net.named_buffers()}
    return modes, buffers


def assert_as_before(net, before):
    modes, buffers = everything(net)
    assert modes == before[0]
    for name, buffer in buffers.items():
        assert torch.equal(buffer, before[1][name]), name


def test_modes_are_eval_within_and_as_before_after(net):
    before = everything(net)
    with preserved(net, "eval"):
        assert not any(module.training for module in net.modules())
    assert_as_before(net, before)


def test_keep_leaves_the_modes_and_restores_running_statistics(net):
    before = everything(net)
    with preserved(net, "keep"):
        assert [module.training for module in net.modules()] == before[0]
        net(torch.randn(8, 3))
        assert not torch.equal(net[3][0].running_mean, before[1]["3.0.running_mean"])
    assert_as_before(net, before)


def test_a_buffer_that_was_replaced_comes_back(net):
    original = net[1].running_mean
    with preserved(net, "eval"):
        net[1].running_mean = torch.ones(4)
    assert net[1].running_mean is original


def test_restored_after_an_exception(net):
    before = everything(net)
    fast_path = torch.backends.mha.get_fastpath_enabled()

    def fail():
        with preserved(net, "eval"):
            net[3][0].running_mean.add_(1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert_as_before(net, before)
    assert torch.backends.mha.get_fastpath_enabled() == fast_path


def test_wrappers_are_seen_through(net):
    assert original_module(nn.DataParallel(net)) is net
    assert original_module(torch.compile(net)) is net
    assert original_module(net) is net
