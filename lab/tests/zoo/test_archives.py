"""Package files of every kind are unpacked; damaged and hostile ones are refused and leave nothing behind."""

import hashlib
import io
import lzma
import tarfile
import zipfile
from pathlib import Path

import pytest

from neuralcov_lab.errors import DataError
from neuralcov_lab.fetching import archives
from neuralcov_lab.fetching.archives import extract

CONTENT = bytes(range(256)) * 400


def tar_with(entries, mode="w:gz"):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode) as archive:
        for name, content in entries.items():
            entry = tarfile.TarInfo(name)
            if content is None:
                entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
                archive.addfile(entry)
            else:
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return stream.getvalue()


def deb_with(members):
    def part(name, content):
        header = f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode()
        return header + content + b"\n" * (len(content) % 2)

    return b"!<arch>\n" + b"".join(part(name, content) for name, content in members.items())


def zip_with(entries):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return stream.getvalue()


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


ARCHIVES = {
    "data.tgz": tar_with({"package/a.bin": CONTENT, "package/other": b"x"}),
    "data.tar.gz": tar_with({"./package/a.bin": CONTENT}),
    "data.whl": zip_with({"package/a.bin": CONTENT}),
    "data.deb": deb_with(
        {
            "debian-binary": b"2.0\n",
            "control.tar.xz": b"odd",
            "data.tar.xz": lzma.compress(tar_with({"./package/a.bin": CONTENT}, "w")),
        }
    ),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_every_kind_is_unpacked(name, tmp_path):
    archive = written(tmp_path / name, ARCHIVES[name])
    files = extract(archive, {"package/a.bin": "kept.bin"}, tmp_path / "out")
    assert (tmp_path / "out" / "kept.bin").read_bytes() == CONTENT
    assert files == {"kept.bin": {"bytes": len(CONTENT), "sha256": hashlib.sha256(CONTENT).hexdigest()}}
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["kept.bin"]


@pytest.mark.parametrize("name", ARCHIVES)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_truncated_archives_are_refused(name, share, tmp_path):
    content = ARCHIVES[name]
    archive = written(tmp_path / name, content[: int(len(content) * share)])
    with pytest.raises(DataError, match=r"damaged|cut short"):
        extract(archive, {"package/a.bin": "kept.bin"}, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("name", ["data.tgz", "data.whl", "data.deb"])
def test_corrupted_archives_are_refused(name, tmp_path):
    content = bytearray(ARCHIVES[name])
    middle = len(content) // 2
    content[middle : middle + 40] = bytes(byte ^ 0x5A for byte in content[middle : middle + 40])
    archive = written(tmp_path / name, bytes(content))
    with pytest.raises(DataError, match=r"damaged|cut short|no file"):
        extract(archive, {"package/a.bin": "kept.bin"}, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("path", ["../outside", "package/../../outside", "/etc/outside", "..\\outside", "C:/outside"])
def test_paths_outside_the_folder_are_refused(path, tmp_path):
    for archive in (
        written(tmp_path / "bad.tgz", tar_with({"package/a.bin": CONTENT, path: b"x"})),
        written(tmp_path / "bad.whl", zip_with({"package/a.bin": CONTENT, path: b"x"})),
    ):
        with pytest.raises(DataError, match="leads outside the folder; the archive is not unpacked"):
            extract(archive, {"package/a.bin": "kept.bin"}, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
    with pytest.raises(DataError, match="leads outside the folder"):
        extract(archive, {"package/a.bin": path}, tmp_path / "out")


def test_links_and_missing_files_are_refused(tmp_path):
    archive = written(tmp_path / "links.tgz", tar_with({"package/a.bin": None}))
    with pytest.raises(DataError, match="a link or something else that is no plain file"):
        extract(archive, {"package/a.bin": "kept.bin"}, tmp_path / "out")
    with pytest.raises(DataError, match="has no file package/b"):
        extract(archive, {"package/b": "kept.bin"}, tmp_path / "out")


def test_a_file_made_to_fill_the_disk_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "LARGEST", 10_000)
    archive = written(tmp_path / "bomb.whl", zip_with({"package/a.bin": b"\0" * 5_000_000}))
    with pytest.raises(DataError, match="unpacks to more than 10,000 bytes"):
        extract(archive, {"package/a.bin": "kept.bin"}, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_debian_packages_of_an_unknown_packing_are_refused(tmp_path):
    archive = written(tmp_path / "new.deb", deb_with({"data.tar.zst": b"zstandard"}))
    with pytest.raises(DataError, match=r"packed as data\.tar\.zst, which cannot be read here"):
        extract(archive, {"a": "a"}, tmp_path / "out")
    with pytest.raises(DataError, match="not a Debian package"):
        extract(written(tmp_path / "no.deb", b"something else"), {"a": "a"}, tmp_path / "out")


def test_members_that_say_they_are_encrypted_are_refused(tmp_path):
    """One flipped bit says so; found by the loop of damaged files."""
    archive = tmp_path / "x.whl"
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr("package/a", CONTENT)
    content = bytearray(archive.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1
    archive.write_bytes(content)
    with pytest.raises(DataError, match=r"x\.whl: damaged or cut short \(File 'package/a' is encrypted"):
        extract(archive, {"package/a": "a"}, tmp_path / "into")
    assert not list((tmp_path / "into").iterdir())
