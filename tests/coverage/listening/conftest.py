"""A network, and what it is tested and trained on."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from tests.coverage.listening.support import Net


@pytest.fixture
def net():
    return Net().eval()


@pytest.fixture
def loader():
    numbers = torch.Generator().manual_seed(1)
    images = torch.randn(70, 1, 8, 8, generator=numbers)
    return DataLoader(TensorDataset(images, torch.arange(70) % 3), batch_size=20)


@pytest.fixture
def training():
    numbers = torch.Generator().manual_seed(2)
    images = torch.randn(120, 1, 8, 8, generator=numbers)
    return DataLoader(TensorDataset(images, torch.arange(120) % 3), batch_size=30)
