"""Read texts of one's own for fuzzing: tokens as they come, words by a vocabulary, or a tokenizer of Hugging Face."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from neuralcov.core.arguments import require
from neuralcov.core.errors import InputError
from neuralcov.sources.samples import Samples
from neuralcov.sources.text_call import TextCall
from neuralcov.tap import unpack_batch

_UNKNOWN = ("<unk>", "[UNK]", "<UNK>", "unk")


def text_samples(
    name: str, loader: Iterable[Any], model: nn.Module, *, vocabulary: str | None = None, tokenizer: str | None = None
) -> Samples:
    """Read texts or tokens of a loader for a model.

    Args:
        name: of the data, for messages.
        loader: yields ``(texts or tokens, labels)``, or mappings with ``text`` or ``input_ids``, and ``labels``.
        model: is asked how it takes tokens.
        vocabulary: a file with a word per line, line i being token i; texts are split at spaces.
        tokenizer: the folder or name of one of Hugging Face; texts and words go by it.
    """
    if vocabulary is not None and tokenizer is not None:
        raise InputError("--vocabulary and --tokenizer were both given: expected one of them")
    texts, tokens, labels = _read(name, loader)
    call, words = _call_of(model), None
    if vocabulary is not None:
        words = _words(Path(vocabulary))
        number = {word: place for place, word in enumerate(words)}
        unknown = next((number[word] for word in _UNKNOWN if word in number), 1)
        numbers = [[number.get(word, unknown) for word in text.split()] for text in texts]
        found = TextCall(0, unknown, call=call)
    elif tokenizer is not None:
        numbers, words, found = _tokenized(texts, tokenizer, call)
    elif texts:
        raise InputError(f"data {name!r} holds texts: say --vocabulary FILE or --tokenizer NAME, by which to read them")
    else:
        numbers, found = [], TextCall(call=call)
    inputs = _padded([torch.tensor(row, dtype=torch.int64)[None] for row in numbers] or tokens, found.padding)
    if words is not None and int(inputs.max()) >= len(words):
        raise InputError(f"data {name!r} holds the token {int(inputs.max())}, but there are {len(words)} words")
    classes = tuple(str(number) for number in range(int(labels.max()) + 1))
    return Samples(name, inputs, labels, classes, words=None if words is None else tuple(words), text_call=found)


def holds_texts(loader: Iterable[Any]) -> bool:
    """Return whether the first batch of a loader holds texts, or rows of tokens, with labels."""
    for item in loader:
        held, _ = _parts(item)
        if isinstance(held, Tensor):
            return held.dim() == 2 and not held.is_floating_point() and held.dtype != torch.uint8
        return isinstance(held, (list, tuple)) and bool(held) and all(isinstance(text, str) for text in held)
    return False


def _read(name: str, loader: Iterable[Any]) -> tuple[list[str], list[Tensor], Tensor]:
    """Return the texts of a loader or their tokens, and the labels."""
    texts: list[str] = []
    tokens: list[Tensor] = []
    labels: list[Tensor] = []
    for item in loader:
        held, known = _parts(item)
        if known is None:
            raise InputError(f"data {name!r}: expected labels beside texts: fuzzing starts from known classes")
        labels.append(torch.as_tensor(known).long())
        if isinstance(held, Tensor) and held.dim() == 2 and not held.is_floating_point():
            tokens.append(held.long())
        elif isinstance(held, (list, tuple)) and all(isinstance(text, str) for text in held):
            texts += held
        else:
            shape = tuple(held.shape) if isinstance(held, Tensor) else type(held).__name__
            raise InputError(f"data {name!r}: a batch of {shape}: expected texts, or tokens (texts, length)")
    if not labels or (texts and tokens):
        raise InputError(f"data {name!r}: expected batches of texts, or of tokens, not none or both")
    return texts, tokens, torch.cat(labels)


def _parts(item: Any) -> tuple[Any, Any]:
    if isinstance(item, Mapping):
        held = next((item[key] for key in ("input_ids", "text", "texts", "sentence") if key in item), None)
        return held, item.get("labels", item.get("label"))
    if isinstance(item, (list, tuple)) and len(item) == 2 and isinstance(item[0], (list, tuple)):
        return item[0], item[1]
    batch = unpack_batch(item)
    held = batch.inputs
    return (held.get("input_ids", held.get("tokens")) if isinstance(held, Mapping) else held), batch.labels


def _call_of(model: nn.Module) -> str:
    names = inspect.signature(model.forward).parameters
    return "input_ids" if "input_ids" in names else "lengths" if {"tokens", "lengths"} <= set(names) else "tokens"


def _words(path: Path) -> list[str]:
    if not path.is_file():
        raise InputError(f"{path}: there is no such file; expected a vocabulary with a word per line")
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def _tokenized(texts: Sequence[str], name: str, call: str) -> tuple[list[list[int]], list[str], TextCall]:
    transformers = require("transformers", "tokenizers of Hugging Face", extra="huggingface")
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(name)
    except Exception as error:
        said = next(iter(str(error).splitlines()), "")
        raise InputError(f"tokenizer {name!r} cannot be read: {type(error).__name__}: {said}") from error
    plain = [tokenizer(text, add_special_tokens=False, truncation=True)["input_ids"] for text in texts]
    word = tokenizer("a", add_special_tokens=False)["input_ids"]
    framed = tokenizer("a")["input_ids"]
    start = next(place for place in range(len(framed)) if framed[place : place + len(word)] == word)
    padding = 0 if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    unknown = padding if tokenizer.unk_token_id is None else tokenizer.unk_token_id
    prefix, suffix = tuple(framed[:start]), tuple(framed[start + len(word) :])
    words = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    return plain, words, TextCall(padding, unknown, prefix, suffix, call)


def _padded(rows: Sequence[Tensor], padding: int) -> Tensor:
    """Return rows of tokens as one, the shorter ones filled up."""
    longest = max(row.shape[1] for row in rows)
    return torch.cat([nn.functional.pad(row, (0, longest - row.shape[1]), value=padding) for row in rows])
