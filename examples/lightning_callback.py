"""Measure what validation covers, while Lightning trains a network on the shipped digits.

Needs ``pip install neuralcov[lightning]``. Run ``python examples/lightning_callback.py``.
"""

import logging
import warnings

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import neuralcov as nc
from neuralcov import demo
from neuralcov.integrations.lightning import CoverageCallback


class Digits(lightning.LightningModule):
    """Tell digits apart."""

    def __init__(self) -> None:
        super().__init__()
        self.net = demo.DigitsNet()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return one score per class."""
        return self.net(images)

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        """Return the loss."""
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch: list[torch.Tensor], index: int) -> None:
        """Log the accuracy."""
        self.log("accuracy", (self(batch[0]).argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.Adam(self.parameters(), 3e-3)


def loader(split: str, *, shuffle: bool = False) -> DataLoader:
    """Return batches of the shipped digits."""
    found = demo.digits(split)
    return DataLoader(TensorDataset(found.pixels(), found.labels), batch_size=100, shuffle=shuffle)


def main() -> None:
    """Print what each epoch's validation covers."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    lightning.seed_everything(0, verbose=False)
    coverage = CoverageCallback([nc.LCC(), nc.KMNC(100)], calibration=loader("train"))
    trainer = lightning.Trainer(
        max_epochs=3,
        accelerator="cpu",
        callbacks=[coverage],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Digits(), loader("train", shuffle=True), loader("test"))
    print(f"accuracy {trainer.callback_metrics['accuracy']:.3f}")
    print({key: round(value, 4) for key, value in coverage.values["validate"].items() if key.count(".") == 0})


if __name__ == "__main__":
    main()
