"""Means over the tokens that are no padding, by hand and as measured."""

import warnings

import torch

import neuralcov as nc

B = 3


def outputs_of(model, names, call):
    """What modules return in one pass, by name."""
    found, handles = {}, []
    for name in names:
        module = model.get_submodule(name)

        def keep(module, args, output, name=name):
            found[name] = (output[0] if isinstance(output, tuple) else output).detach().clone()

        handles.append(module.register_forward_hook(keep))
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad():
            call(model.eval())
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        for handle in handles:
            handle.remove()
    return found


def masked_mean(output, tokens):
    """Row by row, the mean over an input's own tokens."""
    return torch.stack([rows[keep.bool()].mean(0) for rows, keep in zip(output, tokens, strict=True)])


def tokens_of(lengths, width):
    return torch.arange(width) < torch.tensor(lengths)[:, None]


def measure(model, inputs, quiet=True, **options):
    coverage = nc.Coverage(model, [nc.NC()], **options)
    with warnings.catch_warnings():
        if quiet:
            warnings.simplefilter("error", nc.CoverageWarning)
        activations, _ = coverage.run(inputs, predictions=False)
        if quiet:
            coverage.update(activations=activations)
            coverage.values()
    return activations.layers, coverage


def check(layers, outputs, tokens_by_prefix):
    """Every layer against the plain mean; the longest prefix of its name says which tokens it has."""
    for name, values in layers.items():
        prefix = max((p for p in tokens_by_prefix if name.startswith(p)), key=len)
        tokens, output = tokens_by_prefix[prefix], outputs[name]
        if output.dim() == 2:
            expected = output
        elif output.dim() == 4:
            expected = output.flatten(2).mean(2)
        else:
            expected = output.mean(1) if tokens is None else masked_mean(output, tokens)
        torch.testing.assert_close(values, expected, msg=lambda text, name=name: f"{name}: {text}")


def make_seed():
    torch.manual_seed(0)


def ids(width, rows=B):
    return torch.randint(1, 20, (rows, width))
