"""Options that several commands share, so that they read the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[
    str,
    typer.Argument(
        help="package.module:factory, zoo:NAME, torchvision:NAME, timm:NAME, hf:PATH or FILE.onnx; NAME(arg=value)."
    ),
]
Weights = Annotated[Path | None, typer.Option(help="Weights: safetensors, or a PyTorch file of plain tensors.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, …")]
BatchSize = Annotated[int, typer.Option(min=1, help="Inputs per forward pass.")]
Mean = Annotated[str | None, typer.Option(help="Per channel, subtracted from pixels in [0, 1].")]
Std = Annotated[str | None, typer.Option(help="Per channel, by which they are then divided.")]
Layers = Annotated[str | None, typer.Option(help="Globs joined by | on layer names; !glob takes away.")]
Pool = Annotated[
    str,
    typer.Option(help="Of the tokens of an input take the mean, the last, the max, or make inputs of all: tokens."),
]
Padding = Annotated[
    str, typer.Option(help="The token that fills texts of an .npz file up behind their end, or 'none'.")
]
