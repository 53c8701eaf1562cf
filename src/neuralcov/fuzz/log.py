"""An append-only file of packs, one per wave; what a kill leaves half-written is cut off."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from neuralcov.core.errors import CampaignError

# Mark, bytes of content, and their checksum.
_HEAD = struct.Struct("<4sQI")
_MARK = b"ncvw"


class Log:
    """The waves of a campaign, in order."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO | None = None

    def append(self, content: bytes) -> None:
        """Commit a pack: one write, which a later kill of this process does not undo."""
        if self._file is None:
            self._file = self.path.open("ab", buffering=0)
        pack = memoryview(_HEAD.pack(_MARK, len(content), zlib.crc32(content)) + content)
        while pack:
            pack = pack[self._file.write(pack) :]

    def sync(self) -> None:
        """Have the disk hold what was appended, for the sake of power cuts."""
        if self._file is not None:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Be done with the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def repair(self) -> int:
        """Cut off a pack that was not written to its end; give how many bytes that was."""
        if not self.path.is_file():
            return 0
        whole = sum(_HEAD.size + len(content) for content in self.read())
        torn = self.path.stat().st_size - whole
        if torn:
            with self.path.open("r+b") as file:
                file.truncate(whole)
        return torn

    def read(self) -> Iterator[bytes]:
        """Every complete pack. A torn one at the end is left out; one in the middle is an error."""
        if not self.path.is_file():
            return
        size = self.path.stat().st_size
        with self.path.open("rb") as file:
            while head := file.read(_HEAD.size):
                if len(head) < _HEAD.size:
                    return
                mark, length, checksum = _HEAD.unpack(head)
                content = file.read(length) if mark == _MARK else b""
                if mark == _MARK and len(content) < length:
                    return
                if mark != _MARK or zlib.crc32(content) != checksum:
                    if file.tell() == size:
                        return
                    raise CampaignError(
                        f"{self.path}: damaged {size - file.tell():,} bytes before its end; restore it from a copy"
                    )
                yield content
