import numpy as np
import pytest
from PIL import Image

import neuralcov as nc
from neuralcov import zoo


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
    samples = zoo.image_folder(tmp_path)
    assert samples.classes == ("cat", "dog")
    assert samples.labels.tolist() == [0, 0, 1]
    assert (samples.inputs[2].permute(1, 2, 0).numpy() == first).all()
    assert samples.inputs.shape == (3, 3, 5, 4)


def test_wrong_folders(tmp_path):
    with pytest.raises(nc.NeuralcovError, match="no images in class folders"):
        zoo.image_folder(tmp_path)
    write(tmp_path / "a", "a.png", np.zeros((4, 4, 3), np.uint8))
    write(tmp_path / "a", "b.png", np.zeros((4, 5, 3), np.uint8))
    with pytest.raises(nc.NeuralcovError, match="5×4 pixels, expected 4×4"):
        zoo.image_folder(tmp_path)
    (tmp_path / "a" / "b.png").write_text("broken")
    with pytest.raises(nc.NeuralcovError, match="not an image that can be read"):
        zoo.image_folder(tmp_path)
