"""Pass relevance back through one step: layer-wise relevance propagation (Bach et al., 2015).

Rules are of four kinds:

* *in proportion*: the Epsilon rule, R_i = Σ_j z_ij / z_j · R_j, with z_ij what input i contributes to output j and z_j
  the whole output. Linear layers, sums, averages, normalisation.
* *in proportion to what is positive*: the Alpha1-Beta0 rule, the same with z_ij⁺ and z_j⁺ = Σ_i z_ij⁺ + b_j⁺, or
  with the negative parts where no contribution to an output is positive. Convolutions.
* *along the way*: an output is one input, or the largest of several. Reshaping, slicing, max pooling.
* *unchanged*: element by element. Activations, dropout, scaling by a constant.

What a bias, a batch norm's shift or an added constant contributes to an output is its share of the relevance;
it goes nowhere. So does the relevance of an output to which nothing contributes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from neuralcov.core.errors import LayerError
from neuralcov.tap.tape import Held, Operation, ScaleShift, swap

Rule = Callable[[Operation], Sequence[Tensor]]

_EPSILON = 1e-9


def pass_back(step: Operation) -> None:
    """Hand the relevance that has arrived at a step's outputs on to its inputs."""
    rule = RULES.get(step.name)
    if rule is None:
        raise _no_rule(step)
    # A batch norm that is folded into the layer before it takes its scale and shift along.
    folded = step.name == "batch_norm" and step.inputs[0].spot.step.weighted
    affine = _affine(step) if folded else None
    for held, relevance in zip(step.inputs, rule(step), strict=True):
        held.spot.receive(relevance.to(held.spot.device), affine)


# The rules: from a step, with relevance at its outputs, to the relevance of each of its inputs.


def _in_proportion(step: Operation) -> Sequence[Tensor]:
    """Apply the Epsilon rule, for anything linear in what it is given."""
    leaves = [_leaf(held.value) for held in step.inputs]
    return _shares(leaves, _replay(step, leaves), _relevance(step))


def _one_in_proportion(step: Operation) -> Sequence[Tensor]:
    """Apply the Epsilon rule, for products: linear as long as all factors but one are constants."""
    _only_input(step)
    return _in_proportion(step)


def _linear(step: Operation) -> Sequence[Tensor]:
    """Apply the Epsilon rule, for the layer as it is and as it is with each batch norm folded into it."""
    shares: list[Tensor] = []
    for relevance, affine in step.outputs[0].arrived:
        leaf = _leaf(_only_input(step).value)
        weight, bias = _weights(step, affine)
        with torch.enable_grad():
            outputs = _call(step, leaf, weight, bias)
        shares += _shares([leaf], outputs, relevance)
    return [_sum(shares)]


def _convolution(step: Operation) -> Sequence[Tensor]:
    """Apply the Alpha1-Beta0 rule likewise; where no contribution is positive, the negative ones share instead."""
    value = _plain(_only_input(step).value)
    shares: list[Tensor] = []
    for relevance, affine in step.outputs[0].arrived:
        weight, bias = _weights(step, affine)
        share, positive = _positive_shares(step, value, weight, bias, relevance)
        shares += share
        left = relevance.masked_fill(positive != 0, 0)
        if bool(left.any()):
            shares += _positive_shares(step, value, -weight, None if bias is None else -bias, left)[0]
    return [_sum(shares)]


def _positive_shares(
    step: Operation, value: Tensor, weight: Tensor, bias: Tensor | None, relevance: Tensor
) -> tuple[Sequence[Tensor], Tensor]:
    """Return what a convolution's input gets by its positive contributions, in parts, and what these add up to.

    A contribution is positive where input and weight have one sign: positive inputs with the positive part of the
    weights, and negative inputs, turned around, with the negative part turned around. Of the bias only the positive
    part counts, or it would create relevance where it is negative.
    """
    parts = [(value, weight)]
    if bool((value < 0).any()):
        parts = [(value.clamp(min=0), weight), ((-value).clamp_(min=0), -weight)]
    outputs = value.new_zeros(()) if bias is None else bias.clamp(min=0).reshape(-1, *[1] * (value.dim() - 2))
    leaves = []
    for inputs, weights in parts:
        leaves.append(_leaf(inputs))
        with torch.enable_grad():
            outputs = outputs + _call(step, leaves[-1], weights.clamp(min=0), None)
    return _shares(leaves, outputs, relevance), outputs.detach()


def _batch_norm(step: Operation) -> Sequence[Tensor]:
    """Pass relevance on unchanged where the norm is folded into the layer before; else apply the Epsilon rule."""
    held, relevance = _only_input(step), _relevance(step)
    if held.spot.step.weighted:
        return [relevance]
    leaf = _leaf(held.value)
    scale, shift = (part.reshape(-1, *[1] * (leaf.dim() - 2)) for part in _affine(step))
    with torch.enable_grad():
        outputs = leaf * scale + shift
    return _shares([leaf], outputs, relevance)


def _standardised(step: Operation) -> Sequence[Tensor]:
    """Apply the Epsilon rule for layer and group norm, with the spread they divide by held as it is."""
    leaf = _leaf(_only_input(step).value)
    by_group = step.name == "group_norm"
    grouping: Any = step.argument(1, "num_groups" if by_group else "normalized_shape")
    weight, bias = (step.argument(2 + i, name) for i, name in enumerate(("weight", "bias")))
    epsilon = step.argument(4, "eps")
    with torch.enable_grad():
        grouped = leaf.reshape(leaf.shape[0], grouping, -1) if by_group else leaf
        axes = (2,) if by_group else tuple(range(-len(grouping), 0))
        variance = grouped.detach().var(axes, correction=0, keepdim=True)
        centred = grouped - grouped.mean(axes, keepdim=True)
        outputs = (centred * (variance + (1e-5 if epsilon is None else epsilon)).rsqrt()).reshape(leaf.shape)
        along = (-1, *[1] * (leaf.dim() - 2)) if by_group else tuple(grouping)
        if weight is not None:
            outputs = outputs * _plain(weight).reshape(along)
        if bias is not None:
            outputs = outputs + _plain(bias).reshape(along)
    return _shares([leaf], outputs, _relevance(step))


def _along_the_way(step: Operation) -> Sequence[Tensor]:
    """Pass relevance to the inputs that were copied to the outputs: gradients say which."""
    leaves = [_leaf(held.value) for held in step.inputs]
    made = _replay(step, leaves)
    floats = [made] if isinstance(made, Tensor) else [tensor for tensor in made if tensor.is_floating_point()]
    pairs = [
        (tensor, arrived.to(tensor.dtype))
        for tensor, spot in zip(floats, step.outputs, strict=True)
        if (arrived := spot.relevance()) is not None
    ]
    tensors, relevances = zip(*pairs, strict=True)
    found = torch.autograd.grad(tensors, leaves, relevances, allow_unused=True)
    return [torch.zeros_like(leaf) if part is None else part for leaf, part in zip(leaves, found, strict=True)]


def _unchanged(step: Operation) -> Sequence[Tensor]:
    """Pass relevance on unchanged, element by element."""
    return [_relevance(step).sum_to_size(_only_input(step).spot.shape)]


def _product(step: Operation) -> Sequence[Tensor]:
    """Share relevance equally between the factors of a product."""
    relevance = _relevance(step) / len(step.inputs)
    return [relevance.sum_to_size(held.spot.shape) for held in step.inputs]


def _quotient(step: Operation) -> Sequence[Tensor]:
    """Pass relevance on unchanged, as long as the divisor is a constant."""
    if step.argument(0, "input") is not step.inputs[0]:
        raise _no_rule(step, " by something computed from the input")
    return _unchanged(step)


# Helpers


def _shares(leaves: Sequence[Tensor], outputs: Tensor, relevance: Tensor) -> Sequence[Tensor]:
    """Share relevance among leaves in proportion to what they contribute to the outputs, which are linear in them.

    Leaf i contributes x_i·∂z_j/∂x_i to output j, so its share is x_i·Σ_j ∂z_j/∂x_i·R_j/z_j: one gradient, of the
    outputs weighed by R/z. A small term of z's sign keeps the quotient finite.
    """
    nonzero = outputs.detach() + torch.where(outputs.detach() < 0, -_EPSILON, _EPSILON)
    found = torch.autograd.grad(outputs, leaves, relevance.to(outputs.dtype) / nonzero)
    return [leaf.detach() * part for leaf, part in zip(leaves, found, strict=True)]


def _replay(step: Operation, leaves: Sequence[Tensor]) -> Any:
    """Run a step again on leaves."""
    fresh = dict(zip(map(id, step.inputs), leaves, strict=True))

    def supply(part: Held | Tensor) -> Tensor:
        return fresh[id(part)] if isinstance(part, Held) else _plain(part)

    args, kwargs = swap((step.args, step.kwargs), (Held, Tensor), supply)
    with torch.enable_grad():
        return step.function(*args, **kwargs)


def _call(step: Operation, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Run a weighted step on other inputs and weights."""
    rest = {name: value for name, value in step.kwargs.items() if name not in ("input", "weight", "bias")}
    outputs: Tensor = step.function(inputs, weight, bias, *step.args[3:], **rest)
    return outputs


def _weights(step: Operation, affine: ScaleShift | None) -> tuple[Tensor, Tensor | None]:
    """Return weight and bias of a step, with a batch norm behind it folded in."""
    given = step.argument(2, "bias")
    weight, bias = _plain(step.argument(1, "weight")), None if given is None else _plain(given)
    if affine is None:
        return weight, bias
    scale, shift = affine
    bias = shift if bias is None else bias * scale + shift
    if step.name not in _TRANSPOSED:
        return weight * scale.reshape(-1, *[1] * (weight.dim() - 1)), bias
    # Weights of a transposed convolution: (inputs, outputs of one group, ...).
    groups = step.argument(6, "groups") or 1
    apart = weight.reshape(groups, -1, *weight.shape[1:])
    return (apart * scale.reshape(groups, 1, -1, *[1] * (weight.dim() - 2))).reshape(weight.shape), bias


def _affine(step: Operation) -> ScaleShift:
    """Return the scale and shift of a batch norm in eval mode."""
    if step.function is not functional.batch_norm:
        # Torch has another of that name, which takes its arguments in another order.
        raise _no_rule(step)
    names = ("running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
    mean, variance, weight, bias, training, _, epsilon = (step.argument(1 + i, name) for i, name in enumerate(names))
    if training or mean is None or variance is None:
        raise LayerError(
            f"{step.where} takes the statistics of each batch, which mixes its inputs: relevance needs a batch norm "
            "in eval mode with running statistics"
        )
    scale = (_plain(variance) + (1e-5 if epsilon is None else epsilon)).rsqrt()
    if weight is not None:
        scale = scale * _plain(weight)
    shift = -_plain(mean) * scale
    return scale, shift if bias is None else shift + _plain(bias)


def _sum(parts: Sequence[Tensor]) -> Tensor:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _relevance(step: Operation) -> Tensor:
    return _tensor(step.outputs[0].relevance())


def _only_input(step: Operation) -> Held:
    if len(step.inputs) != 1 or (step.weighted and step.argument(0, "input") is not step.inputs[0]):
        raise _no_rule(step, " of several things computed from the input")
    return step.inputs[0]


def _no_rule(step: Operation, of: str = "") -> LayerError:
    return LayerError(
        f"relevance cannot be followed through {step.where}: there is no rule for {step.name!r}{of}; "
        "leave NPC out, or choose only layers behind it with layers="
    )


def _leaf(value: Tensor | None) -> Tensor:
    return _plain(value).requires_grad_()


def _plain(value: Tensor | None) -> Tensor:
    """Return the tensor without history, in float32 or float64: half precision is too coarse to divide relevance in."""
    tensor = _tensor(value)
    if tensor.dtype in (torch.float16, torch.bfloat16):
        return tensor.detach().float()
    return tensor.clone() if tensor.is_inference() else tensor.detach()


def _tensor(value: Tensor | None) -> Tensor:
    assert isinstance(value, Tensor)
    return value


_TRANSPOSED = ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
_FILLED = ("zeros", "ones", "full", "empty", "rand", "randn")
_CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", *_TRANSPOSED)

# Functions by the name under which the tape knows them, whether called on modules, tensors or as functions.
_BY_RULE: dict[Rule, str] = {
    _linear: "linear",
    _convolution: " ".join(_CONVOLUTIONS),
    _batch_norm: "batch_norm",
    _standardised: "layer_norm group_norm",
    _in_proportion: (
        "add sub rsub __rsub__ mean sum avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d "
        "adaptive_avg_pool3d interpolate upsample"
    ),
    _one_in_proportion: "matmul __matmul__ __rmatmul__ mm bmm addmm einsum",
    _along_the_way: (
        "flatten unflatten reshape reshape_as view view_as squeeze unsqueeze permute transpose swapaxes movedim "
        "moveaxis t T mT __getitem__ select narrow index_select chunk split split_with_sizes tensor_split unbind "
        "cat concat concatenate stack pad expand expand_as repeat tile roll flip where masked_fill "
        "pixel_shuffle pixel_unshuffle channel_shuffle max_pool1d max_pool2d max_pool3d max_pool1d_with_indices "
        "max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d "
        "adaptive_max_pool1d_with_indices adaptive_max_pool2d_with_indices adaptive_max_pool3d_with_indices "
        "amax amin max min maximum minimum"
    ),
    _unchanged: (
        "relu relu6 gelu silu mish elu selu celu leaky_relu prelu rrelu hardtanh hardswish hardsigmoid tanh sigmoid "
        "softplus softsign tanhshrink hardshrink softshrink threshold _threshold clamp clamp_min clamp_max clip abs "
        "pow square sqrt neg dropout dropout1d dropout2d dropout3d feature_dropout alpha_dropout "
        "feature_alpha_dropout rms_norm local_response_norm normalize clone contiguous detach to type type_as float "
        "double half bfloat16 cpu cuda data requires_grad"
    ),
    _product: "mul multiply",
    _quotient: "div divide true_divide __truediv__",
}
RULES: dict[str, Rule] = {name: rule for rule, names in _BY_RULE.items() for name in names.split()}
WEIGHTED = frozenset({"linear", *_CONVOLUTIONS})
# What turns logits into something else at a model's end; relevance starts before it.
ENDINGS = frozenset({"softmax", "log_softmax", "sigmoid", "log_sigmoid"})
VALUELESS = frozenset(n for n, rule in RULES.items() if rule in (_unchanged, _product, _quotient)) - ENDINGS
# What depends on the shape and type of what it is given, not on the values.
CONSTANT = frozenset({*(f"{name}_like" for name in _FILLED), *(f"new_{name}" for name in (*_FILLED, "tensor"))})
