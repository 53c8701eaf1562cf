"""Stand in for what pages call "my package": pictures in folders, texts, networks, weights and a tokenizer."""

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

from neuralcov import demo

PICTURES = '''
"""Small networks for small pictures, and for texts."""

from itertools import product

import torch
from safetensors.torch import load_file
from torch import nn

WORDS = "<pad> <unk> good bad a film very not plot dull fine story of the and".split()
PARTS = ("a", "the", "very"), ("good", "bad"), ("of", "not")
TEXTS = [f"{a} {b} film {c} the plot and story" for a, b, c in product(*PARTS)]
LABELS = torch.tensor([int(" good " in text) for text in TEXTS])


def network():
    layers = nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 32), nn.ReLU()
    return nn.Sequential(*layers, nn.Linear(32, 10))


def build_model(weights="model.safetensors"):
    built = network()
    built.load_state_dict(load_file(weights))
    return built


def reviews():
    for start in range(0, len(TEXTS), 5):
        yield TEXTS[start : start + 5], LABELS[start : start + 5]


class Reader(nn.Module):
    """Goes by the first two words."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.words, self.fc = nn.Embedding(len(WORDS), 4), nn.Linear(4, 3)

    def forward(self, tokens):
        self.fc(self.words(tokens).mean(1))
        score = (tokens[:, :2] == 2).any(1).float() - 0.5
        return torch.stack([-score, score], 1)
'''
# What pages call the module, and what it calls its network there.
MODULES = {
    "my/package.py": PICTURES,
    "my_package.py": f"{PICTURES}\n\nbuild = build_model\n",
    "old.py": f"{PICTURES}\n\nbuild = build_model\n",
    "new.py": f"{PICTURES}\n\ndef build():\n    return build_model('other.safetensors')\n",
    "mymodel.py": "from torch import nn\n\nbuild = lambda: nn.Sequential(nn.Embedding(100, 16), nn.Linear(16, 16))\n",
}
MEAN, STD = (0.49, 0.48, 0.45), (0.25, 0.24, 0.26)


def make(folder):
    """Write all of it into a folder."""
    space = {}
    for name, text in MODULES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    exec(PICTURES, space)
    splits = {"train": ("images/train", "train"), "test": ("images/test", "test", "new")}
    for split, places in splits.items():
        samples = demo.digits(split).take(slice(0, 400 if split == "train" else 150))
        pixels = (samples.inputs.float() / samples.levels * 255).byte()[:, 0].numpy()
        for place in places:
            for number, (picture, label) in enumerate(zip(pixels, samples.labels.tolist(), strict=True)):
                path = folder / place / str(label) / f"{number:04}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(np.stack([picture] * 3, -1)).save(path)
    weights = [trained(space["network"], demo.digits("train"), seed).state_dict() for seed in (0, 1)]
    for name in ("model", "net", "weights", "mended", "other"):
        save_file(weights[name == "other"], folder / f"{name}.safetensors")
    (folder / "words.txt").write_text("\n".join(space["WORDS"]) + "\n")
    (folder / "policy.toml").write_text('min = { accuracy = 0.5 }\nallow_alarm = { unlike = "small pictures" }\n')
    tokens = np.array([[space["WORDS"].index(word) for word in text.split()] for text in space["TEXTS"]])
    np.savez(folder / "tokens.npz", x=tokens, y=space["LABELS"].numpy())


def trained(build, samples, seed):
    """Train the small network for pictures that were normalised, and for such that were not: pages show both."""
    torch.manual_seed(seed)
    network = build()
    pixels = samples.inputs.float() / samples.levels
    mean, std = (torch.tensor(numbers)[None, :, None, None] for numbers in (MEAN, STD))
    plain = pixels.expand(-1, 3, -1, -1)
    inputs, labels = torch.cat([plain, (plain - mean) / std]), samples.labels.repeat(2)
    steps = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(60):
        steps.zero_grad()
        nn.functional.cross_entropy(network(inputs), labels).backward()
        steps.step()
    return network


def make_readers(folder):
    """Let "my package" read texts, and write a classifier of Hugging Face with its tokenizer into FOLDER."""
    import tokenizers
    import transformers

    (folder / "my_package.py").write_text(f"{PICTURES}\n\nbuild = Reader\n")
    words = (folder / "words.txt").read_text().split()
    vocabulary = {word: number for number, word in enumerate([*words, "[CLS]", "[SEP]"])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        "[CLS] $A [SEP]", special_tokens=[(word, vocabulary[word]) for word in ("[CLS]", "[SEP]")]
    )
    whole = transformers.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>", pad_token="<pad>")
    whole.save_pretrained(folder / "FOLDER")
    sizes = {"dim": 16, "hidden_dim": 32, "n_layers": 1, "n_heads": 2, "max_position_embeddings": 32}
    torch.manual_seed(0)
    config = transformers.DistilBertConfig(vocab_size=len(vocabulary), num_labels=2, **sizes)
    transformers.DistilBertForSequenceClassification(config).save_pretrained(folder / "FOLDER")
