"""The tensors of a file as a mapping, read when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from torch import Tensor

from neuralcov.core.container import Container


class FileTensors(Mapping[str, Tensor]):
    """Read the tensors of a file, each when it is asked for, once."""

    def __init__(self, file: Container, read: Callable[[str], Tensor]) -> None:
        self._file, self._read = file, read
        self.found: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.found:
            self.found[name] = self._read(name)
        return self.found[name]

    def __contains__(self, name: object) -> bool:
        return name in self._file.tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._file.tensors)

    def __len__(self) -> int:
        return len(self._file.tensors)
