"""Every setting's states fit the form that files are checked against, and other forms are refused."""

import pytest
import torch

import neuralcov as nc
from neuralcov.core.container import StoredTensor
from neuralcov.core.errors import StateFileError
from neuralcov.core.layout import Layout
from neuralcov.core.records import flatten
from neuralcov.core.templates import require_form
from neuralcov.statistics.moments import LayerMoments
from tests.golden import subjects

SETTINGS = subjects.settings()


def listed(tensors):
    return {name: StoredTensor(tensor.dtype, tuple(tensor.shape), 0, 0, None) for name, tensor in tensors.items()}


def taught(criterion):
    coverage = nc.Coverage.of_layers(subjects.WIDTHS, [criterion])
    if criterion.learns:
        coverage.calibrate(activations=subjects.activations(subjects.arrays(1, 60)))
    return coverage.criteria[0]


@pytest.mark.parametrize("name", SETTINGS)
def test_states_of_every_setting_have_the_form(name):
    criterion, layout = taught(SETTINGS[name]), Layout(subjects.WIDTHS)
    bare, batch = layout.to("meta"), subjects.activations(subjects.arrays(3, 24, 1.2))
    form, empty = criterion.template(bare), criterion.init(bare)
    state = criterion.init(layout)
    for rows in (None, slice(0, 1), slice(0, 24)):
        if rows is not None:
            state = criterion.observe(state, batch.take(rows))
        tensors = {}
        structure = flatten(state, "s", tensors)
        require_form(structure, form, empty, listed(tensors), "s")
        for path, tensor in tensors.items():
            longer = torch.empty((*tensor.shape, 2), dtype=tensor.dtype)
            with pytest.raises(StateFileError, match="has shape"):
                require_form(structure, form, empty, listed({**tensors, path: longer}), "s")


def test_a_form_of_the_meta_device_takes_no_memory():
    huge = Layout({"a": 10**5, "b": 10**5}, "meta")
    form = LayerMoments.empty(2, 10**5, huge.device)
    assert form.scatter.is_meta
    assert form.scatter.nbytes == 16 * 10**10


def test_a_part_that_is_left_out_is_one_that_may_be_missing():
    """Found by the loop of damaged files: what LCC keeps with its kinds was gone, and reading the value broke."""
    criterion, layout = taught(nc.LCC()), Layout(subjects.WIDTHS)
    bare = layout.to("meta")
    tensors = {}
    structure = flatten(criterion.init(layout), "s", tensors)
    del structure["fields"]["seen"]["fields"]["marks"]
    with pytest.raises(StateFileError, match=r"s\.seen lacks the field 'marks'"):
        require_form(structure, criterion.template(bare), criterion.init(bare), listed(tensors), "s")
    # TKNP keeps no marks.
    structure = flatten(nc.TKNP(2).init(layout), "s", tensors := {})
    del structure["fields"]["seen"]["fields"]["marks"]
    require_form(structure, nc.TKNP(2).template(bare), nc.TKNP(2).init(bare), listed(tensors), "s")
