"""Transformers of the sizes people use, with random weights: a ViT-B, and a Llama block of 4,096/11,008.

And LCC on wide layers alone, given their outputs: eight layers, eight inputs.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import torch

import neuralcov as nc
from benchmarks.small import Run, compared, taught
from benchmarks.subjects import NEURONWISE
from benchmarks.timing import timed


def wide(device: torch.device, full: bool, rules: tuple[Any, ...], repeats: int) -> Iterator[dict[str, Any]]:
    """Each model with the criteria that have a target on it."""
    done: dict[str, Any] = {}
    count = 30 if full else 8
    # The precision that people use first: a run may be cut short.
    for precision in (torch.bfloat16, torch.float32) if device.type == "cuda" else (torch.float32,):
        for name in ("ViT-B/16, 64 images", "Llama block, 8 × 512 tokens"):
            run = wide_run(name, device, full, count, precision)
            for rows in compared(run, rules, repeats):
                done[f"{name}, {str(precision).removeprefix('torch.')}"] = rows
                yield {"batches": count, "models": done}


def wide_run(name: str, device: torch.device, full: bool, count: int, precision: torch.dtype) -> Run:
    """A model, ten batches that come round again, and the neuron-wise criteria after two of them.

    Of these, only one and LCC in float32, in which a pass takes many times as long.
    """
    torch.manual_seed(0)
    with device:
        model, batches = (_vit if name.startswith("ViT") else _llama)(full)
    model = model.eval().to(precision)
    for batch in batches:
        batch.update({key: part.to(precision) for key, part in batch.items() if part.is_floating_point()})
    known = taught(model, batches[:2], NEURONWISE if precision == torch.bfloat16 else ("NC(0.75)", "LCC"))
    several = [batches[index % len(batches)] for index in range(count)]
    return Run(model, several, {criterion.name: [criterion] for criterion in known})


def _vit(full: bool) -> tuple[Any, list[dict[str, Any]]]:
    from transformers import ViTConfig, ViTForImageClassification

    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    config = ViTConfig(num_labels=1000) if full else ViTConfig(num_labels=10, image_size=32, patch_size=8, **small)
    images = (64, 3, 224, 224) if full else (4, 3, 32, 32)
    return ViTForImageClassification(config), [{"pixel_values": torch.randn(images)} for _ in range(10)]


def _llama(full: bool) -> tuple[Any, list[dict[str, Any]]]:
    from transformers import LlamaConfig, LlamaForSequenceClassification

    sizes = (4096, 11008, 32) if full else (64, 172, 4)
    config = LlamaConfig(
        hidden_size=sizes[0], intermediate_size=sizes[1], num_attention_heads=sizes[2], num_hidden_layers=1,
        vocab_size=1000, num_labels=10, pad_token_id=0,
    )  # fmt: skip
    texts = (8, 512) if full else (2, 16)
    batches = [
        {"input_ids": torch.randint(1, 1000, texts), "attention_mask": torch.ones(texts, dtype=torch.long)}
        for _ in range(10)
    ]
    return LlamaForSequenceClassification(config), batches


def wide_layers(device: torch.device, full: bool) -> dict[str, Any]:
    """Seconds to observe eight inputs in eight equally wide layers, by width, for LCC and NC; outputs given."""
    rows: dict[str, Any] = {}
    for width in (5_504, 11_008, 22_016) if full else (64, 128):
        layers = [f"layer{index}" for index in range(8)]

        def outputs(size: int, width: int = width, layers: list[str] = layers) -> Any:
            return nc.Activations(
                {name: torch.randn(size, width, device=device) for name in layers},
                predictions=torch.randint(10, (size,), device=device),
            )

        training, batches = outputs(512), [outputs(8) for _ in range(50)]
        for criterion in (nc.LCC(), nc.NC(0.75)):
            coverage = nc.Coverage.of_layers(dict.fromkeys(layers, width), [criterion], device=device)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", nc.CoverageWarning)
                if criterion.learns:
                    coverage.calibrate(activations=training)

                def run(coverage: Any = coverage, batches: list[Any] = batches) -> None:
                    for batch in batches:
                        coverage.update(activations=nc.Activations(batch.layers, predictions=batch.predictions))

                timing = timed(run, device, 3)
            rows.setdefault(str(width), {})[criterion.name] = timing.median / len(batches)
    return {"layers": 8, "inputs": 8, "seconds of an update": rows}
