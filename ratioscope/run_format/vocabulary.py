"""Texts of the token ids of a run, as they come up: `vocabulary.parquet` beside its tables."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from ratioscope.background import PASSING
from ratioscope.errors import RunFormatError, first_line
from ratioscope.run_format import schema
from ratioscope.run_format.table_files import write_table_file
from ratioscope.run_format.writers import Seat
from ratioscope.storage.parquet import read_table

_LOG = logging.getLogger("ratioscope")
_NAME = "vocabulary.parquet"


class VocabularyFile:
    """The texts of a run that is being written.

    Args:
        folder: of the run, as errors name it.
        disk: where its files are written.
        seat: of this writer: others may add texts, too.
        decode: text of a token id, called once for each id that occurs; None: none are added.
    """

    def __init__(self, folder: Path, disk: Path, seat: Seat, decode: Callable[[int], str] | None) -> None:
        self._folder, self._disk, self._seat, self._decode = folder, disk, seat, decode
        self._texts: dict[int, str] = {}
        self._undecodable: set[int] = set()

    def resume(self) -> None:
        """Go on from the texts that are there.

        Raises:
            RunFormatError: they cannot be read.
        """
        self._texts = self._on_disk()

    def extend(self, tables: Sequence[pa.Table]) -> None:
        """Write the texts of ids that have come up in these tables of tokens."""
        if self._decode is None:
            return
        listed = [table.column("token_id") for table in tables if "token_id" in table.column_names]
        ids = {token for column in listed for token in pc.unique(column).to_pylist()} - {None}
        unseen = ids - self._texts.keys() - self._undecodable
        if unseen:
            texts = {token: text for token in unseen if (text := self._text_of(token, self._decode)) is not None}
            types = pa.schema([(column.name, column.type) for column in schema.VOCABULARY.columns])
            with self._seat.exchange():
                texts |= self._texts | (self._on_disk() if self._seat.has_company() else {})
                known = sorted(texts)
                columns = {"token_id": known, "text": [texts[i] for i in known]}
                write_table_file(self._disk / _NAME, pa.table(columns, schema=types))
            self._texts = texts  # not before it is on disk: else it would not be tried again

    def _text_of(self, token: int, decode: Callable[[int], str]) -> str | None:
        """Text of a token; None where the tokenizer has none, which is said of the first one."""
        try:
            text = decode(token)
            if not isinstance(text, str):
                raise TypeError(f"it gives {type(text).__name__}, no text")
            return text.encode("utf-8", "replace").decode()
        except BaseException as error:  # noqa: BLE001 - a panic of another language is no Exception
            if not self._undecodable:
                _LOG.warning(
                    "%s: token id %d has no text, and further ones may have none (%s: %s); it is shown by its number.",
                    self._folder, token, type(error).__name__, first_line(error),
                )  # fmt: skip
            self._undecodable.add(token)
            return None

    def _on_disk(self) -> dict[int, str]:
        path = next((path for path in (self._disk / _NAME, self._folder / _NAME) if path.exists()), None)
        if path is None:
            return {}
        try:
            table = read_table(path)
            return dict(zip(table["token_id"].to_pylist(), table["text"].to_pylist(), strict=True))
        except (pa.ArrowException, OSError, KeyError) as error:
            if isinstance(error, OSError) and error.errno in PASSING:
                raise
            raise RunFormatError(
                f"{path}: cannot be read ({first_line(error, 120)}); remove it to keep the texts of what comes."
            ) from None
