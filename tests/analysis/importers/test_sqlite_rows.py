"""SQLite as rows: live databases are left alone, and hostile ones are one sentence."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from ratioscope.analysis.importers.source import ImportProblem
from ratioscope.analysis.importers.sqlite_rows import connected, rows, tables


def made(file: Path, *, count: int = 150, journal: str = "delete") -> sqlite3.Connection:
    connection = sqlite3.connect(file)
    connection.execute(f"PRAGMA journal_mode = {journal}")
    connection.execute('CREATE TABLE "the rows" (name TEXT PRIMARY KEY, "a ""value""" REAL, blob BLOB)')
    for number in range(count):
        connection.execute(
            'INSERT INTO "the rows" VALUES (?, ?, ?)', (f"row {count - number}", number / 8, b"\x00\xff")
        )
    connection.commit()
    return connection


def beside(file: Path) -> dict[str, tuple[int, bytes]]:
    """What lies in its folder; of what readers and the writer share that it is there."""
    found = [path for path in sorted(file.parent.iterdir()) if path.is_file()]
    shared = {path.name for path in found if path.name.endswith("-shm")}
    return {
        path.name: (0, b"") if path.name in shared else (path.stat().st_mtime_ns, path.read_bytes()) for path in found
    }


def test_rows_come_in_the_order_in_which_they_were_written(tmp_path: Path) -> None:
    file = tmp_path / "a #?% name.db"
    made(file).close()
    assert tables(file) == {"the rows": ["name", 'a "value"', "blob"]}
    found = list(rows(file, "the rows"))
    assert [row["name"] for row in found] == [f"row {150 - number}" for number in range(150)]
    assert [row['a "value"'] for row in found] == [number / 8 for number in range(150)]
    assert found[0]["blob"] == b"\x00\xff"


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_a_database_that_is_being_written_is_neither_changed_nor_locked(journal: str, tmp_path: Path) -> None:
    file = tmp_path / "live.db"
    with closing(made(file, journal=journal)) as writer:
        before = beside(file)
        reading = rows(file, "the rows")
        next(reading)
        assert beside(file) == before
        writer.execute("PRAGMA busy_timeout = 0")
        writer.execute('INSERT INTO "the rows" VALUES (?, 0, NULL)', ("new",))
        writer.commit()  # raises where a reader is in the way
        assert [row["name"] for row in reading][-1] == "new"


def test_a_database_that_was_closed_gets_no_files_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "closed.db"
    made(file, journal="wal").close()
    before = beside(file)
    assert list(before) == ["closed.db"] and len(list(rows(file, "the rows"))) == 150
    assert beside(file) == before


@pytest.mark.parametrize("endings", [["-wal"], ["-wal", "-shm"]])
def test_what_a_killed_program_left_behind_is_read_with_its_log(endings: list[str], tmp_path: Path) -> None:
    live, file = tmp_path / "live.db", tmp_path / "killed" / "live.db"
    file.parent.mkdir()
    with closing(made(live, journal="wal")):
        for ending in ["", *endings]:
            shutil.copyfile(f"{live}{ending}", f"{file}{ending}")
    before = beside(file)
    assert len(list(rows(file, "the rows"))) == 150
    assert beside(file) == before


def test_what_a_schema_could_run_is_no_table(tmp_path: Path) -> None:
    file = tmp_path / "hostile.db"
    with closing(made(file, count=3)) as connection:
        connection.execute(
            "CREATE VIEW endless AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
        )
        connection.execute("CREATE VIRTUAL TABLE made_up USING fts5(text)")
        connection.execute("CREATE TABLE large (a INTEGER, b AS (hex(zeroblob(900))))")
        connection.execute("INSERT INTO large (a) VALUES (1)")
        connection.commit()
    assert list(rows(file, "large")) == [{"a": 1}]
    for name in ("endless", "made_up", "nothing", 'x" --'):
        with pytest.raises(ImportProblem, match="has no table"):
            next(rows(file, name))


def _no_database(file: Path) -> None:
    file.write_bytes(b"not a database at all" * 100)


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:5000])


def _overwritten(file: Path) -> None:
    whole = bytearray(file.read_bytes())
    whole[4096:8192] = os.urandom(4096)
    file.write_bytes(whole)


def _too_long(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute('INSERT INTO "the rows" VALUES (?, 0, zeroblob(400000))', ("long",))
        connection.commit()


def _a_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def _no_text(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("INSERT INTO \"the rows\" VALUES (CAST(x'ff' AS TEXT), 0, NULL)")
        connection.commit()


@pytest.mark.parametrize("damage", [_no_database, _cut, _overwritten, _too_long, _a_pipe, _no_text, Path.unlink])
def test_a_damaged_or_hostile_file_is_one_sentence(
    damage: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATIOSCOPE_LARGEST_GB", "0.001")
    file = tmp_path / "bad.db"
    made(file).close()
    damage(file)
    with pytest.raises(ImportProblem) as problem:
        list(rows(file, "the rows"))
    assert str(file) in str(problem.value) and "\n" not in str(problem.value) and str(problem.value).endswith(").")


def test_what_is_wrong_with_a_question_is_said_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    made(file).close()
    with pytest.raises(ImportProblem, match="no such table"), connected(file) as connection:
        connection.execute("SELECT * FROM nowhere")
    with pytest.raises(ImportProblem, match="readonly"), connected(file) as connection:
        connection.execute('DELETE FROM "the rows"')


@pytest.mark.parametrize("closes", [False, True])
@pytest.mark.parametrize("said", ["DELETE FROM t WHERE a < 1500", "UPDATE t SET b = 'y' || b", "DELETE FROM t; VACUUM"])
def test_a_writer_that_comes_during_the_read_tears_no_row(said: str, closes: bool, tmp_path: Path) -> None:
    """Of a closed database with a write-ahead log: what is read on is what the writer made of it."""
    file = tmp_path / "a.db"
    with closing(sqlite3.connect(file)) as made:
        made.execute("PRAGMA journal_mode = wal")
        made.execute("CREATE TABLE t (a INT, b TEXT)")
        made.executemany("INSERT INTO t VALUES (?, ?)", [(number, str(number) * 100) for number in range(2000)])
        made.commit()
    reading = rows(file, "t")
    found = [next(reading)]
    with closing(sqlite3.connect(file)) as writer:
        writer.executescript(f"{said}; INSERT INTO t SELECT a + 9000, b FROM t WHERE a > 1990")
        if not closes:
            found += islice(reading, 10_000)
    found += islice(reading, 10_000)
    numbers = [row["a"] for row in found]
    assert numbers == sorted(set(numbers)) and (numbers[-1] > 9000 or "VACUUM" in said)
    assert all(row["b"].removeprefix("y") == str(row["a"] % 9000) * 100 for row in found)


@pytest.mark.parametrize("times", [3, 100])
def test_files_beside_it_that_come_and_go_are_waited_for(
    times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is there when it is looked for and gone when SQLite opens it, some times or for ever."""
    file = tmp_path / "a.db"
    made(file, journal="wal").close()
    beside, left = [tmp_path / f"a.db{ending}" for ending in ("-wal", "-shm")], [times]
    connect = sqlite3.connect

    def put() -> None:
        left[0] -= 1
        for path in beside:
            path.write_bytes(b"x" * 100)

    def opened(*given: Any, **more: Any) -> sqlite3.Connection:
        for path in beside:
            path.unlink(missing_ok=True)
        return connect(*given, **more)

    def rest(_: float) -> None:
        if left[0]:
            put()

    put()
    monkeypatch.setattr(sqlite3, "connect", opened)
    monkeypatch.setattr("time.sleep", rest)
    if times == 3:
        assert len(list(rows(file, "the rows"))) == 150
    else:
        with pytest.raises(ImportProblem, match="was written while it was read; import it again"):
            list(rows(file, "the rows"))


def test_names_that_look_like_those_of_sqlite_are_tables(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE sqliteruns (a INTEGER PRIMARY KEY AUTOINCREMENT)")
    assert tables(file) == {"sqliteruns": ["a"]}
