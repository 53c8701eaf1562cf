"""Run as a program: campaigns in processes that are killed at random moments and resumed until they are done.

    python -m tests.fuzz.killing FOLDER KILLS

Children are forked from here, where nothing has been computed yet, so that none of them pays for imports. Two
campaigns are left in FOLDER: ``whole``, never stopped, and ``killed``. The last line tells how many kills hit.
"""

import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path

import torch
from torch import nn

import neuralcov as nc
from neuralcov.fuzz import image_mutations, mutation

ITERATIONS = 260


def darker(images, generator):
    return images * (0.6 + 0.3 * torch.rand(len(images), 1, 1, 1, generator=generator))


class Small(nn.Module):
    """Throws at very light pictures, so that messages are among what must survive."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3)
        self.fc = nn.Linear(6 * 36, 4)

    def forward(self, images):
        if (images.mean((1, 2, 3)) > 0.5).any():
            raise ValueError("too light")
        return self.fc(torch.relu(self.conv(images)).flatten(1))


def fuzzer(folder):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Small()
    seeds = (torch.rand(30, 1, 8, 8) * 0.7 * 255).byte()
    coverage = nc.Coverage(model, [nc.NLC(), nc.TKNC(2)])
    mutations = [*image_mutations(8), mutation(darker)]
    return nc.Fuzzer(
        coverage, seeds, mutations=mutations, folder=folder, wave=8, seed=7, checkpoint=0.03, schedule="fresh"
    )


def go_on(folder):
    found = fuzzer(folder)
    if (folder / "config.json").is_file():
        return found.resume(iterations=ITERATIONS)
    return found.run(iterations=ITERATIONS)


def child(folder):
    """A process at work on a campaign; 0 is its exit code when the campaign is done and all waves were repeated."""
    process = os.fork()
    if process == 0:
        code = 3
        try:
            code = 0 if go_on(folder).exact else 4
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(code)
    return process


def main(folder, kills):
    started = time.monotonic()
    _, status = os.waitpid(child(folder / "whole"), 0)
    assert status == 0, f"the campaign that nobody stopped ended with {status}"
    whole = time.monotonic() - started
    dice, hits = random.Random(os.getpid()), 0
    for _ in range(kills):
        process = child(folder / "killed")
        time.sleep(dice.random() * whole / (kills / 2))
        os.kill(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
        hits += os.WIFSIGNALED(status)
    _, status = os.waitpid(child(folder / "killed"), 0)
    assert status == 0, f"the resumed campaign ended with {status}"
    print(hits)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
