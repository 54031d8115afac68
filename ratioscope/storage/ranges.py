"""Objects read by ranges: the parts of a file that are asked for, and as little as possible beside them.

A Parquet file is cut where its column chunks begin and end, by its footer: to read a column of a row group moves these
bytes and no others. What was read stays in the cache (`ratioscope.storage.cache`), by address, size and time.
"""

import hashlib
import io
import os
import threading
from bisect import bisect_right
from collections import OrderedDict
from functools import lru_cache
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ratioscope.storage.cache import Entry
from ratioscope.storage.clients import client
from ratioscope.storage.failures import Truncated, attempted

# The end of a Parquet file is read in one request, which is most often the whole footer.
TAIL_BYTES = 16_384
# Pieces of other files, and the largest of a column chunk.
_PIECE_BYTES, _LARGEST_PIECE = 1 << 20, 8 << 20
_MEMORY_BYTES = 64 << 20
# What pyarrow reads of the end of a file whose footer it does not know.
_GUESS_BYTES = 1 << 16
_MAGIC = b"PAR1"


class Pieces:
    """One state of an object, in pieces that are fetched once."""

    def __init__(self, url: str, size: int, modified_ns: int) -> None:
        self.url, self.size = url, size
        self._identity = f"{url}:{size}:{modified_ns}"
        self._lock = threading.RLock()
        self._bounds: list[int] | None = None
        self._footer: pq.FileMetaData | None = None
        self._file: Any = None

    @property
    def footer(self) -> Any:
        """What the end of a Parquet file says of it (`pyarrow.parquet.FileMetaData`); None where it is none."""
        self.read(self.size - 1, self.size)
        return self._footer

    def read(self, start: int, stop: int) -> bytes:
        """The bytes start..stop, without the last.

        Raises:
            FileNotFoundError: the object is gone.
            StorageError: it cannot be read.
        """
        start, stop = max(start, 0), min(stop, self.size)
        if start >= stop:
            return b""
        with self._lock:
            if self._bounds is None:
                self._bounds = self._cut()
            first, last = bisect_right(self._bounds, start) - 1, bisect_right(self._bounds, stop - 1)
            edges = self._bounds[first : last + 1]
            held = self._all(edges)
        return b"".join(held)[start - edges[0] : stop - edges[0]]

    def _all(self, edges: list[int]) -> list[bytes]:
        """The pieces between the edges; those that are missing and lie side by side come in one request."""
        spans = list(pairwise(edges))
        held = [self._kept(start, stop) for start, stop in spans]
        place = 0
        while place < len(spans):
            if held[place] is not None:
                place += 1
                continue
            behind = place
            while behind < len(spans) and held[behind] is None:
                behind += 1
            start = spans[place][0]
            fetched = self._fetch(start, spans[behind - 1][1])
            for missing in range(place, behind):
                begin, end = spans[missing]
                piece = fetched[begin - start : end - start]
                held[missing] = piece
                self._keep(begin, end, piece)
            place = behind
        return [piece for piece in held if piece is not None]

    def _cut(self) -> list[int]:
        """Where pieces begin, and the end of the file."""
        if not self.url.endswith(".parquet"):
            return [*range(0, self.size, _PIECE_BYTES), self.size]
        tail = max(0, self.size - TAIL_BYTES)
        end = self._all([tail, self.size])[0]
        length = int.from_bytes(end[-8:-4], "little") + 8
        if end[-4:] != _MAGIC or length > self.size:
            return [*range(0, tail, _PIECE_BYTES), tail, self.size]
        cuts = {0, tail, self.size}
        if length > len(end):
            cuts.add(self.size - length)
            end = self._all([self.size - length, tail])[0] + end
        try:
            self._footer = footer = pq.read_metadata(pa.BufferReader(_MAGIC + end[-length:]))
        except (OSError, pa.ArrowException):  # the reader of the file is told
            return sorted(cuts)
        cuts.add(max(0, self.size - _GUESS_BYTES))
        for group in map(footer.row_group, range(footer.num_row_groups)):
            for column in map(group.column, range(group.num_columns)):
                start, size = _start(column), column.total_compressed_size
                cuts.update(range(start, start + size, _LARGEST_PIECE), (start + size,))
        return sorted(cut for cut in cuts if cut <= tail or cut == self.size)

    def _fetch(self, start: int, stop: int) -> bytes:
        def action() -> bytes:
            if self._file is None:
                filesystem, path = client(self.url)
                self._file = filesystem.open_input_file(path)
            data = self._file.read_at(stop - start, start)
            if len(data) != stop - start:
                self._file = None
                raise Truncated(f"{len(data)} bytes of {stop - start} came")
            return data

        return attempted(self.url, action)

    def _entry(self, start: int, stop: int) -> Entry:
        digest = hashlib.sha256(f"{self._identity}:{start}:{stop}".encode(errors="surrogatepass"))
        return Entry("remote", digest.hexdigest()[:32])

    def _kept(self, start: int, stop: int) -> bytes | None:
        entry = self._entry(start, stop)
        return _memory.get(entry.key) or _memory.put(entry.key, entry.get())

    def _keep(self, start: int, stop: int, piece: bytes) -> None:
        entry = self._entry(start, stop)
        entry.put(piece)
        _memory.put(entry.key, piece)


def _start(column: Any) -> int:
    dictionary = column.dictionary_page_offset
    return min(dictionary, column.data_page_offset) if dictionary else column.data_page_offset


class _Memory:
    """The pieces that were used last, so that a column that is read bit by bit is not opened as often."""

    def __init__(self) -> None:
        self._lock, self._held, self._bytes = threading.Lock(), OrderedDict[str, bytes](), 0

    def get(self, key: str) -> bytes | None:
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
            return self._held.get(key)

    def put(self, key: str, piece: bytes | None) -> bytes | None:
        if piece is not None:
            with self._lock:
                self._bytes += len(piece) - len(self._held.pop(key, b""))
                self._held[key] = piece
                while self._bytes > _MEMORY_BYTES:
                    self._bytes -= len(self._held.popitem(last=False)[1])
        return piece


_memory = _Memory()


@lru_cache(maxsize=10_000)
def pieces(url: str, size: int, modified_ns: int) -> Pieces:
    """The pieces of an object in the state that a listing shows."""
    return Pieces(url, size, modified_ns)


class RangeFile(io.RawIOBase):
    """An object as a file that can be read at any place, by several threads, each with its own."""

    def __init__(self, held: Pieces) -> None:
        self.pieces = held
        self._places: dict[int, int] = {}

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, place: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self.tell(), os.SEEK_END: self.pieces.size}[whence]
        self._places[threading.get_ident()] = base + place
        return base + place

    def tell(self) -> int:
        return self._places.get(threading.get_ident(), 0)

    def read(self, size: int = -1) -> bytes:
        place = self.tell()
        data = self.pieces.read(place, self.pieces.size if size is None or size < 0 else place + size)
        self._places[threading.get_ident()] = place + len(data)
        return data

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
