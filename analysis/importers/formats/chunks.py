"""Streams of JSON lines in numbered chunks, live or sealed with zstd, of which a record is read at its offset.

A live chunk is `00000.jsonl`; a sealed one is `00000.jsonl.zst`, made of frames that can be decompressed one by one,
with a table of their sizes at its end (zstd's seekable format, as pyzstd writes it). Offsets count decompressed bytes,
so a record has the same one before and after its chunk was sealed.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa

from ratioscope.analysis.importers import lines
from ratioscope.analysis.importers.source import BadLine

_FOOTER = struct.Struct("<IBI")
_MAGIC = 0x8F92EAB1
# Each frame's sizes, compressed and not; with a checksum, where the table has those.
_SIZES, _SIZES_AND_CHECKSUM = struct.Struct("<II"), struct.Struct("<III")
# The writer's frames are 4 MiB; a table that claims far more is damaged, or meant to fill the memory.
_LARGEST_FRAME = 64 << 20
_LARGEST_RECORD = 1 << 30

NULL = -1e308
"""Beyond what a float32 can be."""
_NULL = repr(NULL).encode()


@dataclass(frozen=True)
class Chunks:
    """A stream: a folder of chunks, with its index in a file beside the folder."""

    folder: Path
    arrays: tuple[str, ...] = ()
    """Of its records, see `lines.read`."""
    numbers_alone: bool = False
    """Whether a null in a list is read as the number NULL, so that it is an array, too; of records of whose texts none
    is wanted."""

    @cached_property
    def index(self) -> Path:
        """A row for each record, which says where it is."""
        return self.folder.with_name(f"{self.folder.name}.index.jsonl")

    @property
    def is_live(self) -> bool:
        """Whether a chunk is not sealed yet; of a run that has ended, all are."""
        return any(self.folder.glob("*.jsonl"))

    def record(self, chunk: Any, offset: Any) -> dict[str, Any]:
        """The record that begins there.

        Raises:
            BadLine: none does, or it is not whole; says which.
        """
        if not all(isinstance(place, int) and not isinstance(place, bool) and place >= 0 for place in (chunk, offset)):
            raise BadLine(f"chunk {chunk!r:.20} and offset {offset!r:.20} are no place in {self.folder}")
        line = self._line(chunk, offset)
        if self.numbers_alone:
            line = line.replace(b"[null", b"[" + _NULL).replace(b",null", b"," + _NULL)
        try:
            found = self._parse(line) if line.endswith(b"\n") else None
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise BadLine(f"no whole record begins at byte {offset} of chunk {chunk} of {self.folder}")
        return found

    @cached_property
    def _parse(self) -> lines.Parser:
        return lines.Parser(self.arrays)

    def _line(self, chunk: int, offset: int) -> bytes:
        if chunk not in self._opened:
            # A chunk that is sealed at this moment is whole before the plain one goes.
            with suppress(FileNotFoundError), (self.folder / f"{chunk:05d}.jsonl").open("rb") as file:
                file.seek(offset)
                return file.readline(_LARGEST_RECORD)
        sealed = self._sealed(chunk)
        if sealed is None:
            raise BadLine(f"chunk {chunk} of {self.folder} is missing")
        return sealed.line(offset)

    def _sealed(self, chunk: int) -> "_Sealed | None":
        if chunk not in self._opened:
            path = self.folder / f"{chunk:05d}.jsonl.zst"
            if not path.is_file():
                return None
            self._opened[chunk] = _Sealed(path)
        return self._opened[chunk]

    @cached_property
    def _opened(self) -> dict[int, "_Sealed"]:
        return {}


@dataclass
class _Sealed:
    """A sealed chunk, whose frames are decompressed when something in them is wanted."""

    path: Path
    _starts: list[int] = field(init=False)
    """Of each frame and of the end: the compressed bytes before it."""
    _offsets: list[int] = field(init=False)
    """The same of decompressed bytes."""

    def __post_init__(self) -> None:
        sizes = list(self._sizes())
        self._starts = [0, *accumulate(size for size, _ in sizes)]
        self._offsets = [0, *accumulate(size for _, size in sizes)]
        self.frame = lru_cache(maxsize=2)(self._frame)  # records are asked for in about their order

    def _sizes(self) -> Iterator[tuple[int, int]]:
        with self.path.open("rb") as file:
            length = file.seek(0, 2)
            file.seek(max(length - _FOOTER.size, 0))
            footer = file.read()
            count, flags, magic = _FOOTER.unpack(footer) if len(footer) == _FOOTER.size else (0, 0, 0)
            entry = _SIZES_AND_CHECKSUM if flags & 0x80 else _SIZES
            begin = length - _FOOTER.size - count * entry.size
            if magic != _MAGIC or begin < 0:
                raise BadLine(f"{self.path} is not whole: the table of its frames is missing at its end")
            file.seek(begin)
            for compressed, whole, *_ in entry.iter_unpack(file.read(count * entry.size)):
                yield compressed, whole

    def line(self, offset: int) -> bytes:
        """From there to the next line feed; what there is of it, if none follows."""
        place = bisect_right(self._offsets, offset) - 1
        parts: list[bytes] = []
        read, skip = 0, offset - self._offsets[place]
        while place < len(self._offsets) - 1 and read < _LARGEST_RECORD:
            frame = self.frame(place)
            end = frame.find(b"\n", skip)
            parts.append(frame[skip : end + 1 if end >= 0 else None])
            if end >= 0:
                break
            read, skip, place = read + len(frame), 0, place + 1
        return b"".join(parts)

    def _frame(self, place: int) -> bytes:
        start, size = self._starts[place], self._offsets[place + 1] - self._offsets[place]
        length = self._starts[place + 1] - start
        if max(size, length) > _LARGEST_FRAME:
            raise BadLine(f"a frame of {self.path} claims to hold {max(size, length):,} bytes")
        with self.path.open("rb") as file:
            file.seek(start)
            compressed = file.read(length)
        try:
            return bytes(pa.decompress(compressed, decompressed_size=size, codec="zstd", asbytes=True))
        except (OSError, pa.ArrowException) as error:
            raise BadLine(f"frame {place} of {self.path} cannot be decompressed") from error
