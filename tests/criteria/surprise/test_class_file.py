import gc

import numpy as np
import pytest
import torch

from neuralcov.criteria.surprise.class_traces import ClassTraces, TracesByClass
from tests.criteria.surprise.support import traces as class_traces
from tests.statistics.test_traces import filled, mapped_files


@pytest.mark.parametrize("by", ["predicted", None])
def test_the_traces_of_every_class_in_their_order(small_blocks, by):
    rows, labels = class_traces(1, 1000)
    before = mapped_files()
    store = filled(rows, labels, budget=1)
    view = ClassTraces(store, ["a"], [6], by, 0.0)
    ordered = TracesByClass(store, view.members)
    for label in view.members:
        own = rows if by is None else rows[labels == label]
        np.testing.assert_array_equal(ordered.of_class(label), own)
        np.testing.assert_array_equal(view.of_class(label), own)
    del store, view, ordered
    gc.collect()
    assert mapped_files() == before


def test_long_pieces_are_written_whole(small_blocks):
    rows = torch.arange(600, dtype=torch.float32).reshape(100, 6).numpy()
    store = filled(rows, np.zeros(100, dtype=np.int64), budget=1)
    view = ClassTraces(store, ["a"], [6], "predicted", 0.0)
    np.testing.assert_array_equal(TracesByClass(store, view.members).of_class(0), rows)
