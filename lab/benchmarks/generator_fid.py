"""The Fréchet Inception distance of a trained generator, from its weights file.

    python benchmarks/generator_fid.py generator.safetensors --device cuda

Needs `neuralcov data get cifar10 inception`. On a CPU an image takes about a quarter of a second, so there
`--count 5000 --real 5000` gives a first idea in under an hour, somewhat too high: fewer images always do.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from safetensors.torch import load_file

from neuralcov.fuzz.faults.quality import frechet_distance
from neuralcov_lab import zoo
from neuralcov_lab.training import gaussian_of_generator, gaussian_of_samples


def main() -> None:
    """Print one line: the distance, how many images it is between, and how long it took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weights", type=Path)
    parser.add_argument("--count", type=int, default=50_000, help="generated images")
    parser.add_argument("--real", type=int, default=50_000, help="training images to compare with")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    chosen = parser.parse_args()
    device, started = torch.device(chosen.device), time.perf_counter()
    state = {
        name: value.float() if value.is_floating_point() else value for name, value in load_file(chosen.weights).items()
    }
    generator = zoo.Generator(
        num_classes=state["blocks.0.norm1.gain.weight"].shape[0],
        noise=state["linear.weight"].shape[1],
        width=state["output.weight"].shape[1],
    )
    generator.load_state_dict(state)
    features = zoo.inception().to(device)
    real = gaussian_of_samples(features, zoo.data("cifar10", "train").take(slice(0, chosen.real)), device)
    drawn = gaussian_of_generator(features, generator.to(device), chosen.count, chosen.seed)
    seconds = time.perf_counter() - started
    print(f"FID {frechet_distance(real, drawn):.2f} ({drawn.count:,} drawn, {real.count:,} real, {seconds:.0f} s)")


if __name__ == "__main__":
    main()
