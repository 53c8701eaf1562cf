"""Fixed models, data and criteria behind the golden files. Never change them: committed files were made with these."""

import numpy as np
import torch
from torch import nn

import neuralcov as nc

WIDTHS = {"conv": 6, "fc1": 4, "fc2": 4, "out": 3}
CLASSES = 3
WORDS = ["<pad>", "<unk>", "good", "bad", "god", "bat", "a", "film", "very", "not", "food", "dad", "lm"]


def settings():
    """Name each setting whose state is kept, by the name of its file."""
    return {
        "nc": nc.NC(0.75),
        "kmnc": nc.KMNC(10),
        "nbc": nc.NBC(),
        "snac": nc.SNAC(),
        "tknc": nc.TKNC(2),
        "tknp": nc.TKNP(2),
        "ss": nc.SS(),
        "cc": nc.CC(1.5),
        "lsc": nc.LSC(10),
        "dsc": nc.DSC(0.1),
        "mdsc": nc.MDSC(1),
        "npc_structure": nc.NPC(clusters=2, buckets=10),
        "npc_activation": nc.NPC(clusters=2, buckets=10, mode="activation"),
        "nlc": nc.NLC(),
        "nlc_all": nc.NLC(rule="all"),
        "nlc_classes": nc.NLC(classes=CLASSES),
        "lvc": nc.LVC(),
        "lvc_groups": nc.LVC(groups=2),
    }


def arrays(seed, size, spread=1.0):
    """Draw one batch as NumPy arrays, multiples of 1/64 so that no rounding enters."""
    rng = np.random.default_rng(seed)

    def rounded(values):
        return (np.round(values * 64) / 64).astype(np.float32)

    drawn = {f"layers/{name}": rounded(spread * rng.standard_normal((size, width))) for name, width in WIDTHS.items()}
    drawn |= {f"relevance/{name}": rounded(rng.random((size, width)) - 0.2) for name, width in WIDTHS.items()}
    drawn["labels"] = rng.permutation(np.arange(size) % CLASSES)
    drawn["predictions"] = np.where(rng.random(size) < 0.8, drawn["labels"], rng.integers(0, CLASSES, size))
    return drawn


def activations(drawn):
    """Turn arrays into a batch."""

    def part(prefix):
        return {name: torch.from_numpy(drawn[f"{prefix}/{name}"]) for name in WIDTHS}

    return nc.Activations(
        layers=part("layers"),
        labels=torch.from_numpy(drawn["labels"]),
        predictions=torch.from_numpy(drawn["predictions"]),
        relevance=part("relevance"),
    )


def fixed_weights(model):
    """Set every parameter by formula, so that the model is the same for ever."""
    with torch.no_grad():
        for offset, parameter in enumerate(model.parameters()):
            steps = torch.arange(parameter.numel(), dtype=torch.float64).reshape(parameter.shape)
            parameter.copy_(torch.sin(1.7 * steps + offset) * 0.5)
    return model


class Classifier(nn.Module):
    """Read pictures of 8 × 8 pixels into three classes."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.fc1 = nn.Linear(64, 8)
        self.fc2 = nn.Linear(8, CLASSES)
        fixed_weights(self)

    def forward(self, images):
        features = torch.relu(self.conv(images)).reshape(len(images), 4, 4, 2, 4, 2).mean((3, 5)).flatten(1)
        return self.fc2(torch.relu(self.fc1(features)))


class Sentiment(nn.Module):
    """Say whether a text has more good words than bad ones."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(len(WORDS), 6)
        self.fc = nn.Linear(6, 5)
        fixed_weights(self)

    def forward(self, tokens):
        self.fc(self.embedding(tokens.long()).mean(1))
        score = (tokens == WORDS.index("good")).sum(1).float() - (tokens == WORDS.index("bad")).sum(1) - 0.5
        return torch.stack([-score, score], 1)


def pictures(size=24):
    """Draw grey pictures as bytes."""
    rng = np.random.default_rng(11)
    return torch.from_numpy(rng.integers(0, 256, (size, 1, 8, 8), dtype=np.uint8))


def texts(size=24, length=14):
    """Draw texts as tokens, padded with 0."""
    rng = np.random.default_rng(12)
    rows = rng.integers(2, len(WORDS), (size, length))
    lengths = rng.integers(6, length + 1, size)
    return torch.from_numpy(np.where(np.arange(length) < lengths[:, None], rows, 0))


# What campaigns did before there were other guides.
FIRST = {"guide": "coverage"}


def image_fuzzer(folder):
    """Build the fuzzer of the image campaign."""
    mutations = [nc.fuzz.Brightness([10, 20, 40, 80]), nc.fuzz.Contrast([0.6, 0.8, 1.2, 1.4])]
    coverage = nc.Coverage(Classifier(), [nc.NLC(), nc.NC(0.5)])
    return nc.Fuzzer(coverage, pictures(), mutations=mutations, folder=folder, wave=8, tries=5, pictures=2, **FIRST)


def text_fuzzer(folder):
    """Build the fuzzer of the text campaign."""
    model = Sentiment()
    mutations = nc.fuzz.text_mutations(WORDS, model.embedding.weight)
    coverage = nc.Coverage(model, [nc.NLC()])
    return nc.Fuzzer(
        coverage,
        texts(),
        mutations=mutations,
        words=WORDS,
        wave=8,
        folder=folder,
        alpha=0.4,
        tries=10,
        pictures=2,
        **FIRST,
    )
