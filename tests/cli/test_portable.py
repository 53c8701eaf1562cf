"""What evidence and state files keep of a command line names no folder of the machine."""

from pathlib import PurePosixPath

import pytest

from neuralcov.cli.portable import plain_without_folders, without_folders

HERE = PurePosixPath("/home/kim/project")


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("/home/kim/project/a.ncov", "a.ncov"),
        ("/home/kim/other/a.ncov", "…/a.ncov"),
        ("/home/kim/project", "."),
        ("npz:/secret/customer x/test.npz", "npz:…/test.npz"),
        ("--data=npz:/secret/test.npz", "--data=npz:…/test.npz"),
        ("folder:~/pictures/", "folder:…/pictures"),
        (r"npz:C:\Users\Kim\test.npz", "npz:…/test.npz"),
        (r"C:\Users\Kim\net.onnx", "…/net.onnx"),
        (r"\\server\share\net.onnx", "…/net.onnx"),
        ("my_net:build(path='/secret/w.pt', size=3)", "my_net:build(path='…/w.pt', size=3)"),
        ('my_net:build(path="/secret/w.pt")', 'my_net:build(path="…/w.pt")'),
        # No absolute paths.
        ("npz:data/test.npz", "npz:data/test.npz"),
        ("hf:org/model", "hf:org/model"),
        ("layer1.*|!fc", "layer1.*|!fc"),
        ("LSC(10, by=label)", "LSC(10, by=label)"),
        ("zoo:cifar10:test", "zoo:cifar10:test"),
        ("10%", "10%"),
        ("", ""),
    ],
)
def test_absolute_paths_lose_their_folders(text, kept):
    assert without_folders(text, HERE) == kept


def test_every_text_of_plain_data():
    found = plain_without_folders({"a": ["/x/y", 3, None], "b": ("/x/z",), "c": {"d": "~/k"}})
    assert found == {"a": ["…/y", 3, None], "b": ["…/z"], "c": {"d": "…/k"}}
