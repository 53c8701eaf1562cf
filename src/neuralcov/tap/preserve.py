"""Run a model for measurement and leave it exactly as it was: modes, buffers, compilation, fast paths."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import torch
from torch import Tensor, nn


def original_module(model: nn.Module) -> nn.Module:
    """The module behind ``torch.compile`` or a parallel wrapper: hooks added to those would never fire."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


@contextmanager
def preserved(model: nn.Module, mode: str) -> Iterator[None]:
    """Within: eval mode (unless ``mode="keep"``), everything run as modules. Afterwards: as before."""
    training = [(module, module.training) for module in model.modules()]
    buffers = _remember_buffers(model)
    fast_path = torch.backends.mha.get_fastpath_enabled()
    with ExitStack() as stack:
        if "torch._dynamo" in sys.modules:
            # Submodules may be compiled on their own; run them as the modules they are.
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        # The fused transformer encoder bypasses its submodules.
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            if mode == "eval":
                model.eval()
            yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fast_path)
            for module, flag in training:
                module.training = flag
            _restore_buffers(buffers)


@contextmanager
def random_state_kept(model: nn.Module) -> Iterator[None]:
    """Within: random numbers as they would come. Afterwards: as if none had been drawn."""
    devices = {parameter.device for parameter in model.parameters()}
    cuda = sorted({device.index or 0 for device in devices if device.type == "cuda"})
    on_mps = torch.mps.get_rng_state() if any(device.type == "mps" for device in devices) else None
    plain, of_numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=cuda):
            yield
    finally:
        random.setstate(plain)
        np.random.set_state(of_numpy)
        if on_mps is not None:
            torch.mps.set_rng_state(on_mps)


_Remembered = list[tuple[nn.Module, str, Tensor, Tensor]]


def _remember_buffers(model: nn.Module) -> _Remembered:
    return [
        (module, name, buffer, buffer.clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]


def _restore_buffers(buffers: _Remembered) -> None:
    """Copy every value back: batch norm writes running statistics without raising a tensor's version."""
    for module, name, buffer, copy in buffers:
        with torch.inference_mode(buffer.is_inference()), torch.no_grad():
            buffer.copy_(copy)
        # Scripted modules keep their buffers elsewhere and hand out another view of them every time.
        if not isinstance(module, torch.jit.ScriptModule) and module._buffers.get(name) is not buffer:
            module._buffers[name] = buffer
