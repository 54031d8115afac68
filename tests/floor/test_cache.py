"""The cache: a key follows the code of the package, entries are whole or missing, and the oldest make room."""

import ast
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from ratioscope.errors import RatioscopeError
from ratioscope.storage import cache
from ratioscope.storage.cache import Entry, cache_folder, code_of_package, entry_of
from ratioscope.storage.whole_files import replace_atomically

PACKAGE = ("__init__.py", "schema.py", "analysis/summary/sums.py", "analysis/summary/sums.sql")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package in whose place the cache thinks that it lies, with analysis behind a link; nothing is remembered."""
    root, behind = tmp_path / "fake", tmp_path / "analysis"
    root.mkdir()
    behind.mkdir()
    (root / "analysis").symlink_to(behind)
    for name in PACKAGE:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("# code")
    monkeypatch.setattr(cache, "__file__", str(root / "storage" / "cache.py"))
    code_of_package.cache_clear()
    yield root
    code_of_package.cache_clear()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RATIOSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def key(number: int) -> str:
    return f"{number:032x}"


@pytest.mark.parametrize("changed", PACKAGE)
def test_any_byte_of_the_code_changes_the_key(package: Path, changed: str) -> None:
    before = entry_of("sums", "file")
    assert entry_of("sums", "file") == before != entry_of("sums", "another")
    with (package / changed).open("a") as file:
        file.write("\n")
    code_of_package.cache_clear()
    assert entry_of("sums", "file") != before


def test_code_that_is_moved_changes_the_key_and_what_is_no_code_does_not(package: Path) -> None:
    before = code_of_package()
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "schema.cpython-311.pyc").write_bytes(b"compiled")
    code_of_package.cache_clear()
    assert code_of_package() == before
    (package / "schema.py").rename(package / "analysis" / "schema.py")
    code_of_package.cache_clear()
    assert code_of_package() != before


def test_the_version_of_a_library_changes_the_key(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = code_of_package()
    monkeypatch.setattr(cache, "library_versions", lambda *names: dict.fromkeys(names, "another"))
    code_of_package.cache_clear()
    assert code_of_package() != before


def test_libraries_that_compute_are_in_the_key() -> None:
    """Imported by the floor or by analysis, and neither a filesystem nor a service."""
    root = Path(cache.__file__).parents[1]
    named = set[str]()
    rooms = (path for room in ("rules", "run_format") for path in (root / room).glob("*.py"))
    for path in (*root.glob("*.py"), *rooms, *(root / "analysis").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                named |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                named.add(str(node.module))
    found = {name.partition(".")[0] for name in named}
    others = {"ratioscope", "fsspec", "huggingface_hub", "ray", "transformers"}
    assert set(cache.LIBRARIES) <= found
    assert found - set(cache.LIBRARIES) - others - sys.stdlib_module_names == set()


def test_what_was_put_is_there_until_it_breaks(folder: Path) -> None:
    kept = entry_of("things", "one", "\udcff")
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
    """With a limit of 10 MB, about once in 153 entries of 4 kB; what is there stays below the limit.

    Keys are spread as those of entries are, which are other ones with each change of the code.
    """
    monkeypatch.setenv("RATIOSCOPE_CACHE_LIMIT", "10")
    looks = []
    make_room = cache._make_room
    monkeypatch.setattr(cache, "_make_room", lambda *given: looks.append(given) or make_room(*given))
    for number in range(3_000):
        Entry("small", key(number * 1_237 % 3_000 * 16**32 // 3_000)).put(b"contents")
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
from ratioscope.storage.cache import Entry
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
