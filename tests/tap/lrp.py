"""Layer-wise relevance propagation written out in NumPy, one input at a time: every layer a dense matrix."""

import numpy as np

EPSILON = 1e-9


def convolution_matrix(conv, shape):
    """A convolution on inputs of ``shape`` (channels, height, width) as a matrix, with its bias and output shape."""
    weight = conv.weight.detach().double().numpy()
    channels, height, width = shape
    outputs, _, rows, columns = weight.shape
    (stride, _), (padding, _) = conv.stride, conv.padding
    high, wide = (height + 2 * padding - rows) // stride + 1, (width + 2 * padding - columns) // stride + 1
    matrix = np.zeros((outputs, high, wide, channels, height, width))
    for y in range(high):
        for x in range(wide):
            for i in range(rows):
                for j in range(columns):
                    at_y, at_x = y * stride + i - padding, x * stride + j - padding
                    if 0 <= at_y < height and 0 <= at_x < width:
                        matrix[:, y, x, :, at_y, at_x] += weight[:, :, i, j]
    bias = np.zeros(outputs) if conv.bias is None else conv.bias.detach().double().numpy()
    flat = matrix.reshape(outputs * high * wide, channels * height * width)
    return flat, np.repeat(bias, high * wide), (outputs, high, wide)


def linear_matrix(linear):
    weight = linear.weight.detach().double().numpy()
    return weight, np.zeros(len(weight)) if linear.bias is None else linear.bias.detach().double().numpy()


def fold(matrix, bias, norm):
    """A batch norm folded into the rows of a matrix, each of which belongs to one of its features."""
    scale = (norm.weight / (norm.running_var + norm.eps).sqrt()).detach().double().numpy()
    shift = (norm.bias - norm.running_mean * norm.weight / (norm.running_var + norm.eps).sqrt()).detach().double()
    each = len(bias) // len(scale)
    scale, shift = np.repeat(scale, each), np.repeat(shift.numpy(), each)
    return matrix * scale[:, None], bias * scale + shift


def stable(z):
    return z + np.where(z < 0, -EPSILON, EPSILON)


def epsilon_rule(a, matrix, bias, relevance):
    """R_i = Σ_j w_ji·a_i / z_j · R_j with z_j = Σ_i w_ji·a_i + b_j."""
    contributions = matrix * a
    return (contributions / stable(contributions.sum(1) + bias)[:, None] * relevance[:, None]).sum(0)


def alpha1_beta0_rule(a, matrix, bias, relevance):
    """The same with the positive part of every contribution, the bias's included; the negative if none is positive."""
    contributions = matrix * a
    none = (np.maximum(contributions, 0).sum(1) + np.maximum(bias, 0)) == 0
    contributions = np.maximum(np.where(none[:, None], -contributions, contributions), 0)
    total = contributions.sum(1) + np.maximum(np.where(none, -bias, bias), 0)
    return (contributions / stable(total)[:, None] * relevance[:, None]).sum(0)


def max_pool(a, shape):
    """2×2 max pooling, and which input each output is."""
    channels, height, width = shape
    index = np.arange(a.size).reshape(shape)
    values = a.reshape(shape)
    winners = []
    for c in range(channels):
        for y in range(0, height - 1, 2):
            for x in range(0, width - 1, 2):
                window = values[c, y : y + 2, x : x + 2].ravel()
                winners.append(index[c, y : y + 2, x : x + 2].ravel()[window.argmax()])
    return a[winners], np.array(winners), (channels, height // 2, width // 2)


def unpool(relevance, winners, size):
    back = np.zeros(size)
    np.add.at(back, winners, relevance)
    return back


def by_feature(relevance, shape):
    """Summed over space."""
    return relevance.reshape(shape[0], -1).sum(1)
