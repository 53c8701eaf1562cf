"""One small context for all tests of experiments: the network on digits is trained once."""

from dataclasses import replace

import pytest
import torch

from neuralcov_lab.experiments import SCALES, ExperimentContext

TINY = replace(
    SCALES["smoke"],
    training=300,
    test=120,
    batch=40,
    chunk=40,
    paper_chunk=20,
    noises=(0.1,),
    multiples=(1, 2),
    alone=1,
    runs=2,
    draws=2,
    drawn=30,
    attacked=30,
    cw_inputs=10,
    cw_steps=60,
    perturbed=10,
    orders=2,
    order_inputs=60,
    order_batches=(30, 10),
    time_inputs=40,
    time_batches=(20,),
    time_runs=1,
    fuzz_seeds=20,
    fuzz_iterations=20,
    fuzz_seconds=0.5,
    fuzz_wave=20,
    path_training=100,
    path_inputs=40,
    reviews=60,
    generated=60,
    pictured=40,
)


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def tiny():
    return TINY


@pytest.fixture(scope="session")
def context():
    return ExperimentContext(TINY)
