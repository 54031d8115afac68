"""The cache: a key follows the code that is imported, entries are whole or missing, and the oldest make room."""

import ast
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread

import pytest

from ratioscope import cache
from ratioscope.cache import Entry, cache_folder, code_of, entry_of, followed
from ratioscope.errors import RatioscopeError
from ratioscope.whole_files import replace_atomically

PACKAGE = {
    "__init__.py": """
        from typing import TYPE_CHECKING
        from fake.floor.face import shown
        def look():
            from fake import screens
        """,
    "top.py": """
        '''A docstring that says
        import it.
        '''
        import json
        from fake import metric
        from fake.rooms import middle as between
        from typing import TYPE_CHECKING
        import numpy
        if TYPE_CHECKING:
            from fake import hints
        def lazily():
            from fake.rooms.late import LATE
            return LATE, "of no import at all"
        """,
    "metric.py": "import fake.rooms.circle",
    "hints.py": "HINT = 1",
    "screens.py": "SCREEN = 1",
    "unrelated.py": "NOTHING = 1",
    "floor/__init__.py": "",
    "floor/face.py": "def shown(): ...",
    "rooms/__init__.py": "raise AssertionError('code is read, not run')",
    "rooms/middle.py": "from .deep import LARGEST",
    "rooms/deep.py": "LARGEST = 0.1",
    "rooms/late.py": "LATE = 1",
    "rooms/circle.py": "from fake import metric, shown",
    "rooms/query.sql": "select 1",
    "floor/query.sql": "select 1",
    "other/query.sql": "select 1",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package called fake, with nothing remembered of it."""
    for name, text in PACKAGE.items():
        place = tmp_path / "fake" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(re.sub(r"(?m)^ {8}", "", text))
    monkeypatch.syspath_prepend(tmp_path)
    forget()
    return tmp_path / "fake"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RATIOSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def forget() -> None:
    for remembered in (code_of, cache._imports, cache._file):
        remembered.cache_clear()


def key(number: int) -> str:
    return f"{number:032x}"


def test_followed_are_the_modules_that_are_imported_and_their_sql(package: Path) -> None:
    files, libraries = followed("fake.top")
    assert [path.relative_to(package).as_posix() for path in files] == [
        "__init__.py", "floor/face.py", "metric.py", "rooms/circle.py", "rooms/deep.py", "rooms/late.py",
        "rooms/middle.py", "top.py", "floor/query.sql", "rooms/query.sql",
    ]  # fmt: skip
    assert libraries == ["numpy"]
    with pytest.raises(ModuleNotFoundError):
        followed("fake.nowhere")


@pytest.mark.parametrize("changed", ["top.py", "rooms/deep.py", "rooms/late.py", "rooms/query.sql", "floor/face.py"])
def test_a_constant_that_is_imported_indirectly_changes_the_key(package: Path, changed: str) -> None:
    before = entry_of("sums", "fake.top", "file")
    assert entry_of("sums", "fake.top", "file") == before != entry_of("sums", "fake.top", "another")
    with (package / changed).open("a") as file:
        file.write("\n")
    forget()
    assert entry_of("sums", "fake.top", "file") != before


@pytest.mark.parametrize("changed", ["unrelated.py", "hints.py", "screens.py", "rooms/__init__.py", "other/query.sql"])
def test_code_that_is_not_imported_changes_no_key(package: Path, changed: str) -> None:
    before = code_of("fake.top")
    with (package / changed).open("a") as file:
        file.write("\n")
    forget()
    assert code_of("fake.top") == before


def test_the_version_of_an_imported_library_changes_the_key(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = code_of("fake.top")
    monkeypatch.setattr(cache, "library_versions", lambda *names: dict.fromkeys(names, "another"))
    forget()
    assert code_of("fake.top") != before


def test_code_is_parsed_while_other_threads_parse(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.11 says now and then that it cannot: python/cpython#106905."""
    before, parse, failures = followed("fake.top"), ast.parse, iter([SystemError("depth mismatch")] * 3)

    def parse_sometimes(text: str) -> ast.Module:
        for failure in failures:
            raise failure
        return parse(text)

    cache._imports.cache_clear()
    monkeypatch.setattr(ast, "parse", parse_sometimes)
    assert followed("fake.top") == before
    assert next(failures, None) is None


def test_partials_follow_the_schema_and_the_queries_and_no_page() -> None:
    files = followed("ratioscope.analysis.summary.partials")[0]
    root = Path(cache.__file__).parent
    names = {path.relative_to(root).as_posix() for path in files}
    assert {"schema.py", "tails.py", "analysis/runs/relations.py", "analysis/runs/tokens.sql"} <= names
    assert "analysis/summary/group_sums.sql" in names
    assert not [name for name in names if name.startswith(("dashboard", "trainer"))]


def test_every_query_that_a_kept_number_comes_from_is_followed() -> None:
    root = Path(cache.__file__).parent
    files = followed("ratioscope.dashboard.watching.headlines")[0]
    code = "".join(path.read_text(encoding="utf-8") for path in files if path.suffix == ".py")
    named = re.findall(r"\b(?:query|filled)\(\s*\"(\w+/\w+)\"", code)
    assert len(named) > 5
    assert {root / "analysis" / f"{name}.sql" for name in named} <= set(files)


def test_what_was_put_is_there_until_it_breaks(folder: Path) -> None:
    kept = entry_of("things", "ratioscope.schema", "one", "\udcff")
    assert kept.get() is None
    kept.put(b"")
    assert kept.get() == b""
    kept.put(b"contents")
    assert kept.get() == b"contents"
    assert [path.name for path in (folder / "things").iterdir()] == [f"{kept.key}.entry"]
    for broken in (b"", b"abc", kept.path.read_bytes()[:-1], bytes(100)):
        kept.path.write_bytes(broken)
        assert kept.get() is None
        assert not kept.path.exists()


def test_a_cache_in_a_place_that_cannot_be_used_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("RATIOSCOPE_CACHE", str(tmp_path / "file"))
    kept = Entry("things", key(0))
    kept.put(b"contents")
    assert kept.get() is None
    monkeypatch.setenv("RATIOSCOPE_CACHE", str(tmp_path))
    kept.path.mkdir(parents=True)
    kept.put(b"contents")
    assert kept.get() is None
    assert [path.name for path in kept.path.parent.iterdir()] == [kept.path.name]


def test_the_least_recently_used_make_room(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen entries of 100 kB and a limit of 1 MB; one of the oldest has just been read."""
    monkeypatch.setenv("RATIOSCOPE_CACHE_LIMIT", "1000")
    kept = [Entry("many", key(number)) for number in range(16)]
    for number, one in enumerate(kept):
        one.put(bytes(98_000))
        os.utime(one.path, (time.time() - 100_000 + number,) * 2)
    (folder / "many" / f"{key(99)}.entry.tmp-1-1").write_bytes(b"left over")
    os.utime(folder / "many" / f"{key(99)}.entry.tmp-1-1", (0, 0))
    (folder / "many" / f"{key(99)}.entry.tmp-2-2").write_bytes(b"somebody is writing this")
    for stays in ("alerts/0.json", "pretrained/weights", "many/of-others.entry"):
        (folder / stays).parent.mkdir(parents=True, exist_ok=True)
        (folder / stays).write_bytes(bytes(1_000_000))
    kept[2].get()
    monkeypatch.setenv("RATIOSCOPE_CACHE_LIMIT", "1")
    Entry("few", key(0)).put(bytes(98_000))
    there = [number for number, one in enumerate(kept) if one.path.exists()]
    assert there == [2, *range(11, 16)]
    assert Entry("few", key(0)).get() is not None
    names = sorted(path.name for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".entry"))
    assert names == ["0.json", f"{key(99)}.entry.tmp-2-2", "weights"]
    assert (folder / "many" / "of-others.entry").exists()


def test_the_folder_is_looked_through_now_and_then(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a limit of 10 MB, about once in 153 entries of 4 kB; what is there stays below the limit."""
    monkeypatch.setenv("RATIOSCOPE_CACHE_LIMIT", "10")
    looks = []
    make_room = cache._make_room
    monkeypatch.setattr(cache, "_make_room", lambda *given: looks.append(given) or make_room(*given))
    for number in range(3_000):
        entry_of("small", "ratioscope.errors", str(number)).put(b"contents")
    assert 10 <= len(looks) <= 30
    assert 1_500 < sum(1 for _ in (folder / "small").iterdir()) <= 10e6 / 4096


def test_the_limit_is_a_number_and_nothing_larger_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Entry("things", key(0))
    for limit in ("0", "0.1"):
        monkeypatch.setenv("RATIOSCOPE_CACHE_LIMIT", limit)
        kept.put(bytes(200_000))
        assert kept.get() is None
    for wrong in ("2 GB", "-1", "nan"):
        monkeypatch.setenv("RATIOSCOPE_CACHE_LIMIT", wrong)
        with pytest.raises(
            RatioscopeError, match=f"RATIOSCOPE_CACHE_LIMIT must be a number of megabytes, not '{wrong}'"
        ):
            kept.put(b"contents")
    monkeypatch.setenv("RATIOSCOPE_CACHE_LIMIT", "")
    kept.put(b"contents")
    assert kept.get() == b"contents"


_WRITER = """
import sys
from ratioscope.cache import Entry
for number in range(400):
    contents = bytes([number % 7]) * (1_000 * (number % 50))
    entry = Entry("shared", f"{number % 40 * 107374182:08x}" + 24 * "0")
    entry.put(contents)
    found = entry.get()
    assert found is None or len(found) % 1_000 == 0 and len(set(found)) <= 1, number
"""


def test_processes_and_threads_that_put_at_once_leave_whole_entries(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With so low a limit that each makes room all the time."""
    monkeypatch.setenv("RATIOSCOPE_CACHE_LIMIT", "0.5")
    writers = [subprocess.Popen([sys.executable, "-c", _WRITER]) for _ in range(2)]
    failed: list[BaseException] = []

    def write() -> None:
        try:
            exec(_WRITER, {})
        except BaseException as error:  # noqa: BLE001 - is looked at below
            failed.append(error)

    threads = [Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [writer.wait() for writer in writers] == [0, 0]
    assert not failed
    left = list(cache_folder("shared").iterdir())
    assert left and all(path.suffix == ".entry" for path in left)


def test_a_file_that_cannot_be_replaced_leaves_nothing_beside_it(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError):
        replace_atomically(tmp_path / "taken", b"contents")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
