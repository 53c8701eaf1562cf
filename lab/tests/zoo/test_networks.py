"""Layers and neurons as the paper counts them, parameters as torchvision counts them, and that the networks behave."""

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from neuralcov.core.errors import InputError
from neuralcov.tap import Batch, Tap
from neuralcov_lab import zoo
from neuralcov_lab.training import accuracy
from neuralcov_lab.zoo import NETWORKS


def counts(network, inputs):
    activations, _ = Tap(network).run(Batch(inputs))
    return len(activations.layers), activations.layout.neurons


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("name", "ten_classes", "thousand_classes"),
    [
        ("resnet50", (54, 26_570), (54, 27_560)),
        ("vgg16_bn", (16, 12_426), (16, 13_416)),
        ("mobilenet_v2", (53, 17_066), (53, 18_056)),
    ],
)
def test_image_networks_count_as_in_the_paper(name, ten_classes, thousand_classes):
    assert counts(zoo.build(name), torch.zeros(2, 3, 32, 32)) == ten_classes
    assert counts(zoo.build(name, num_classes=1000), torch.zeros(1, 3, 32, 32)) == thousand_classes


@pytest.mark.parametrize(
    "name", sorted(set(NETWORKS) - {"inception", "adain", "mobilenet_v2_imagenet", "sentence_encoder"})
)
def test_networks_are_measured_nearly_whole(name):
    assert not Tap(zoo.build(name)).unmeasured().noteworthy


# What torchvision's documentation gives for its ImageNet networks.
@pytest.mark.parametrize(
    ("name", "parameters", "expected"),
    [
        ("resnet50", 25_557_032, (54, 27_560)),
        ("vgg16_bn", 138_365_992, (16, 13_416)),
        ("mobilenet_v2", 3_504_872, (53, 18_056)),
    ],
)
def test_imagenet_forms(name, parameters, expected):
    network = zoo.build(name, num_classes=1000, input_size=224)
    assert sum(parameter.numel() for parameter in network.parameters()) == parameters
    assert network.input_shape == (3, 224, 224)
    assert counts(network, torch.zeros(1, 3, 224, 224)) == expected
    with torch.device("meta"):
        small = zoo.build(name)
    assert list(network.state_dict()) == list(small.state_dict())


def test_imagenet_first_layers_are_torchvisions():
    with torch.device("meta"):
        resnet, vgg, mobilenet = zoo.resnet50(1000, 224), zoo.vgg16_bn(1000, 224), zoo.mobilenet_v2(1000, 224)
    assert tuple(resnet.state_dict()["conv1.weight"].shape) == (64, 3, 7, 7)
    assert tuple(vgg.state_dict()["classifier.0.weight"].shape) == (4096, 25088)
    assert tuple(mobilenet.state_dict()["features.0.0.weight"].shape) == (32, 3, 3, 3)
    assert mobilenet.features[0][0].stride == (2, 2)


def test_small_networks_have_five_layers_or_more():
    assert counts(zoo.build("convnet"), torch.zeros(2, 1, 28, 28)) == (6, 234)
    assert counts(zoo.build("mlp"), torch.zeros(2, 16)) == (6, 666)
    assert counts(zoo.build("mlp", features=784), torch.zeros(2, 1, 28, 28)) == (6, 666)
    assert counts(zoo.build("transformer"), torch.ones(2, 96, dtype=torch.long)) == (9, 916)


def test_a_transformer_does_not_see_padding():
    network = zoo.TextTransformer(num_classes=3, vocabulary=30, width=8, heads=2, steps=10).eval()
    texts, lengths = torch.randint(2, 30, (4, 10)), torch.tensor([10, 6, 3, 1])
    padded = texts.masked_fill(torch.arange(10) >= lengths[:, None], 0).short()
    torch.testing.assert_close(network(padded), network(texts, lengths))
    torch.testing.assert_close(network(padded[1:2]), network(padded[1:2, :6]))
    assert network(torch.zeros(2, 10, dtype=torch.short)).isfinite().all()


def test_text_and_generator_count_as_in_the_paper():
    assert counts(zoo.build("lstm"), torch.ones(2, 128, dtype=torch.long)) == (129, 32_769)
    assert counts(zoo.build("generator"), torch.zeros(2, 128)) == (11, 6_403)


@pytest.mark.parametrize("name", ["resnet50", "vgg16_bn", "mobilenet_v2"])
def test_given_weights_have_our_names_and_shapes(name, given_weights):
    given = load_file(given_weights / f"{name}-cifar10.safetensors")
    with torch.device("meta"):
        network = zoo.build(name)
    assert {key: tuple(value.shape) for key, value in network.state_dict().items()} == {
        key: tuple(value.shape) for key, value in given.items()
    }


def given_network(name, folder):
    state = load_file(folder / f"{name}-cifar10.safetensors")
    network = zoo.build(name)
    network.load_state_dict({key: v.float() if v.is_floating_point() else v for key, v in state.items()})
    return network.eval()


@pytest.mark.parametrize("name", ["resnet50", "vgg16_bn", "mobilenet_v2"])
def test_given_weights_classify_the_first_images(name, given_weights, real):
    real("cifar10")
    test = zoo.data("cifar10", "test").take(slice(0, 500))
    assert accuracy(given_network(name, given_weights), test) > 0.90


@pytest.mark.slow
@pytest.mark.parametrize(("name", "expected"), [("resnet50", 0.920), ("vgg16_bn", 0.928), ("mobilenet_v2", 0.933)])
def test_given_weights_score_what_was_stated(name, expected, given_weights, real):
    real("cifar10")
    measured = accuracy(given_network(name, given_weights), zoo.data("cifar10", "test"))
    assert measured == pytest.approx(expected, abs=0.001)


def test_lstm_gives_the_same_logits_as_packed_sequences():
    network = zoo.SentimentLSTM(vocabulary=50, embedding=8, hidden=6, steps=12).eval()
    lengths = torch.tensor([12, 3, 1, 7])
    tokens = torch.randint(2, 50, (4, 12)).masked_fill(torch.arange(12) >= lengths[:, None], 0)
    packed = pack_padded_sequence(network.embedding(tokens), lengths, batch_first=True, enforce_sorted=False)
    states, _ = pad_packed_sequence(network.lstm(packed)[0], batch_first=True)
    expected = network.fc(states.sum(1) / lengths[:, None])
    torch.testing.assert_close(network(tokens), expected)
    torch.testing.assert_close(network(tokens, lengths), expected)


def test_lstm_takes_short_integers_and_a_review_of_nothing():
    network = zoo.SentimentLSTM(vocabulary=20, embedding=4, hidden=5, steps=6).eval()
    logits = network(torch.zeros(2, 6, dtype=torch.int16))
    assert logits.shape == (2, 1)
    assert torch.isfinite(logits).all()


def test_generator_draws_by_class_and_within_bounds():
    generator = zoo.Generator(num_classes=3, noise=8, width=16)
    for block in generator.blocks:
        nn.init.normal_(block.norm1.offset.weight)
    generator.eval()
    noise = torch.randn(1, 8).expand(3, 8)
    images = generator(noise, torch.arange(3))
    assert images.shape == (3, 3, 32, 32)
    assert images.abs().max() <= 1
    assert not torch.allclose(images[0], images[1])
    torch.testing.assert_close(generator(noise), images[:1].expand(3, -1, -1, -1))


def test_generator_samples_follow_the_random_numbers_given():
    generator = zoo.Generator(num_classes=2, noise=8, width=8).eval()
    labels = torch.tensor([0, 1, 1])
    a = generator.sample(labels, torch.Generator().manual_seed(3))
    b = generator.sample(labels, torch.Generator().manual_seed(3))
    torch.testing.assert_close(a, b, rtol=0, atol=0)
    assert not a.requires_grad


def test_discriminator_weights_have_unit_spectral_norm():
    torch.manual_seed(0)  # how fast power iteration converges depends on the weights
    discriminator = zoo.Discriminator(num_classes=4, width=12).train()
    for _ in range(40):
        discriminator(torch.zeros(1, 3, 32, 32))
    layers = [m for m in discriminator.modules() if isinstance(m, (nn.Conv2d, nn.Linear, nn.Embedding))]
    assert len(layers) == 12
    for layer in layers:
        largest = torch.linalg.svdvals(layer.weight.detach().flatten(1))[0]
        assert largest == pytest.approx(1, abs=0.02)


def test_discriminator_weights_are_normalised_once_per_pass():
    """The estimate moves by one step of power iteration in a training pass, and not at all in eval mode."""
    discriminator = zoo.Discriminator(num_classes=2, width=4).train()
    vectors = discriminator.linear.state_dict
    left, right = (f"parametrizations.weight.0.{name}" for name in ("_u", "_v"))
    before = vectors()[right].clone()
    matrix = vectors()["parametrizations.weight.original"].clone()
    discriminator(torch.zeros(1, 3, 32, 32))
    expected = nn.functional.normalize(matrix @ before, dim=0)
    torch.testing.assert_close(vectors()[left], expected)
    torch.testing.assert_close(vectors()[right], nn.functional.normalize(matrix.T @ expected, dim=0))
    kept = vectors()[left].clone()
    discriminator.eval()(torch.zeros(1, 3, 32, 32))
    torch.testing.assert_close(vectors()[left], kept, rtol=0, atol=0)


def test_discriminator_loads_weights_from_when_spectral_normalisation_was_our_own():
    discriminator = zoo.Discriminator(num_classes=3, width=4).eval()
    names = {"_u": "left", "_v": "right"}
    old = {}
    for name, value in discriminator.state_dict().items():
        stem, _, last = name.rpartition(".")
        old[f"{stem}.{names.get(last, last)}"] = value
    assert "blocks.0.conv1.parametrizations.weight.0.left" in old
    images, labels = torch.rand(2, 3, 32, 32), torch.tensor([0, 2])
    twin = zoo.Discriminator(num_classes=3, width=4).eval()
    twin.load_state_dict(old)
    torch.testing.assert_close(twin(images, labels), discriminator(images, labels), rtol=0, atol=0)


def test_generators_weights_keep_their_names():
    """Files that earlier versions trained: nothing in the generator itself is normalised by its spectrum."""
    names = list(zoo.Generator(num_classes=2, noise=4, width=4).state_dict())
    block = ["norm1", "conv1", "norm2", "conv2", "shortcut"]
    norm = ["norm.running_mean", "norm.running_var", "norm.num_batches_tracked", "gain.weight", "offset.weight"]
    ends = {part: norm if part.startswith("norm") else ["weight", "bias"] for part in block}
    expected = ["linear.weight", "linear.bias"]
    expected += [f"blocks.{number}.{part}.{end}" for number in range(3) for part in block for end in ends[part]]
    running = ["running_mean", "running_var", "num_batches_tracked"]
    expected += [f"norm.{end}" for end in ("weight", "bias", *running)] + ["output.weight", "output.bias"]
    assert names == expected


def test_discriminator_gradients_agree_with_finite_differences():
    discriminator = zoo.Discriminator(num_classes=2, width=4).double().eval()
    image = torch.rand(1, 3, 32, 32, dtype=torch.float64, requires_grad=True)
    label = torch.tensor([1])
    direction = torch.randn_like(image)
    (slope,) = torch.autograd.grad(discriminator(image, label).sum(), image)
    step = 1e-6
    with torch.no_grad():
        change = discriminator(image + step * direction, label) - discriminator(image - step * direction, label)
    assert float((slope * direction).sum()) == pytest.approx(float(change) / (2 * step), rel=1e-4)


@pytest.mark.parametrize("name", ["net_classifier", "vae", "cvae"])
def test_forms_of_net_share_the_two_neurons(name):
    network = zoo.build(name).eval()
    images = torch.rand(3, *network.input_shape)
    activations, output = Tap(network).run(Batch(images))
    torch.testing.assert_close(activations.layers["net.last"], network.net(images))
    assert activations.layers["net.last"].shape == (3, 2)
    first = output if name == "net_classifier" else output[0]
    assert first.shape == ((3, 10) if name == "net_classifier" else (3, 1, 28, 28))


def test_conditional_vae_draws_by_class_and_vae_does_not_know_it():
    images, labels = torch.rand(2, 1, 28, 28), torch.tensor([3, 4])
    conditional, plain = zoo.ConditionalVAE().eval(), zoo.VAE().eval()
    assert not torch.allclose(conditional(images, labels)[0], conditional(images, labels.flip(0))[0])
    torch.testing.assert_close(plain(images, labels)[0], plain(images)[0])


def test_vae_draws_its_code_in_training_only():
    network, images = zoo.VAE(), torch.rand(2, 1, 28, 28)
    assert not torch.allclose(network.train()(images)[0], network(images)[0])
    torch.testing.assert_close(network.eval()(images)[0], network(images)[0])


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("resnet50", {"num_classes": 0}, "num_classes must be at least 1"),
        ("vgg16_bn", {"input_size": 16}, "input_size must be at least 32"),
        ("lstm", {"hidden": 0}, "hidden must be at least 1"),
        ("generator", {"width": 0}, "width must be at least 1"),
        ("cvae", {"num_classes": 0}, "num_classes must be at least 1"),
        ("net_classifier", {"num_classes": -1}, "num_classes must be at least 1"),
        ("convnet", {"width": 0}, "width must be at least 1"),
        ("mlp", {"layers": 0}, "layers must be at least 1"),
        ("transformer", {"blocks": 0}, "blocks must be at least 1"),
        ("transformer", {"heads": 5}, "heads must divide width"),
        ("resnet50", {"colour": 1}, "unexpected keyword argument 'colour'"),
        ("alexnet", {}, "the zoo has no network 'alexnet'"),
    ],
)
def test_wrong_arguments_are_said_in_one_sentence(name, arguments, sentence):
    with pytest.raises(InputError, match=sentence):
        zoo.build(name, **arguments)
