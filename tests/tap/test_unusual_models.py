"""Detectors that take lists, U-Nets with a time step, graphs: beside plain hooks and NumPy."""

import numpy as np
import pytest
import torch
from torch import nn

import neuralcov as nc
from neuralcov.core.errors import LayerError
from tests.tap.plain_hooks import mean_of_tokens, nlc, outputs

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning", "ignore::UserWarning")


class Detector(nn.Module):
    """Takes a list of images of unlike sizes, and gives boxes for each."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.backbone, self.head = nn.Conv2d(3, 6, 3, padding=1), nn.Linear(6, 4)

    def forward(self, images):
        side = max(image.shape[-1] for image in images)
        padded = [nn.functional.pad(i, (0, side - i.shape[2], 0, side - i.shape[1])) for i in images]
        features = torch.relu(self.backbone(torch.stack(padded)))
        return [{"boxes": self.head(one.flatten(1).T)} for one in features]


def test_a_detector_that_takes_a_list_of_images():
    model = Detector().eval()
    images = [torch.randn(3, 8, 8), torch.randn(3, 8, 8), torch.randn(3, 8, 8), torch.randn(3, 8, 8)]
    heard, assessed = (nc.Coverage(model, [nc.NLC(rule="all")], layers="backbone") for _ in range(2))
    assessed.assess([images])
    with heard.listen(), torch.no_grad():
        model(images)
    with torch.no_grad():
        rows = model.backbone(torch.stack(images)).double().mean((2, 3)).numpy()
    assert heard.values() == assessed.values()
    assert assessed.inputs == 4
    assert assessed.values()["NLC(rule=all)"] == pytest.approx(nlc(rows), rel=1e-4)


class TimedUNet(nn.Module):
    """A U-Net of one level that is also given a time step for each input."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.time, self.down, self.up = nn.Linear(4, 5), nn.Conv2d(1, 5, 3, 2, 1), nn.ConvTranspose2d(5, 1, 4, 2, 1)

    def forward(self, x, t):
        angles = t[:, None] * torch.tensor([1.0, 0.1, 0.01, 0.001])
        return x + self.up(torch.relu(self.down(x) + self.time(angles.sin())[:, :, None, None]))


def test_a_unet_with_a_time_step():
    model, x, t = TimedUNet().eval(), torch.randn(6, 1, 8, 8), torch.arange(6.0)
    heard, assessed = (nc.Coverage(model, [nc.NLC(rule="all")]) for _ in range(2))
    assessed.assess([(x, t)])
    with heard.listen(), torch.no_grad():
        model(x, t)
    assert heard.values() == assessed.values()
    found = outputs(model, {"x": x, "t": t}, ["time", "down", "up"])
    rows = {name: v if v.ndim == 2 else v.mean((2, 3)) for name, v in found.items()}
    by_layer = {row.layer: row.values["NLC(rule=all)"] for row in assessed.by_layer()}
    for name in ("time", "down"):
        assert by_layer[name] == pytest.approx(nlc(rows[name]), rel=1e-4)
    assert by_layer["up"] == pytest.approx(rows["up"].var(), rel=1e-4)


class Graphs(nn.Module):
    """Several graphs of one size in a batch: features of nodes, and who is whose neighbour."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.fc1, self.fc2, self.out = nn.Linear(3, 6), nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, nodes, edges):
        hidden = torch.relu(self.fc1(edges @ nodes))
        return self.out(torch.relu(self.fc2(edges @ hidden)).mean(1))


def test_a_graph_network():
    model, nodes = Graphs().eval(), torch.randn(5, 7, 3)
    edges = (torch.rand(5, 7, 7) < 0.4).float()
    coverage = nc.Coverage(model, [nc.NLC(rule="all")])
    coverage.assess([(nodes, edges)])
    found = outputs(model, {"nodes": nodes, "edges": edges}, ["fc1", "fc2", "out"])
    for row in coverage.by_layer():
        assert row.values["NLC(rule=all)"] == pytest.approx(nlc(mean_of_tokens(found[row.layer], None)), rel=1e-4)


class JoinedGraphs(nn.Module):
    """Graphs of unlike sizes, their nodes one behind the other: whose a node is, a vector says."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.fc1, self.fc2, self.out = nn.Linear(3, 6), nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, nodes, edges, graph):
        hidden = nodes
        for layer in (self.fc1, self.fc2):
            around = torch.zeros_like(hidden).index_add_(0, edges[1], hidden[edges[0]])
            hidden = torch.relu(layer(around))
        return self.out(torch.zeros(int(graph.max()) + 1, 6).index_add_(0, graph, hidden))


def joined_graphs():
    sizes = [3, 5, 4, 6, 2]
    graph = torch.repeat_interleave(torch.arange(5), torch.tensor(sizes))
    starts = np.cumsum([0, *sizes[:-1]])
    edges = [(s + i, s + (i + 1) % n) for s, n in zip(starts, sizes, strict=True) for i in range(n)]
    return torch.randn(20, 3, generator=torch.Generator().manual_seed(0)), torch.tensor(edges).T, graph


@pytest.mark.parametrize("way", ["assess", "listen"])
def test_graphs_of_unlike_sizes(way):
    model, (nodes, edges, graph) = JoinedGraphs().eval(), joined_graphs()

    def rows(layer, output):
        return None if layer == "out" else graph

    def number(given):
        return int(given[2].max()) + 1

    coverage = nc.Coverage(
        model, [nc.NLC(rule="all")], rows=rows, unpack=lambda given: (given, torch.arange(5), number(given))
    )
    if way == "assess":
        coverage.assess([(nodes, edges, graph)])
    else:
        with coverage.listen(batch=number), torch.no_grad():
            model(nodes, edges, graph)
            coverage.labels(torch.arange(5))
    assert coverage.inputs == 5
    found = outputs(model, {"nodes": nodes, "edges": edges, "graph": graph}, ["fc1", "fc2", "out"])
    for row in coverage.by_layer():
        values = found[row.layer]
        whole = values if row.layer == "out" else np.stack([values[graph == g].mean(0) for g in range(5)])
        assert row.values["NLC(rule=all)"] == pytest.approx(nlc(whole), rel=1e-4)


def test_graphs_of_which_nothing_is_said():
    model, given = JoinedGraphs().eval(), joined_graphs()
    coverage = nc.Coverage(model, [nc.NC()])
    with pytest.raises(nc.NeuralcovError, match=r"pass listen\(batch=\)"), coverage.listen(), torch.no_grad():
        model(*given)
    unsaid = nc.Coverage(model, [nc.NC()], unpack=lambda given: (given, None, 5))
    with pytest.raises(LayerError, match="no layer tells which of its rows belong to which input, such as 'fc1'"):
        unsaid.assess([given])


def test_the_argument_with_one_row_per_input_is_named():
    class Scored(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.fc = nn.Linear(4, 3)

        def forward(self, anchors, images):
            return self.fc(images) + anchors.sum()

    model, anchors, images = Scored().eval(), torch.randn(9, 2), torch.randn(6, 4)
    for call in (lambda: model(anchors, images), lambda: model(images=images, anchors=anchors)):
        coverage = nc.Coverage(model, [nc.NLC(rule="all")])
        with coverage.listen(batch="images"), torch.no_grad():
            call()
        assert coverage.inputs == 6
        with torch.no_grad():
            rows = model.fc(images).double().numpy()
        assert coverage.values()["NLC(rule=all)"] == pytest.approx(nlc(rows), rel=1e-4)


class Flow(nn.Module):
    """The right-hand side of a neural differential equation: the time comes first, one number for all inputs."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.out = nn.Linear(3, 6), nn.Linear(6, 3)

    def forward(self, t, y):
        return self.out(torch.tanh(self.inner(y)) * t)


def test_a_number_before_the_inputs_is_the_same_for_all_of_them():
    model, rows = Flow().eval(), torch.randn(8, 3)
    times = [torch.tensor(0.1), torch.tensor(0.5)]
    heard, assessed = (nc.Coverage(model, [nc.NLC(rule="all")]) for _ in range(2))
    assessed.assess([(times[0], rows[:5]), (times[1], rows[5:])])
    with heard.listen(), torch.no_grad():
        model(times[0], rows[:5])
        model(times[1], y=rows[5:])
    assert heard.values() == assessed.values()
    assert assessed.inputs == 8
    found = [
        outputs(model, {"t": t, "y": y}, ["inner"])["inner"] for t, y in zip(times, rows.split([5, 3]), strict=True)
    ]
    by_layer = {row.layer: row.values["NLC(rule=all)"] for row in assessed.by_layer()}
    assert by_layer["inner"] == pytest.approx(nlc(np.concatenate(found)), rel=1e-4)


def test_numbers_alone_are_no_batch():
    with pytest.raises(nc.NeuralcovError, match="hold no tensor with rows"):
        nc.Coverage(Flow().eval(), [nc.NC()]).update((torch.tensor(0.1), 3.0))
