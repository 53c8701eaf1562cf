"""Seeds that the model is least sure of."""

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from neuralcov import demo
from neuralcov.cli.fuzz_seeds import least_sure
from neuralcov.core.errors import InputError
from neuralcov.fuzz import open_campaign
from neuralcov.sources.samples import Samples


@pytest.fixture(scope="module")
def weights(digits_net, tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "digits.safetensors"
    save_file(digits_net.state_dict(), path)
    return path


def by_a_plain_loop(net, digits, count):
    """Numbers of the inputs, in the order of the data."""
    doubts = []
    with torch.no_grad():
        for number, (image, label) in enumerate(zip(digits.inputs, digits.labels, strict=True)):
            shares = net(image[None] / 16).double().softmax(1)[0]
            if int(shares.argmax()) == int(label):
                doubts.append((1 - float((shares**2).sum()), number))
    doubts.sort(key=lambda pair: -pair[0])
    return sorted(number for _, number in doubts[:count])


def test_a_campaign_starts_from_them_and_goes_on(run, weights, digits_net, tmp_path):
    start = "fuzz", "run", "demo:digits", "--weights", weights, "--data", "demo:digits", "--wave", 10, "--no-shrink"
    code, _, err = run(*start, "--seeds", 20, "--unsure-seeds", "--calls", 30, "-o", tmp_path / "c")
    assert code == 0, err
    digits = demo.digits("test")
    corpus = open_campaign(tmp_path / "c").state.corpus
    expected = digits.inputs[by_a_plain_loop(digits_net.eval(), digits, 20)]
    assert torch.equal(corpus.inputs(slice(0, corpus.roots)), expected)
    code, _, err = run("fuzz", "resume", tmp_path / "c", "--trust", "--calls", 60, "--no-shrink")
    assert code == 0, err
    code, _, err = run("fuzz", "resume", tmp_path / "c", "--trust", "--calls", 70, "--data", "demo:digits")
    assert code == 2
    assert "the folder holds seeds that the model chose" in err


class OneLogit(nn.Module):
    def forward(self, tokens, lengths):
        return (tokens.sum(1) - 10.0)[:, None]


def texts(labels):
    tokens = torch.tensor([[9, 0], [9, 9], [10, 2], [1, 8], [20, 0]])
    return Samples("texts", tokens, torch.tensor(labels), ("no", "yes"), lengths=torch.tensor([1, 2, 2, 2, 1]))


def prepare(tokens):
    return {"tokens": tokens, "lengths": (tokens != 0).sum(1)}


def test_one_logit_and_fewer_that_are_right():
    # Logits −1, 8, 2, −1, 10; the last is read wrongly.
    samples = texts([0, 1, 1, 0, 0])
    assert least_sure(samples, 1, OneLogit(), prepare, 2, "cpu").inputs.tolist() == [[9, 0]]
    assert least_sure(samples, 3, OneLogit(), prepare, 2, "cpu").inputs.tolist() == [[9, 0], [10, 2], [1, 8]]
    assert len(least_sure(samples, 9, OneLogit(), prepare, 2, "cpu")) == 4
    with pytest.raises(InputError, match="reads none of 5 inputs rightly"):
        least_sure(texts([1, 0, 0, 1, 0]), 2, OneLogit(), prepare, 2, "cpu")


def test_a_model_without_scores():
    class Pictures(OneLogit):
        def forward(self, tokens, lengths):
            return torch.zeros(len(tokens), 3, 4, 4)

    with pytest.raises(InputError, match="gives no score per class"):
        least_sure(texts([0] * 5), 2, Pictures(), prepare, 2, "cpu")
