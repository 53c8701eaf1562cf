"""What the output layer is given, where no layer shows it: trust is measured there if training data are run."""

import numpy as np
import pytest
import torch
from scipy import spatial

import neuralcov as nc
from neuralcov.rank.collecting import Settings, gather
from neuralcov.rank.given import GIVEN, OutputListener


class Flattening(torch.nn.Module):
    """A convolution whose places all go to the output, as in LeNet1."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = torch.nn.Conv2d(1, 3, 3), torch.nn.Linear(3 * 9, 4)
        generator = torch.Generator().manual_seed(3)
        for parameter in self.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator)

    def features(self, images):
        return torch.nn.functional.max_pool2d(self.conv(images).relu(), 2).flatten(1)

    def forward(self, images):
        return self.fc(self.features(images))


@pytest.fixture(scope="module")
def images():
    return torch.rand(120, 1, 8, 8, generator=torch.Generator().manual_seed(4))


@pytest.fixture(scope="module")
def flattening():
    return Flattening().eval()


def by_definition(model, training, images):
    """Return trust between directions of what the output layer is given."""
    known, asked = (model.features(each).detach().double().numpy() for each in (training, images))
    known, asked = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (known, asked))
    classes, decided = (model(each).argmax(1).numpy() for each in (training, images))
    far = spatial.distance.cdist(asked, known)
    near = np.full((len(asked), 4), np.inf)
    for label in range(4):
        if (classes == label).any():
            near[:, label] = np.sort(far[:, classes == label], axis=1)[:, :5].mean(1)
    own = near[np.arange(len(asked)), decided].copy()
    near[np.arange(len(asked)), decided] = np.inf
    return near.min(1) / own


def test_trust_is_measured_on_what_the_output_layer_is_given(flattening, images):
    coverage = nc.Coverage(flattening, [nc.NC()])
    found = gather(coverage, images[80:].split(16), Settings(training=images[:80].split(32)))
    assert found.scorers.layer == GIVEN
    np.testing.assert_allclose(found.columns["trust"], by_definition(flattening, images[:80], images[80:]), rtol=1e-5)
    assert not found.notes


def test_a_calibration_knows_layers_only_and_a_note_says_so(flattening, images):
    coverage = nc.Coverage(flattening, [nc.DSC()])
    coverage.calibrate(images[:80].split(32))
    queue = nc.rank(coverage, images[80:].split(16))
    assert any("'conv' was looked at" in note and "--calibrate" in note for note in queue.notes)
    named = nc.rank(nc.Coverage(flattening, [nc.NC()]), [images[80:]], training=[images[:80]], layer="conv")
    assert named.positions == queue.positions
    assert not named.notes


def test_labels_and_selection_go_with_it(flattening, images):
    coverage = nc.Coverage(flattening, [nc.NC()])
    decided = flattening(images[80:]).argmax(1)
    labels = {place: int(decided[place]) if place % 3 else (int(decided[place]) + 1) % 4 for place in range(15)}
    queue = nc.rank(coverage, [images[80:]], training=[images[:80]], labels=labels)
    assert len(queue) == 25
    assert "learnt from 15 labelled inputs, 5 of them faults" in queue.notes[-1]
    assert len(nc.select(coverage, [images[80:]], 5, training=[images[:80]])) == 5


def test_a_rectified_linear_layer_is_the_same(network, inputs):
    coverage = nc.Coverage(network, [nc.NC()])
    found = gather(coverage, [inputs[120:]], Settings(training=[inputs[:120]]))
    assert found.scorers.layer == "2"


def test_other_outputs_are_not_taken_for_classes(flattening, images):
    """The linear layer that is called last need not give the output; of tokens there are many for one input."""
    aside = torch.nn.Sequential(flattening, torch.nn.Hardtanh(-0.1, 0.1)).eval()
    found = gather(nc.Coverage(aside, [nc.NC()]), [images[80:]], Settings(training=[images[:80]]))
    assert found.scorers.layer == "0.fc"
    listener = OutputListener(None)
    with listener.listening():
        run = next(iter(nc.Coverage(flattening, [nc.NC()]).runs([images[:8]])))
    assert GIVEN not in listener.joined(run).layers


def test_hooks_are_gone_after_an_error(flattening, images):
    def broken():
        yield images[80:90]
        raise KeyboardInterrupt

    for training in ([images[:80]], None):
        coverage = nc.Coverage(flattening, [nc.DSC()])
        coverage.calibrate([images[:80]])
        with pytest.raises(KeyboardInterrupt):
            nc.rank(coverage, broken(), training=training)
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in flattening.modules())
