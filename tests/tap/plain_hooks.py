"""What plain hooks see of a model, and NLC of it by NumPy."""

import numpy as np
import torch


def outputs(model, given, modules):
    """What modules returned, by plain hooks, in NumPy."""
    found, handles = {}, []
    for name in modules:
        module = model.get_submodule(name)
        handles.append(
            module.register_forward_hook(lambda _, __, out, n=name: found.update({n: out.numpy().astype(np.float64)}))
        )
    with torch.no_grad():
        model(**given)
    for handle in handles:
        handle.remove()
    return found


def mean_of_tokens(values, mask):
    if values.ndim == 2:
        return values
    weights = np.ones(values.shape[:2]) if mask is None else mask.double().numpy()
    return (values * weights[:, :, None]).sum(1) / weights.sum(1, keepdims=True)


def nlc(rows):
    return np.abs(np.cov(rows.T, bias=True)).sum() / rows.shape[1] ** 2
