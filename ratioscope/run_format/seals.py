"""The seal of a table file: 16 bytes before its footer that say whether data and footer are as they were written.

    contents = sealed(parquet_bytes)
    problem = broken(path)        # "" or why the file cannot be believed

Between data and footer a Parquet file may hold what it likes, and readers never look there. A program that reads the
file and writes it again does not copy the seal, while it does copy what our footer says of values: remarks in a footer
are believed only with their seal (`is_sealed`). The checksum of the data covers every byte before the seal.
"""

import struct
import zlib
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from ratioscope.errors import first_line
from ratioscope.storage.bounds import bomb

# The mark, and the checksums of all data and of the footer.
_SEAL = struct.Struct("<8sII")
_MARK = b"rs-seal1"
_END = struct.Struct("<I4s")
_PIECE = 2**22


def sealed(contents: bytes | memoryview) -> list[bytes | memoryview]:
    """The bytes of a Parquet file in pieces, with a seal."""
    whole = memoryview(contents)
    length, _ = _END.unpack(whole[-_END.size :])
    data, footer = whole[: -_END.size - length], whole[-_END.size - length :]
    return [data, _SEAL.pack(_MARK, zlib.crc32(data), zlib.crc32(footer)), footer]


def is_sealed(path: Path) -> bool:
    """Whether a file, here or elsewhere, has the seal of its footer: what the footer says is of these very data.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        found = _tail(file)
        return found is not None and zlib.crc32(found[1]) == found[2]


def broken(path: Path) -> str:
    """Why a file on this machine is not as it was written, a clause; "" where it is, or where nobody sealed it.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        found = _tail(file)
        if found is None:
            return ""
        size, footer, of_footer, of_data = found
        if zlib.crc32(footer) != of_footer:
            return "its footer is damaged"
        file.seek(0)
        checksum, left = 0, size
        while left and (piece := file.read(min(left, _PIECE))):
            checksum, left = zlib.crc32(piece, checksum), left - len(piece)
    return "" if checksum == of_data else (damaged_row_group(path) or "its data are damaged")


def damaged_row_group(path: Path) -> str:
    """The first row group of a file that cannot be read, a clause; "" where all can.

    Raises:
        OSError: the file cannot be opened.
    """
    with path.open("rb") as file:
        try:
            table = pq.ParquetFile(file, page_checksum_verification=True)
        except (OSError, pa.ArrowException, ValueError) as error:
            return f"it is not a complete Parquet file ({first_line(error, 120)})"
        if why := bomb(table.metadata, path.stat().st_size):
            return why
        for number in range(table.num_row_groups):
            try:
                found = table.read_row_group(number)
            except (OSError, pa.ArrowException, ValueError) as error:
                return f"row group {number} is damaged ({first_line(error, 120)})"
            if why := not_text(found):
                return why
    return ""


def not_text(table: pa.Table) -> str:
    """The first column whose text is not UTF-8, a clause; "": there is none. Parquet takes any bytes as text."""
    for field in table.schema:
        try:
            if not pa.types.is_primitive(field.type):
                table.column(field.name).validate(full=True)
        except pa.ArrowInvalid:
            return f"text in its column {field.name} is not UTF-8"
    return ""


def _tail(file: IO[bytes]) -> tuple[int, bytes, int, int] | None:
    """How many bytes of data there are, the footer with its end, and what the seal says of footer and data."""
    size = file.seek(0, 2)
    if size < _END.size + _SEAL.size:
        return None
    file.seek(size - _END.size)
    length, magic = _END.unpack(file.read(_END.size))
    start = size - _END.size - length - _SEAL.size
    if magic != b"PAR1" or start < 0:
        return None
    file.seek(start)
    mark, of_data, of_footer = _SEAL.unpack(file.read(_SEAL.size))
    if mark != _MARK:
        return None
    return start, file.read(length + _END.size), of_footer, of_data
