"""Trainers of Hugging Face, on models built from configurations."""

import pytest
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainingArguments,
    default_data_collator,
)

import neuralcov as nc
from neuralcov.core.errors import InputError
from neuralcov.integrations.huggingface import watch_trainer
from tests.integrations.parts import assessed, counted, hooks, same

pytestmark = pytest.mark.filterwarnings("ignore")
CRITERIA = (nc.NC(0.5), nc.TKNC(2), nc.NLC())
SMALL = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 32,
}


def bert():
    torch.manual_seed(0)
    return BertForSequenceClassification(BertConfig(**SMALL, num_labels=3)).eval()


def llama():
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SMALL, num_key_value_heads=2)).eval()


def texts(size=22, seed=1, labels=True):
    """Token lists of 3 to 12 tokens."""
    made = torch.Generator().manual_seed(seed)
    rows = []
    for place in range(size):
        length = int(torch.randint(3, 13, (), generator=made))
        tokens = torch.randint(1, 40, (length,), generator=made).tolist()
        rows.append({"input_ids": tokens, **({"labels": place % 3} if labels else {})})
    return rows


class Collator:
    """Pad to the longest text, or to one length."""

    def __init__(self, length=None):
        self.length = length

    def __call__(self, rows):
        longest = self.length or max(len(row["input_ids"]) for row in rows)
        padded = [row["input_ids"] + [0] * (longest - len(row["input_ids"])) for row in rows]
        ones = [[1] * len(row["input_ids"]) + [0] * (longest - len(row["input_ids"])) for row in rows]
        batch = {"input_ids": torch.tensor(padded), "attention_mask": torch.tensor(ones)}
        return batch | ({"labels": torch.tensor([row["labels"] for row in rows])} if "labels" in rows[0] else {})


def trainer(model, tmp_path, collator=None, **options):
    arguments = TrainingArguments(
        str(tmp_path), per_device_eval_batch_size=8, use_cpu=True, report_to=[], disable_tqdm=True, **options
    )
    return Trainer(model, arguments, data_collator=collator or Collator(), eval_dataset=texts())


def collated(rows, collator=None, batch=8):
    return [(collator or Collator())(rows[start : start + batch]) for start in range(0, len(rows), batch)]


def test_values_are_those_of_assess_without_a_pass_more(tmp_path):
    model = bert()
    trained = trainer(model, tmp_path)
    coverage = watch_trainer(trained, CRITERIA)
    with counted(model) as passes:
        found = trained.evaluate()
    assert passes == [3]
    assert not hooks(model)
    expected = assessed(model, CRITERIA, collated(texts()))
    same(coverage, expected)
    assert expected.sanity().accuracy is not None
    assert found["eval_nc_0.5"] == expected.values()["NC(0.5)"]
    assert "eval_loss" in found
    assert any("eval_nc_0.5" in line for line in trained.state.log_history)


def test_predictions_have_their_own_prefix(tmp_path):
    model = bert()
    trained = trainer(model, tmp_path)
    coverage = watch_trainer(trained, CRITERIA)
    trained.evaluate()
    metrics = trained.predict(texts(seed=2, labels=False)).metrics
    expected = assessed(model, CRITERIA, collated(texts(seed=2, labels=False)))
    same(coverage, expected)
    assert metrics["test_nc_0.5"] == expected.values()["NC(0.5)"]


def test_padding_does_not_count(tmp_path):
    model, values = bert(), []
    for length in (None, 20):
        trained = trainer(model, tmp_path, Collator(length))
        coverage = watch_trainer(trained, [nc.NLC(), nc.KMNC(10)], calibration=collated(texts(seed=3)))
        trained.evaluate()
        values.append(coverage.values())
    assert values[0] == pytest.approx(values[1], rel=1e-4)
    # Without its mask the padding does count.
    unmasked = [{**batch, "attention_mask": torch.ones_like(batch["attention_mask"])} for batch in collated(texts())]
    assert assessed(model, [nc.NLC()], unmasked).values()["NLC"] != pytest.approx(values[0]["NLC"], rel=1e-2)


def test_a_decoder_is_heard_as_it_is_assessed(tmp_path):
    model = llama()
    rows = [{**row, "labels": row["input_ids"]} for row in texts(labels=False)]

    def collate(some):
        batch = Collator()([{"input_ids": row["input_ids"]} for row in some])
        return batch | {"labels": batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)}

    trained = trainer(model, tmp_path, collate)
    coverage = watch_trainer(trained, CRITERIA)
    trained.evaluate(rows)
    same(coverage, assessed(model, CRITERIA, collated(rows, collate)))


@pytest.mark.parametrize("pool", ["mean", "last", "max", "tokens"])
def test_reductions_of_tokens(tmp_path, pool):
    model = llama()
    try:
        nc.Coverage(model, CRITERIA, pool=pool)
    except TypeError:
        pytest.skip("Coverage has no pool= yet")
    trained = trainer(model, tmp_path)
    coverage = watch_trainer(trained, CRITERIA, pool=pool)
    trained.predict(texts(labels=False))
    expected = assessed(model, CRITERIA, collated(texts(labels=False)), pool=pool)
    same(coverage, expected)
    assert expected.inputs == (sum(len(row["input_ids"]) for row in texts()) if pool == "tokens" else 22)


def test_in_training_with_the_best_model_by_coverage(tmp_path):
    model = bert()
    trained = trainer(
        model,
        tmp_path,
        num_train_epochs=2,
        eval_strategy="epoch",
        save_strategy="epoch",
        load_best_model_at_end=True,
        metric_for_best_model="nc_0.5",
    )
    trained.train_dataset = texts(seed=2)
    coverage = watch_trainer(trained, [nc.NC(0.5), nc.KMNC(10)], calibration=collated(texts(seed=2)))
    trained.train()
    logged = [line["eval_nc_0.5"] for line in trained.state.log_history if "eval_nc_0.5" in line]
    assert len(logged) == 2
    assert trained.state.best_metric == max(logged)
    assert coverage.inputs == 22
    assert not hooks(model)


def test_hooks_are_gone_after_an_exception(tmp_path):
    model, rows = bert(), texts()
    trained = trainer(model, tmp_path)
    coverage = watch_trainer(trained, CRITERIA)
    rows[12] = {"input_ids": [99], "labels": 0}  # beyond the vocabulary
    with pytest.raises(IndexError):
        trained.evaluate(rows)
    assert not hooks(model)
    trained.evaluate()
    same(coverage, assessed(model, CRITERIA, collated(texts())))


def test_another_model_is_refused(tmp_path):
    arguments = TrainingArguments(str(tmp_path), use_cpu=True, report_to=[], disable_tqdm=True, max_steps=1)
    trained = Trainer(
        model_init=bert,
        args=arguments,
        data_collator=Collator(),
        train_dataset=texts(),
        eval_dataset=texts(),
    )
    watch_trainer(trained, CRITERIA)
    trained.train()
    with pytest.raises(InputError, match="call watch_trainer once more"):
        trained.evaluate()
    watch_trainer(trained, CRITERIA)
    assert trained.evaluate()["eval_inputs"] == 22


def test_watched_twice_counts_each_for_itself(tmp_path):
    model = bert()
    trained = trainer(model, tmp_path)
    first, second = watch_trainer(trained, [nc.NC(0.5)]), watch_trainer(trained, [nc.TKNC(2)])
    found = trained.evaluate()
    assert {"eval_nc_0.5", "eval_tknc_2"} <= set(found)
    same(first, assessed(model, [nc.NC(0.5)], collated(texts())))
    same(second, assessed(model, [nc.TKNC(2)], collated(texts())))


def test_what_is_no_trainer_is_refused():
    with pytest.raises(InputError, match="has no evaluation_loop"):
        watch_trainer(bert(), CRITERIA)


def test_fixed_lengths_by_the_default_collator(tmp_path):
    model = bert()
    rows = [{"input_ids": row["input_ids"][:3], "labels": row["labels"]} for row in texts()]
    trained = trainer(model, tmp_path, default_data_collator)
    coverage = watch_trainer(trained, CRITERIA)
    trained.evaluate(rows)
    same(coverage, assessed(model, CRITERIA, collated(rows, default_data_collator)))


class OwnLoss(Trainer):
    """Keeps the labels from the model, as many do who weigh classes."""

    def compute_loss(self, model, inputs, return_outputs=False, **more):
        labels = inputs.pop("labels")
        output = model(**inputs)
        loss = torch.nn.functional.cross_entropy(output.logits, labels, weight=torch.tensor([1.0, 2.0, 1.0]))
        return (loss, output) if return_outputs else loss


class Twice(OwnLoss):
    """Runs half of a batch at a time."""

    def compute_loss(self, model, inputs, return_outputs=False, **more):
        labels = inputs.pop("labels")
        parts = zip(*(value.chunk(2) for value in inputs.values()), strict=True)
        halves = [model(**dict(zip(inputs, part, strict=True))) for part in parts]
        scores = torch.cat([half.logits for half in halves])
        loss = torch.nn.functional.cross_entropy(scores, labels)
        return (loss, {"loss": loss, "logits": scores}) if return_outputs else loss


@pytest.mark.parametrize("way", ["smoothing", "own loss"])
def test_labels_that_the_loss_keeps_from_the_model(tmp_path, way):
    model, criteria = bert(), (nc.NLC(classes=3), nc.NC(0.5))
    trained = trainer(model, tmp_path, label_smoothing_factor=0.1 if way == "smoothing" else 0.0)
    if way == "own loss":
        trained = OwnLoss(model, trained.args, data_collator=Collator(), eval_dataset=texts())
    coverage, other = watch_trainer(trained, criteria), watch_trainer(trained, criteria)
    for _ in range(2):
        trained.evaluate()
    expected = assessed(model, criteria, collated(texts()))
    for one in (coverage, other):
        same(one, expected)
        assert one.sanity().accuracy == expected.sanity().accuracy is not None
    assert "prediction_step" not in vars(trained)


def test_labels_of_another_number_than_the_last_pass_are_not_used(tmp_path):
    model = bert()
    arguments = trainer(model, tmp_path).args
    trained = Twice(model, arguments, data_collator=Collator(), eval_dataset=texts())
    coverage = watch_trainer(trained, CRITERIA)
    assert trained.evaluate()["eval_inputs"] == 22
    assert coverage.sanity().judged == 0
