"""Kernels in Triton's own language. Imported only where Triton is installed; see kernels.py."""
# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, N803 - Triton reads this source: arguments are pointers and numbers of the device

import triton
import triton.language as tl


@triton.jit
def absolute_growth(
    scatter,
    scale,
    apart,
    rows,
    columns,
    partial,
    width,
    inputs,
    layers,
    tiles,
    BLOCK: tl.constexpr,
    CANDIDATES: tl.constexpr,
):
    """Of one tile of one layer, for a few inputs: the sum of |sigma + d_i d_j| - |sigma|."""
    tile, part, layer = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    row, column = tl.load(rows + tile), tl.load(columns + tile)
    i = row * BLOCK + tl.arange(0, BLOCK)
    j = column * BLOCK + tl.arange(0, BLOCK)
    inside = (i < width)[:, None] & (j < width)[None, :]
    place = layer.to(tl.int64) * width * width + i[:, None] * width + j[None, :]
    sigma = tl.load(scatter + place, mask=inside, other=0.0) * tl.load(scale + layer)
    before = tl.abs(sigma)
    # Off the diagonal a tile stands for its mirror image too.
    weight = tl.where(row == column, 1.0, 2.0)
    for step in range(CANDIDATES):
        candidate = part * CANDIDATES + step
        if candidate < inputs:
            base = (candidate.to(tl.int64) * layers + layer) * width
            left = tl.load(apart + base + i, mask=i < width, other=0.0)
            right = tl.load(apart + base + j, mask=j < width, other=0.0)
            moved = sigma + left[:, None] * right[None, :]
            total = tl.sum(tl.sum(tl.abs(moved) - before, axis=1), axis=0) * weight
            tl.store(partial + (layer.to(tl.int64) * tiles + tile) * inputs + candidate, total)


@triton.jit
def judge(tiles, layer_of, row_of, column_of, widths, starts, count, mean, values, partial, BLOCK: tl.constexpr):
    """Of one tile, the sum of absolute entries if the input were taken: scatter + n/(n+1) d d^T."""
    tile = tl.program_id(0)
    layer, row, column = tl.load(layer_of + tile), tl.load(row_of + tile), tl.load(column_of + tile)
    width, start = tl.load(widths + layer), tl.load(starts + layer)
    left, right, weight = distances(row, column, width, start, mean, values, BLOCK)
    n = tl.load(count + layer)
    inside = tl.arange(0, BLOCK)
    place = tile.to(tl.int64) * BLOCK * BLOCK + inside[:, None] * BLOCK + inside[None, :]
    moved = tl.load(tiles + place) + (n / (n + 1)) * left[:, None] * right[None, :]
    tl.store(partial + tile, tl.sum(tl.sum(tl.abs(moved), axis=1), axis=0) * weight)


@triton.jit
def weigh(first_tile, tile_count, widths, count, norm, partial, counts_here, gain, fresh_norm, BLOCK: tl.constexpr):
    """Of one layer, what the input would gain it, from the tiles' sums."""
    layer = tl.program_id(0)
    first, tiles = tl.load(first_tile + layer), tl.load(tile_count + layer)
    total = tl.zeros([BLOCK], dtype=tl.float64)
    for start in range(0, tiles, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(partial + first + at, mask=at < tiles, other=0.0)
    after = tl.sum(total, axis=0)
    n, width = tl.load(count + layer), tl.load(widths + layer).to(tl.float64)
    change = (after / (n + 1) - tl.load(norm + layer) / n) / (width * width)
    there = tl.load(counts_here + layer)
    tl.store(gain + layer, tl.where(there != 0, change, 0.0))
    tl.store(fresh_norm + layer, after)


@triton.jit
def take(
    tiles,
    layer_of,
    row_of,
    column_of,
    widths,
    starts,
    count,
    mean,
    values,
    gain,
    counts_here,
    min_gain,
    layers,
    GROWING: tl.constexpr,
    BLOCK: tl.constexpr,
    LAYERS: tl.constexpr,
):
    """Add the input to one tile, if it is admitted and the layer takes it."""
    tile = tl.program_id(0)
    layer, row, column = tl.load(layer_of + tile), tl.load(row_of + tile), tl.load(column_of + tile)
    if taken(gain, counts_here, layer, min_gain, layers, GROWING, LAYERS):
        width, start = tl.load(widths + layer), tl.load(starts + layer)
        left, right, _ = distances(row, column, width, start, mean, values, BLOCK)
        n = tl.load(count + layer)
        inside = tl.arange(0, BLOCK)
        place = tile.to(tl.int64) * BLOCK * BLOCK + inside[:, None] * BLOCK + inside[None, :]
        tl.store(tiles + place, tl.load(tiles + place) + (n / (n + 1)) * left[:, None] * right[None, :])


@triton.jit
def settle(
    widths,
    starts,
    count,
    mean,
    values,
    norm,
    fresh_norm,
    gain,
    counts_here,
    admitted,
    min_gain,
    layers,
    GROWING: tl.constexpr,
    BLOCK: tl.constexpr,
    LAYERS: tl.constexpr,
):
    """Of one layer, move mean, count and norm on if it takes the input; the first layer notes the admission."""
    layer = tl.program_id(0)
    if layer == 0:
        tl.store(admitted, (total_gain(gain, layers, GROWING, LAYERS) > tl.load(min_gain)).to(tl.int8))
    if taken(gain, counts_here, layer, min_gain, layers, GROWING, LAYERS):
        n, width, start = tl.load(count + layer), tl.load(widths + layer), tl.load(starts + layer)
        for first in range(0, width, BLOCK):
            at = first + tl.arange(0, BLOCK)
            here = at < width
            old = tl.load(mean + start + at, mask=here, other=0.0)
            new = tl.load(values + start + at, mask=here, other=0.0)
            tl.store(mean + start + at, old + (new - old) / (n + 1), mask=here)
        tl.store(norm + layer, tl.load(fresh_norm + layer))
        tl.store(count + layer, n + 1)


@triton.jit
def distances(row, column, width, start, mean, values, BLOCK: tl.constexpr):
    """The input's distance from the mean along a tile's rows and columns, and how often the tile counts."""
    i, j = row * BLOCK + tl.arange(0, BLOCK), column * BLOCK + tl.arange(0, BLOCK)
    up, along = i < width, j < width
    left = tl.load(values + start + i, mask=up, other=0.0) - tl.load(mean + start + i, mask=up, other=0.0)
    right = tl.load(values + start + j, mask=along, other=0.0) - tl.load(mean + start + j, mask=along, other=0.0)
    return left, right, tl.where(row == column, 1.0, 2.0)


@triton.jit
def total_gain(gain, layers, GROWING: tl.constexpr, LAYERS: tl.constexpr):
    """The input's gain over all layers; under the growing rule losses do not count."""
    at = tl.arange(0, LAYERS)
    every = tl.load(gain + at, mask=at < layers, other=0.0)
    if GROWING:
        every = tl.where(every > 0, every, 0.0)
    return tl.sum(every, axis=0)


@triton.jit
def taken(gain, counts_here, layer, min_gain, layers, GROWING: tl.constexpr, LAYERS: tl.constexpr):
    """Whether the layer takes the input."""
    takes = (total_gain(gain, layers, GROWING, LAYERS) > tl.load(min_gain)) & (tl.load(counts_here + layer) != 0)
    if GROWING:
        takes = takes & (tl.load(gain + layer) > 0)
    return takes


@triton.jit
def row_means(values, means, rows, length, ROWS: tl.constexpr, LENGTH: tl.constexpr):
    """Means of a few rows of a contiguous matrix, added up in float32."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros([ROWS, LENGTH], dtype=tl.float32)
    for start in range(0, length, LENGTH):
        column = start + tl.arange(0, LENGTH)
        inside = (row < rows)[:, None] & (column < length)[None, :]
        place = values + row[:, None] * length + column[None, :]
        total += tl.load(place, mask=inside, other=0.0).to(tl.float32)
    tl.store(means + row, tl.sum(total, axis=1) / length, mask=row < rows)


@triton.jit
def split_rows(rows, centre, wide, squares, count, width, part, LEFT: tl.constexpr, BLOCK: tl.constexpr):
    """One row less the centre as bfloat16 h and the rest l: h h l for a left operand, h l h for a right one.

    Each is ``part`` wide, with zeros beyond the row's width; rows beyond ``count`` are all zeros.
    """
    row = tl.program_id(0).to(tl.int64)
    place = wide + 3 * row * part
    length = tl.where(row < count, width, 0)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, part, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < length
        within = column < part
        apart = tl.load(rows + row * width + column, mask=inside, other=0.0)
        apart -= tl.load(centre + column, mask=inside, other=0.0)
        high = apart.to(tl.bfloat16)
        low = (apart - high.to(tl.float32)).to(tl.bfloat16)
        tl.store(place + column, high, mask=within)
        tl.store(place + part + column, high if LEFT else low, mask=within)
        tl.store(place + 2 * part + column, low if LEFT else high, mask=within)
        total += apart * apart
    tl.store(squares + row, tl.sum(total, axis=0), mask=row < count)


@triton.jit
def find_flipped(table, entries, keys, words, signs, valid, at, found, width, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    """For one input and some neurons, where the key with that neuron's sign flipped stands in a sorted table."""
    row = tl.program_id(0).to(tl.int64)
    neuron = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = neuron < width
    word = tl.load(words + 2 * neuron, mask=inside, other=0)
    positive = tl.load(signs + row * width + neuron, mask=inside, other=0)
    wanted = tl.load(keys + 2 * row) + tl.where(positive != 0, -word, word)
    low = tl.zeros([BLOCK], dtype=tl.int32)
    high = tl.zeros([BLOCK], dtype=tl.int32) + entries
    for _ in range(STEPS):
        middle = (low + high) // 2
        less = (tl.load(table + 2 * middle.to(tl.int64), mask=middle < entries, other=0) < wanted) & (low < high)
        low = tl.where(less, middle + 1, low)
        high = tl.where(less, high, middle)
    there = low < entries
    match = there & (tl.load(table + 2 * low.to(tl.int64), mask=there, other=0) == wanted) & (tl.load(valid + row) != 0)
    tl.store(at + row * width + neuron, tl.where(there, low, 0), mask=inside)
    tl.store(found + row * width + neuron, match.to(tl.int8), mask=inside)


@triton.jit
def mark_shown(
    found,
    at,
    table,
    keys,
    words,
    signs,
    group_of_input,
    group_of_entry,
    every,
    some,
    shown,
    width,
    size,
    BLOCK: tl.constexpr,
):
    """Of one input and some neurons: what differs from the group with that neuron flipped, where there is one."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    neuron = part.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    cell = row * width + neuron
    hit = tl.load(found + cell, mask=neuron < width, other=0) != 0
    if tl.sum(hit.to(tl.int32)) > 0:
        entry = tl.load(at + cell, mask=hit, other=0).to(tl.int64)
        word = tl.load(words + 2 * neuron + 1, mask=hit, other=0)
        positive = tl.load(signs + cell, mask=hit, other=0) != 0
        wanted = tl.load(keys + 2 * row + 1) + tl.where(positive, -word, word)
        # Entries were looked up by their first words; the second settles it.
        hit = hit & (tl.load(table + 2 * entry + 1, mask=hit, other=0) == wanted)
        one = tl.load(group_of_input + row) * size
        other = tl.load(group_of_entry + entry, mask=hit, other=0) * size
        for place in range(size):
            any_of = tl.load(some + one + place) | tl.load(some + other + place, mask=hit, other=0)
            all_of = tl.load(every + one + place) & tl.load(every + other + place, mask=hit, other=0)
            differs = any_of & ~all_of
            tl.atomic_or(shown + neuron * size + place, differs, mask=hit & (differs != 0))


@triton.jit
def absorb_rows(group_of_input, every_of, some_of, every, some, size, BLOCK: tl.constexpr):
    """Of one input: AND and OR of its bits into those of its group."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    place = part * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    target = tl.load(group_of_input + row) * size + place
    tl.atomic_and(every + target, tl.load(every_of + row * size + place, mask=inside, other=0), mask=inside)
    tl.atomic_or(some + target, tl.load(some_of + row * size + place, mask=inside, other=0), mask=inside)


@triton.jit
def mixed(words):
    """SplitMix64 of seeds, as unsigned words."""
    words = words + 0x9E3779B97F4A7C15
    words = (words ^ (words >> 30)) * 0xBF58476D1CE4E5B9
    words = (words ^ (words >> 27)) * 0x94D049BB133111EB
    return words ^ (words >> 31)


@triton.jit
def kind_keys(
    projections,
    mean,
    std,
    offset,
    begin,
    classes,
    boxes,
    kinds,
    resolution,
    batch,
    DECISIONS: tl.constexpr,
    DIRECTIONS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Of one layer, for some inputs: cut the projections, then mix the steps and the class into the layer's words."""
    layer = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = row < batch
    one = (tl.load(begin + 2 * layer) + tl.zeros([BLOCK], dtype=tl.int64)).to(tl.uint64, bitcast=True)
    two = (tl.load(begin + 2 * layer + 1) + tl.zeros([BLOCK], dtype=tl.int64)).to(tl.uint64, bitcast=True)
    place = (layer * batch + row) * DIRECTIONS
    for j in range(DIRECTIONS):
        spread = tl.load(std + layer * DIRECTIONS + j)
        apart = tl.load(projections + place + j, mask=inside, other=0.0) - tl.load(mean + layer * DIRECTIONS + j)
        scaled = tl.load(resolution) * apart / tl.where(spread > 0, spread, 1.0)
        steps = tl.floor(scaled + tl.load(offset + layer * DIRECTIONS + j))
        steps = tl.minimum(tl.maximum(steps, -2147483648.0), 2147483648.0)
        step = tl.where(spread > 0, steps, 0.0).to(tl.int64).to(tl.uint64, bitcast=True)
        one, two = mixed(one ^ step), mixed(two ^ step)
    to = 2 * (layer * batch + row)
    tl.store(boxes + to, one.to(tl.int64, bitcast=True), mask=inside)
    tl.store(boxes + to + 1, two.to(tl.int64, bitcast=True), mask=inside)
    if DECISIONS:
        chosen = (tl.load(classes + row, mask=inside, other=0) + 1).to(tl.uint64, bitcast=True)
        one, two = one ^ chosen, two ^ chosen
    tl.store(kinds + to, mixed(one).to(tl.int64, bitcast=True), mask=inside)
    tl.store(kinds + to + 1, mixed(two).to(tl.int64, bitcast=True), mask=inside)
