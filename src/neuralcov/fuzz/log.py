"""An append-only file of packs, one per wave; what a kill leaves half-written is cut off."""

from __future__ import annotations

import mmap
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
# No pack is as long as this.
_LONGEST = 1 << 40


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
        """Every complete pack. A torn one at the end is left out; damage in the middle is an error."""
        if not self.path.is_file():
            return
        # Packs that are appended meanwhile are not looked at: half of one is no damage.
        start, size = 0, self.path.stat().st_size
        with self.path.open("rb") as file:
            while size - start >= _HEAD.size:
                mark, length, checksum = _HEAD.unpack(file.read(_HEAD.size))
                end = start + _HEAD.size + (length if mark == _MARK else 0)
                whole = mark == _MARK and end <= size
                content = file.read(length) if whole else b""
                if not whole or zlib.crc32(content) != checksum:
                    if end >= size and not self._pack_behind(start, size):
                        return
                    raise CampaignError(
                        f"{self.path}: damaged {size - start:,} bytes before its end; restore it from a copy"
                    )
                yield content
                start = end

    def _pack_behind(self, start: int, size: int) -> bool:
        """Whether another pack begins behind one that seems to be the last: then its length is damaged."""
        with self.path.open("rb") as file, mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as content:
            place = content.find(_MARK, start + 1, size - _HEAD.size + len(_MARK))
            while place >= 0:
                # The bytes of a picture may look like a mark, but hardly like a mark before a length.
                if _HEAD.unpack_from(content, place)[1] < _LONGEST:
                    return True
                place = content.find(_MARK, place + 1, size - _HEAD.size + len(_MARK))
        return False
