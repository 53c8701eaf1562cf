"""Kernels against the plain form, on a CPU in Triton's interpreter and on a GPU where there is one."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch

import neuralcov as nc
from neuralcov.core.activations import Stack
from neuralcov.criteria.cell_hits import CellOfNeuron, NeuronMarks
from neuralcov.criteria.nlc.covariance_norm import absolute_growth_in_tiles
from neuralcov.criteria.surprise.nearest import prepared
from neuralcov.kernels.operations import (
    absolute_growth,
    middle_means,
    row_means,
    split_rows,
    triton_available,
    triton_installed,
)
from neuralcov.kernels.stacks import all_finite, centred_rows, keep_taken, zero_rows
from neuralcov.statistics.ranges import NeuronRanges

CHECK = """
import dataclasses
import torch
from neuralcov.kernels.operations import absolute_growth
from neuralcov.criteria.nlc.covariance_norm import absolute_growth_in_tiles
generator = torch.Generator().manual_seed(0)
for layers, width, inputs in ((1, 1, 1), (2, 7, 3), (1, 64, 17), (1, 130, 5)):
    rows = torch.randn(layers, 9, width, dtype=torch.float64, generator=generator)
    scatter = rows.mT @ rows
    scale = torch.rand(layers, dtype=torch.float64, generator=generator) + 1
    apart = 3 * torch.randn(inputs, layers, width, dtype=torch.float64, generator=generator)
    torch.testing.assert_close(absolute_growth(scatter, scale, apart), absolute_growth_in_tiles(scatter, scale, apart))

from neuralcov.kernels.operations import find_flipped, row_means, split_rows
for count, width in ((1, 1), (5, 7), (3, 2500)):
    rows, centre = torch.randn(count, width, generator=generator), torch.randn(width, generator=generator)
    for left in (True, False):
        wide, squares = split_rows(rows, centre, left=left)
        assert wide.shape == (count if left else -(-count // 8) * 8, 3 * -(-width // 8) * 8)
        assert not wide[count:].any() and not torch.stack(wide.chunk(3, dim=1))[:, :, width:].any()
        one, two, three = (part[:count, :width] for part in wide.float().chunk(3, dim=1))
        high, low = (one, three) if left else (one, two)
        assert torch.equal(two if left else three, high)
        # The interpreter cuts digits off where a GPU rounds.
        torch.testing.assert_close(high + low, rows - centre, rtol=2**-15, atol=0)
        torch.testing.assert_close(squares, (rows - centre).square().sum(1))
for shape in ((3, 5, 1), (2, 7, 16), (1, 3, 3000), (70, 9, 49)):
    rows = torch.randn(shape, generator=generator)
    torch.testing.assert_close(row_means(rows), rows.mean(-1))
for entries, inputs, width in ((1, 1, 1), (37, 5, 300)):
    words = torch.randint(-4, 5, (width, 2), generator=generator)
    table = torch.randint(-20, 20, (entries, 2), generator=generator)
    table = table[table[:, 0].argsort()].contiguous()
    keys = torch.randint(-20, 20, (inputs, 2), generator=generator)
    signs = torch.rand(inputs, width, generator=generator) < 0.5
    valid = torch.arange(inputs) % 3 > 0
    at, found = find_flipped(table, keys, words, signs, valid)
    wanted = keys[:, :1] + torch.where(signs, -words[:, 0], words[:, 0])
    expected = torch.searchsorted(table[:, 0].contiguous(), wanted)
    there = (table[expected.clamp(max=entries - 1), 0] == wanted) & valid[:, None]
    assert torch.equal(found, there)
    assert torch.equal(at[there].long(), expected[there])

import neuralcov as nc
from neuralcov.criteria.nlc.admission import admit_one_by_one
from neuralcov.core.criterion import Criterion
widths = {"a": 5, "b": 70, "c": 5}
def batch(size):
    return nc.Activations({n: torch.randn(size, w, generator=generator) for n, w in widths.items()})
for rule in ("growing", "all"):
    criterion = nc.NLC(rule=rule)
    state = criterion.observe(criterion.init(batch(1).layout), batch(6))
    more = batch(9)
    more.layers["b"][4, 2] = torch.nan
    more = nc.Activations(more.layers, present={"a": torch.arange(9) % 4 > 0})
    for min_gain in (0.0, 0.02):
        moments = tuple(group.moments for group in state.classes[0])
        taken, after, spreads = admit_one_by_one(moments, more, growing=rule == "growing", min_gain=min_gain)
        expected, plain = Criterion.admit(criterion, state, more, min_gain=min_gain)
        assert taken.tolist() == expected.tolist(), (rule, min_gain, taken, expected)
        assert 0 < taken.sum() < 9
        for ours, theirs, found in zip(after, plain.classes[0], spreads):
            torch.testing.assert_close(ours.scatter, theirs.moments.scatter)
            torch.testing.assert_close(ours.mean, theirs.moments.mean)
            assert ours.count.tolist() == theirs.moments.count.tolist()
            if rule == "growing":
                torch.testing.assert_close(found, theirs.spread)

import neuralcov.criteria.ss.signs as signs
from neuralcov.kernels.hashing import lexical_orders
from neuralcov.kernels.hashing import ordered_together
for widths in ({"a": 3, "b": 70, "c": 2}, {"a": 9, "b": 2, "c": 200, "d": 1}):
    def suite(size):
        rows = {n: torch.randn(size, w, generator=generator).round() for n, w in widths.items()}
        rows["b"][:, 0] = 1.0  # follows nothing, since it never changes
        rows["c"][:, -1] = -1.0
        return nc.Activations(rows, present={"b": torch.arange(size) % 7 > 0})
    first, second, third = suite(40), suite(30), suite(1)
    criterion, values = nc.SS(), []
    for kernels in (False, True):
        signs.usable = lambda device, kernels=kernels: kernels
        signs.lexical_orders = ordered_together if kernels else lexical_orders
        state = criterion.observe(criterion.observe(criterion.init(first.layout), first), second)
        other = criterion.observe(criterion.init(first.layout), third)
        for one in (state, criterion.merge(other, state), criterion.merge(state, other)):
            values.append([torch.cat([p.keys, p.every, p.some], 1) for p in one.pairs] + [p.shown for p in one.pairs])
            assert sum(int(p.count_shown()) for p in one.pairs) > 0
    for plain, fast in zip(values[:3], values[3:]):
        assert all(torch.equal(a, b) for a, b in zip(plain, fast))
# Two inputs that are neighbours, one after the other: whichever comes second has to find the first.
low, high = (nc.Activations({"a": torch.tensor([[s, -1.0]]), "b": torch.tensor([[s, 1.0]])}) for s in (-1.0, 1.0))
for first, second in ((low, high), (high, low)):
    state = criterion.observe(criterion.observe(criterion.init(low.layout), first), second)
    assert float(criterion.value(state)) == 1 / 4
from neuralcov.criteria.lcc import boxes
from neuralcov.kernels.operations import kind_keys_fused
for directions, decided in ((8, True), (3, False)):
    projections = 5 * torch.randn(4, 150, directions, dtype=torch.float64)
    projections[0, 0, 0] = 1e300
    cuts = [torch.randn(4, directions).double(), torch.rand(4, directions).double(), torch.rand(4, directions).double()]
    cuts[1][1, 0] = cuts[1][2] = 0
    begin = boxes.starts(("a", "b", "c", "d"), 3, torch.device("cpu"))
    classes = torch.randint(-2, 1000, (150,)) if decided else None
    plain = boxes.boxes_and_kinds(projections, 0.35, cuts, begin, classes)
    fused = kind_keys_fused(projections, 0.35, *cuts, begin, classes)
    assert all(torch.equal(a, b) for a, b in zip(plain, fused))

from neuralcov.kernels.operations import middle_means
for shape in ((3, 5, 1), (2, 1, 7), (1, 70, 130), (5, 49, 64)):
    for dtype in (torch.float32, torch.bfloat16):
        values = torch.randn(shape, generator=generator).to(dtype)
        torch.testing.assert_close(middle_means(values), values.float().mean(1))
from neuralcov.core.activations import Stack
from neuralcov.criteria.cell_hits import CellOfNeuron, NeuronMarks
from neuralcov.statistics.ranges import NeuronRanges
for layers, width, inputs, dtype in ((1, 1, 1, torch.float32), (3, 70, 37, torch.float32), (2, 200, 5, torch.float64)):
    values = torch.randn(inputs, layers, width, generator=generator, dtype=dtype)
    values[:, -1, 0] = values[0, -1, 0]
    values[0] = values[0, :1, :1]
    low, high = (torch.randn(layers, width, generator=generator).double() for _ in range(2))
    low[0, 0], high[0, 0] = torch.inf, -torch.inf
    high[-1, -1], low[-1, -1] = values[-1, -1, -1], values[-1, -1, -1] - 1
    valid = torch.rand(inputs, layers, generator=generator) < 0.8
    stack = Stack(values.masked_fill(~valid[:, :, None], 0), valid, names=("a",) * layers)
    for criterion in (nc.NC(0.6), nc.NC(0.0), nc.KMNC(10), nc.KMNC(3), nc.NBC(), nc.SNAC()):
        if criterion.learns:
            criterion = dataclasses.replace(criterion, learnt=NeuronRanges((low,), (high,)))
        shape = (layers, width) if criterion.cells == 1 else (layers, width, 1 + criterion.cells)
        ticks = torch.rand(shape, generator=generator) < 0.1
        if criterion.cells > 1:
            ticks[..., 0] = True
        expected = ticks.clone()
        hits = criterion.hits(stack).masked_fill(~valid[:, :, None], 0)
        (NeuronMarks(hits) if criterion.cells == 1 else CellOfNeuron(hits, criterion.cells)).cover(expected)
        assert criterion.tick(stack, ticks), criterion.name
        assert torch.equal(ticks, expected), criterion.name
        assert inputs == 1 or int(ticks.sum()) > 0
    from neuralcov.kernels.stacks import centred_rows, keep_taken
    rows, mean = torch.full((inputs + 1, layers, width), 7.0, dtype=torch.float64), low.clamp(max=3)
    centred_rows(stack.values, valid, mean, rows)
    assert torch.equal(rows[:-1], (stack.values.double() - mean).masked_fill(~valid[:, :, None], 0))
    assert (rows[-1] == 7).all()
    old, new = torch.randn(layers, width, width).double(), torch.randn(layers, width, width).double()
    taken = torch.arange(layers) % 2 > 0
    expected = torch.where(taken[:, None, None], new, old)
    keep_taken(old, new, taken)
    assert torch.equal(old, expected)
from neuralcov.core import sanitise
for dtype in (torch.float32, torch.float64):
    layers = {"a": torch.randn(9, 5), "b": torch.randn(9, 70), "c": torch.randn(9, 5)}
    layers = {name: outputs.to(dtype) for name, outputs in layers.items()}
    layers["b"][3, 2], layers["a"][5, 0], layers["c"][7, 4] = torch.nan, torch.inf, -torch.inf
    layers["c"][8, 1] = 3e38 if dtype == torch.float32 else -1e200
    for present in ({}, {"a": torch.arange(9) % 4 > 0, "b": torch.arange(9) != 3}):
        found = []
        for run_on in (lambda device: False, lambda device: True):
            sanitise.kernels.run_on = run_on
            batch = nc.Activations({n: o.clone() for n, o in layers.items()}, present=present)
            found.append((batch.finite, [(s.values, s.valid, s.least, s.most) for s in batch.stacks]))
        assert torch.equal(found[0][0], found[1][0]) and 0 < int(found[0][0].sum()) < 9
        for one, other in zip(found[0][1], found[1][1]):
            assert torch.equal(one[0], other[0]) and torch.equal(one[1], other[1])
print("kernels agree")
"""


@pytest.mark.skipif(
    not triton_installed() or torch.cuda.is_available(), reason="needs triton, and no GPU, where kernels are compiled"
)
def test_interpreted_kernels_agree_with_the_plain_form():
    environment = {"TRITON_INTERPRET": "1", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", CHECK], capture_output=True, text=True, env=environment)
    assert done.stdout.strip() == "kernels agree", done.stderr


@pytest.mark.gpu
@pytest.mark.skipif(
    not triton_available(torch.device("cuda" if torch.cuda.is_available() else "cpu")), reason="needs a GPU"
)
def test_compiled_kernels_agree_with_the_plain_form(monkeypatch):
    for count, width in ((1, 1), (37, 2500), (40, 2504)):
        rows, centre = torch.randn(count, width, device="cuda"), torch.randn(width, device="cuda")
        for left in (True, False):
            wide, squares = split_rows(rows, centre, left=left)
            with monkeypatch.context() as patch:
                patch.setattr("neuralcov.criteria.surprise.nearest.triton_available", lambda _: False)
                plain, lengths = prepared(rows, centre, left=left)
            assert torch.equal(wide, plain)
            torch.testing.assert_close(squares, lengths)
    for layers, width, inputs in ((1, 1, 1), (3, 100, 33), (2, 700, 5000)):
        rows = torch.randn(layers, 50, width, dtype=torch.float64, device="cuda")
        scatter = rows.mT @ rows
        scale = torch.rand(layers, dtype=torch.float64, device="cuda") + 1
        apart = 3 * torch.randn(inputs, layers, width, dtype=torch.float64, device="cuda")
        expected = absolute_growth_in_tiles(scatter, scale, apart)
        torch.testing.assert_close(absolute_growth(scatter, scale, apart), expected, rtol=1e-12, atol=1e-9)
    for shape in ((3, 5, 1), (1000, 70, 16), (1, 3, 3000), (70, 9, 49)):
        rows = torch.randn(shape, device="cuda")
        torch.testing.assert_close(row_means(rows), rows.mean(-1))
    from neuralcov.criteria.lcc import boxes

    projections = 5 * torch.randn(4, 1500, 8, dtype=torch.float64, device="cuda")
    cuts = [torch.rand(4, 8, dtype=torch.float64, device="cuda") for _ in range(3)]
    begin, classes = boxes.starts(tuple("abcd"), 3, projections.device), torch.randint(0, 9, (1500,), device="cuda")
    fused = boxes.boxes_and_kinds(projections, 0.35, cuts, begin, classes)
    with monkeypatch.context() as patch:
        patch.setattr(boxes, "triton_available", lambda _: False)
        plain = boxes.boxes_and_kinds(projections, 0.35, cuts, begin, classes)
    assert all(torch.equal(a, b) for a, b in zip(plain, fused, strict=True))


@pytest.mark.gpu
@pytest.mark.skipif(
    not triton_available(torch.device("cuda" if torch.cuda.is_available() else "cpu")), reason="needs a GPU"
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_compiled_kernels_of_stacks_agree_with_the_plain_form(dtype):
    """To the last bit: cells are ticked and rows dropped by the same arithmetic."""
    for layers, width, inputs in ((1, 1, 1), (3, 700, 137), (17, 64, 1000)):
        values = torch.randn(inputs, layers, width, device="cuda", dtype=dtype)
        low, high = (torch.randn(layers, width, device="cuda").double() for _ in range(2))
        low[0, 0], high[0, 0] = torch.inf, -torch.inf
        valid = (torch.rand(inputs, device="cuda") < 0.8)[:, None].expand(inputs, layers)
        stack = Stack(values.masked_fill(~valid[:, :, None], 0), valid, names=("a",) * layers)
        for criterion in (nc.NC(0.6), nc.KMNC(100), nc.NBC(), nc.SNAC()):
            if criterion.learns:
                criterion = replace(criterion, learnt=NeuronRanges((low,), (high,)))
            shape = (layers, width) if criterion.cells == 1 else (layers, width, 1 + criterion.cells)
            ticks = torch.zeros(shape, dtype=torch.bool, device="cuda")
            if criterion.cells > 1:
                ticks[..., 0] = True
            expected = ticks.clone()
            hits = criterion.hits(stack).masked_fill(~valid[:, :, None], 0)
            (NeuronMarks(hits) if criterion.cells == 1 else CellOfNeuron(hits, criterion.cells)).cover(expected)
            assert criterion.tick(stack, ticks)
            assert torch.equal(ticks, expected), criterion.name
        rows, mean = torch.empty(inputs + 1, layers, width, dtype=torch.float64, device="cuda"), low.clamp(max=3)
        centred_rows(values, valid, mean, rows)
        assert torch.equal(rows[:-1], (values.double() - mean).masked_fill(~valid[:, :, None], 0))
        ends = torch.randn(inputs, 2 * layers, device="cuda", dtype=dtype)
        ends[inputs // 2, 1], ends[inputs // 3, 0] = torch.nan, torch.inf
        assert torch.equal(all_finite(ends), torch.isfinite(ends).all(1))
        zeroed = values.clone()
        zero_rows(zeroed, valid)
        assert torch.equal(zeroed, stack.values)
    old, new = (torch.randn(5, 300, 300, device="cuda", dtype=torch.float64) for _ in range(2))
    taken = torch.arange(5, device="cuda") % 2 > 0
    expected = torch.where(taken[:, None, None], new, old)
    keep_taken(old, new, taken)
    assert torch.equal(old, expected)
    for shape in ((3, 5, 1), (2, 1, 7), (1, 512, 11008), (300, 1024, 64)):
        for kind in (torch.float32, torch.float16, torch.bfloat16):
            numbers = torch.randn(shape, device="cuda").to(kind)
            torch.testing.assert_close(middle_means(numbers), numbers.float().mean(1), rtol=1e-5, atol=1e-5)
