"""Kernels that read the outputs of layers once: averages of feature maps and tokens, and cells to tick off.

Imported only where Triton is installed; see operations.py and ticks.py.
"""
# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, N803 - Triton reads this source: arguments are pointers and numbers of the device

import triton
import triton.language as tl


@triton.jit
def middle_means(values, means, places, features, blocks, PLACES: tl.constexpr, FEATURES: tl.constexpr):
    """Means over the middle axis of (inputs, places, features), added up in float32: features lie side by side."""
    program = tl.program_id(0)
    first = (program // blocks).to(tl.int64)
    feature = (program % blocks) * FEATURES + tl.arange(0, FEATURES)
    total = tl.zeros([PLACES, FEATURES], dtype=tl.float32)
    begin = values + first * places * features
    for start in range(0, places, PLACES):
        place = start + tl.arange(0, PLACES)
        inside = (place < places)[:, None] & (feature < features)[None, :]
        some = begin + place[:, None].to(tl.int64) * features + feature[None, :]
        total += tl.load(some, mask=inside, other=0.0).to(tl.float32)
    tl.store(means + first * features + feature, tl.sum(total, axis=0) / places, mask=feature < features)


@triton.jit
def all_finite(ends, found, columns, largest, BOUNDED: tl.constexpr, BLOCK: tl.constexpr):
    """Of one input, whether the extremes of all its rows are finite, or at most so large."""
    row = tl.program_id(0).to(tl.int64)
    good = tl.full([BLOCK], 1, tl.int32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        end = tl.load(ends + row * columns + column, mask=column < columns, other=0.0)
        # What is infinite or no number less itself is no number.
        fine = (end - end) == 0
        if BOUNDED:
            fine = fine & (tl.abs(end) <= tl.load(largest))
        good = tl.minimum(good, fine.to(tl.int32))
    tl.store(found + row, tl.min(good, axis=0).to(tl.int8))


@triton.jit
def zero_rows(values, valid, layers, width, along_inputs, along_layers, BLOCK: tl.constexpr):
    """Set a row to 0 if it is not valid; of others nothing is read."""
    row, layer = tl.program_id(0).to(tl.int64), tl.program_id(1)
    if tl.load(valid + row * along_inputs + layer * along_layers) == 0:
        for start in range(0, width, BLOCK):
            place = start + tl.arange(0, BLOCK)
            nothing = tl.zeros([BLOCK], dtype=values.dtype.element_ty)
            tl.store(values + (row * layers + layer) * width + place, nothing, mask=place < width)


@triton.jit
def some_rows(values, valid, valid_rows, valid_layers, inputs, layers, width, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Of a few inputs and neurons: the outputs, which of them take part, and where their rows' extremes stand."""
    neuron = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.program_id(1).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    here = (row < inputs)[:, None] & (neuron < layers * width)[None, :]
    place = row[:, None] * layers + (neuron // width)[None, :]
    value = tl.load(values + row[:, None] * layers * width + neuron[None, :], mask=here, other=0.0).to(tl.float64)
    takes = here & (
        tl.load(valid + row[:, None] * valid_rows + (neuron // width)[None, :] * valid_layers, mask=here, other=0) != 0
    )
    return neuron, value, takes, place


@triton.jit
def tick_scaled(
    values, valid, valid_rows, valid_layers, least, most, threshold, ticks, inputs, layers, width,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Tick off neurons whose output, scaled to [0, 1] within its layer, exceeds a threshold for one of a few inputs."""
    neuron, value, takes, place = some_rows(values, valid, valid_rows, valid_layers, inputs, layers, width, ROWS, BLOCK)
    low = tl.load(least + place, mask=takes, other=0.0).to(tl.float64)
    high = tl.load(most + place, mask=takes, other=1.0).to(tl.float64)
    # A constant layer divides 0 by 0 to NaN, which exceeds nothing.
    hit = takes & ((value - low) / (high - low) > tl.load(threshold))
    found = tl.max(hit.to(tl.int32), axis=0)
    tl.store(ticks + neuron, found.to(tl.int8), mask=found != 0)


@triton.jit
def tick_sections(
    values, valid, valid_rows, valid_layers, low, high, ticks, inputs, layers, width,
    SECTIONS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Tick off, of each neuron, the sections of its range that a few inputs lie in."""
    neuron, value, takes, _ = some_rows(values, valid, valid_rows, valid_layers, inputs, layers, width, ROWS, BLOCK)
    inside = neuron < layers * width
    bottom = tl.load(low + neuron, mask=inside, other=0.0).to(tl.float64)[None, :]
    top = tl.load(high + neuron, mask=inside, other=0.0).to(tl.float64)[None, :]
    takes = takes & (value >= bottom) & (value <= top) & (top > bottom)
    section = tl.where(takes, (value - bottom) / (top - bottom) * SECTIONS, 0.0)
    section = tl.minimum(tl.floor(section), SECTIONS - 1).to(tl.int64)
    # Section 0 is cell 1; cell 0 stands for nowhere.
    cell = neuron.to(tl.int64)[None, :] * (1 + SECTIONS) + 1 + section
    tl.store(ticks + cell, takes.to(tl.int8), mask=takes)


@triton.jit
def tick_beyond(
    values, valid, valid_rows, valid_layers, low, high, ticks, inputs, layers, width,
    BELOW: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Tick off neurons above their range for one of a few inputs, and with ``BELOW`` those below it too."""
    neuron, value, takes, _ = some_rows(values, valid, valid_rows, valid_layers, inputs, layers, width, ROWS, BLOCK)
    inside = neuron < layers * width
    bottom = tl.load(low + neuron, mask=inside, other=0.0).to(tl.float64)[None, :]
    top = tl.load(high + neuron, mask=inside, other=0.0).to(tl.float64)[None, :]
    # A neuron never reached in training has no range to be beyond.
    takes = takes & (bottom <= top)
    above = tl.max((takes & (value > top)).to(tl.int32), axis=0)
    below = tl.max((takes & (value < bottom)).to(tl.int32), axis=0)
    if BELOW:
        # Cell 0 stands for nothing, 1 for above and 2 for below.
        tl.store(ticks + neuron.to(tl.int64) * 3 + 1, above.to(tl.int8), mask=above != 0)
        tl.store(ticks + neuron.to(tl.int64) * 3 + 2, below.to(tl.int8), mask=below != 0)
    else:
        tl.store(ticks + neuron, above.to(tl.int8), mask=above != 0)


@triton.jit
def keep_taken(old, new, taken, size, BLOCK: tl.constexpr):
    """Overwrite the matrix of each layer that is taken; of the others nothing is read."""
    layer = tl.program_id(1).to(tl.int64)
    if tl.load(taken + layer) != 0:
        place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        inside = place < size
        tl.store(old + layer * size + place, tl.load(new + layer * size + place, mask=inside, other=0.0), mask=inside)


@triton.jit
def centred_rows(
    values, valid, valid_rows, valid_layers, mean, rows, inputs, layers, width, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """Outputs of a few inputs less the batch's mean, in float64, and 0 for what does not take part."""
    neuron, value, takes, _ = some_rows(values, valid, valid_rows, valid_layers, inputs, layers, width, ROWS, BLOCK)
    row = tl.program_id(1).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = neuron < layers * width
    centre = tl.load(mean + neuron, mask=inside, other=0.0)[None, :]
    apart = tl.where(takes, value - centre, 0.0)
    here = (row < inputs)[:, None] & inside[None, :]
    tl.store(rows + row[:, None] * layers * width + neuron[None, :], apart, mask=here)
