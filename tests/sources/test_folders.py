import io
import re
import struct

import numpy as np
import pytest
from PIL import Image

import neuralcov as nc
from neuralcov.sources.data import image_folder


def write(folder, name, image):
    folder.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(folder / name)


def test_classes_are_the_subfolders(tmp_path):
    rng = np.random.default_rng(0)
    first, second = (rng.integers(0, 256, (5, 4, 3), dtype=np.uint8) for _ in range(2))
    write(tmp_path / "dog", "b.png", first)
    write(tmp_path / "cat" / "deep", "a.png", second)
    write(tmp_path / "cat", "grey.png", second[:, :, 0])
    (tmp_path / "cat" / "notes.txt").write_text("not an image")
    samples = image_folder(tmp_path)
    assert samples.classes == ("cat", "dog")
    assert samples.labels.tolist() == [0, 0, 1]
    assert (samples.inputs[2].permute(1, 2, 0).numpy() == first).all()
    assert samples.inputs.shape == (3, 3, 5, 4)
    assert samples.ids == ("cat/deep/a.png", "cat/grey.png", "dog/b.png")
    first, rest = samples.loader(2)
    assert (first.ids, rest.ids) == (samples.ids[:2], samples.ids[2:])
    assert samples.take(samples.labels == 1).ids == ("dog/b.png",)


def test_wrong_folders(tmp_path):
    with pytest.raises(nc.NeuralcovError, match="no images in class folders"):
        image_folder(tmp_path)
    write(tmp_path / "a", "a.png", np.zeros((4, 4, 3), np.uint8))
    write(tmp_path / "a", "b.png", np.zeros((4, 5, 3), np.uint8))
    with pytest.raises(nc.NeuralcovError, match="5×4 pixels, expected 4×4"):
        image_folder(tmp_path)
    (tmp_path / "a" / "b.png").write_text("broken")
    with pytest.raises(nc.NeuralcovError, match="not an image that can be read"):
        image_folder(tmp_path)


@pytest.mark.parametrize("name", ["grey.png", "grey.ppm"])
def test_grey_images_of_16_bits_are_scaled_to_8(name, tmp_path):
    wide = np.random.default_rng(0).integers(0, 1 << 16, (12, 12), dtype=np.uint16)
    wide[0, :3] = 0, 257 * 100, 65535
    write(tmp_path / "a", name, wide)
    pixels = image_folder(tmp_path).inputs[0].numpy()
    assert pixels[:, 0, :3].tolist() == [[0, 100, 255]] * 3
    assert (pixels == np.round(wide / 257).astype(np.uint8)).all()


def test_pixels_of_other_kinds_are_refused(tmp_path):
    (tmp_path / "a").mkdir()
    Image.fromarray(np.full((4, 4), 0.5, np.float32)).save(tmp_path / "a" / "a.png", format="TIFF")
    with pytest.raises(nc.NeuralcovError, match=r"a\.png: pixels of mode F, expected 8 or 16 bits"):
        image_folder(tmp_path)
    Image.fromarray(np.full((4, 4), 1 << 20, np.int32)).save(tmp_path / "a" / "a.png", format="TIFF")
    with pytest.raises(nc.NeuralcovError, match=r"a\.png: pixels from 1048576 to 1048576, expected 0 to 65535"):
        image_folder(tmp_path)


def damaged_png(chunk):
    """A PNG file one of whose chunks is longer than it says."""
    stream = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(stream, format="PNG")
    content = bytearray(stream.getvalue())
    length = slice(content.index(chunk) - 4, content.index(chunk))
    content[length] = (int.from_bytes(content[length], "big") // 2).to_bytes(4, "big")
    return bytes(content)


def bitmap(width, height, offset=54):
    header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54, 0, 0, offset) + header


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("header.png", damaged_png(b"IHDR")),
        ("pixels.png", damaged_png(b"IDAT")),
        ("cut.png", damaged_png(b"IDAT")[:500]),
        ("text.ppm", b"P6\nabc 4\n255\n"),
        ("long.ppm", b"P6\n99999999999 4\n255\n"),
        ("huge.ppm", b"P6\n99999 99999\n255\n"),
        ("huge.bmp", bitmap(99999, 99999)),
        ("empty.bmp", bitmap(4, 4, offset=1 << 31)),
    ],
)
def test_damaged_images_are_refused(name, content, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / name).write_bytes(content)
    with pytest.raises(nc.NeuralcovError, match=rf"{re.escape(name)}: not an image that can be read \("):
        image_folder(tmp_path)
