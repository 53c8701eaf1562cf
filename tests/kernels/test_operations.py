"""Kernels against the plain form, on a CPU in Triton's interpreter and on a GPU where there is one."""

import subprocess
import sys

import pytest
import torch

from neuralcov.criteria.nlc.covariance_norm import absolute_growth_in_tiles
from neuralcov.criteria.surprise.nearest import prepared
from neuralcov.kernels.operations import absolute_growth, row_means, split_rows, triton_available, triton_installed

CHECK = """
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
