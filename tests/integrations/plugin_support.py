"""A project with a network and tests of it, and what its coverage must be."""

import csv
import re

import neuralcov as nc
from neuralcov.integrations import pytest_models, pytest_session  # noqa: F401
from neuralcov.sources.names import criterion_from_text
from tests.integrations.support import environment, install_entry_points

NET = """
import functools
import torch
from torch import nn

def make(seed=0):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 3)).eval()
    net[-1].bias.data -= net(DRAWN).mean(0).detach()
    return net

DRAWN = torch.randn(400, 6, generator=torch.Generator().manual_seed(5))

def truth(inputs):
    # What the model says, but for one in ten.
    classes = make()(inputs).argmax(1)
    classes[::10] = (classes[::10] + 1) % 3
    return classes

model, other = make(), make(1)
calls = []
model.register_forward_pre_hook(lambda module, args: calls.append(len(args[0])))
data = torch.randn(60, 6, generator=torch.Generator().manual_seed(3))
labels = truth(data)

def train():
    inputs = torch.randn(200, 6, generator=torch.Generator().manual_seed(4))
    return [(part, truth(part)) for part in inputs.split(50)]

cached = functools.cache(make)
number = 3
"""


TESTS = """
import pytest, torch, net

@pytest.mark.parametrize("part", range(4))
def test_part(part, neuralcov_labels):
    rows = slice(15 * part, 15 * part + 15)
    with torch.no_grad():
        for half in (slice(0, 10), slice(10, 15)):
            net.model(net.data[rows][half])
            neuralcov_labels(net.labels[rows][half])

def test_no_model():
    pass
"""


def batches():
    net = namespace()
    data, labels = net["data"], net["labels"]
    for part in range(4):
        for half in (slice(15 * part, 15 * part + 10), slice(15 * part + 10, 15 * part + 15)):
            yield data[half], labels[half]


def namespace():
    found = {}
    exec(NET, found)
    return found


def assessed(criteria, data=None, calibrate=True):
    net = namespace()
    cov = nc.Coverage(net["model"], [criterion_from_text(each) for each in split(criteria)])
    if calibrate:
        cov.calibrate(net["train"](), progress=False)
    cov.assess(list(batches()) if data is None else data, progress=False)
    return cov


def split(criteria):
    return re.findall(r"[^\s,(]+(?:\([^)]*\))?", criteria)


def make_suite(pytester, monkeypatch):
    """A folder with a network and its tests, where this package's own entry points are installed."""
    site = pytester.mkdir("site")
    install_entry_points(site)
    monkeypatch.syspath_prepend(str(site))
    for name, value in environment(site).items():
        monkeypatch.setenv(name, value)
    pytester.makepyfile(net=NET, test_net=TESTS)
    monkeypatch.syspath_prepend(str(pytester.path))
    return pytester


def run(suite, *options):
    """Run the tests in this process."""
    return suite.runpytest_inprocess("-p", "no:cacheprovider", *options)


def values(file):
    return nc.Coverage.load(file).values()


def rows(file):
    with open(file, newline="") as opened:
        return list(csv.DictReader(opened))
