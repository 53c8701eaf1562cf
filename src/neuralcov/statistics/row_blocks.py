"""Rows of training inputs in blocks of about 1 GiB: in memory as far as a budget goes, further ones on disk."""

from __future__ import annotations

import torch
from torch import Tensor

from neuralcov.core.shapes import Shaped
from neuralcov.core.spill import reserved

BLOCK_BYTES = 1 << 30

Blocks = tuple[Shaped[Tensor, "_ ..."], ...]


def with_rows(blocks: Blocks, rows: Shaped[Tensor, "_ ..."], budget: int) -> Blocks:
    """Return blocks with further rows behind them; a whole block that exceeds ``budget`` bytes goes to disk."""
    joined, small = _split_small(blocks)
    small.append(rows)
    if sum(part.nbytes for part in small) < BLOCK_BYTES:
        return (*joined, *small)
    block = torch.cat(small)
    resident = sum(part.nbytes for part in joined)
    return (*joined, block if resident + block.nbytes <= budget else _on_disk(block))


def whole_blocks(blocks: Blocks) -> Blocks:
    """Return the same rows, those that came last joined to one block."""
    joined, small = _split_small(blocks)
    return (*joined, torch.cat(small)) if len(small) > 1 else blocks


def _split_small(blocks: Blocks) -> tuple[list[Tensor], list[Tensor]]:
    """Return whole blocks, and the batches behind them that do not make one yet."""
    count = 0
    while count < len(blocks) and blocks[count].nbytes >= BLOCK_BYTES:
        count += 1
    return list(blocks[:count]), list(blocks[count:])


def _on_disk(block: Tensor) -> Tensor:
    """Write the block to a temporary file that goes when nothing refers to it any more."""
    rows = block.cpu().numpy()
    mapped = reserved(rows.shape, rows.dtype, "rows")
    mapped[:] = rows
    return torch.from_numpy(mapped)
