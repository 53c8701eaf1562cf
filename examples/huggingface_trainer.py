"""Measure what the evaluations of a Trainer cover, with a small BERT built from its configuration.

Needs ``pip install neuralcov[huggingface]``. Run ``python examples/huggingface_trainer.py``.
"""

import tempfile
import warnings

import torch
from transformers import BertConfig, BertForSequenceClassification, PrinterCallback, Trainer, TrainingArguments

import neuralcov as nc
from neuralcov.integrations.huggingface import watch_trainer


def texts(size: int, seed: int) -> list[dict]:
    """Return texts of 4 to 16 tokens; their class says which of three tokens is most frequent."""
    made, rows = torch.Generator().manual_seed(seed), []
    for _ in range(size):
        tokens = torch.randint(1, 4, (int(torch.randint(4, 17, (), generator=made)),), generator=made)
        rows.append({"input_ids": tokens, "labels": int(tokens.bincount(minlength=4)[1:].argmax())})
    return rows


def collate(rows: list[dict]) -> dict[str, torch.Tensor]:
    """Pad to the longest text; the mask says what is padding."""
    padded = torch.nn.utils.rnn.pad_sequence([row["input_ids"] for row in rows], batch_first=True)
    labels = torch.tensor([row["labels"] for row in rows])
    return {"input_ids": padded, "attention_mask": (padded > 0).long(), "labels": labels}


def main() -> None:
    """Print the metrics of an evaluation, coverage among them."""
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=4, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, num_labels=3
    )
    train = texts(600, seed=1)
    arguments = TrainingArguments(
        tempfile.mkdtemp(),
        num_train_epochs=5,
        learning_rate=2e-3,
        per_device_train_batch_size=50,
        per_device_eval_batch_size=50,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    trainer = Trainer(
        BertForSequenceClassification(config),
        arguments,
        data_collator=collate,
        train_dataset=train,
        eval_dataset=texts(300, seed=2),
        compute_metrics=lambda found: {"accuracy": (found.predictions.argmax(1) == found.label_ids).mean()},
    )
    trainer.remove_callback(PrinterCallback)  # which prints all metrics
    trainer.train()
    training = [collate(train[start : start + 50]) for start in range(0, len(train), 50)]
    watch_trainer(trainer, [nc.LCC(), nc.KMNC(100)], calibration=training)
    found = trainer.evaluate()
    for key in ("eval_accuracy", "eval_inputs", "eval_lcc", "eval_lcc.relative", "eval_kmnc_100"):
        print(f"{key} {found[key]:.4f}")


if __name__ == "__main__":
    main()
