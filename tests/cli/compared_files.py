"""Files of suites to compare: whole, half, copies, unscaled, of another network."""

import neuralcov as nc
from neuralcov import demo


def chunks(x, y):
    return [(x[i : i + 100], y[i : i + 100]) for i in range(0, len(x), 100)]


def make_files(tmp_path_factory):
    """State files of the test set, of poorer suites, and of a network that was trained again."""
    folder = tmp_path_factory.mktemp("states")
    test = demo.digits("test")
    x, y = test.pixels(), test.labels
    net = demo.train_digits(progress=False)
    cov = nc.Coverage(net, [nc.LCC(), nc.KMNC(100), nc.SNAC()])
    cov.calibrate(demo.digits("train").batches())
    suites = {
        "test": (x, y),
        "half": (x[:300], y[:300]),
        "copies": (x[:10].repeat(60, 1, 1, 1) + 0.02, y[:10].repeat(60)),
        "unscaled": (16 * x, y),
    }
    for name, suite in suites.items():
        cov.reset()
        cov.assess(chunks(*suite), keep_inputs=name in ("test", "half"))
        cov.save(folder / f"{name}.ncov")
    again = nc.Coverage(demo.train_digits(seed=3, progress=False), [nc.LCC(), nc.KMNC(100), nc.SNAC()])
    again.calibrate(demo.digits("train").batches())
    again.assess(chunks(x, y))
    again.save(folder / "retrained.ncov")
    other = nc.Coverage(net, [nc.NC(0.5)])
    other.assess(chunks(x, y))
    other.save(folder / "other.ncov")
    return folder


def make_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
