"""Who can write the cache, and what a planted entry could do: nothing runs, and what is not believed is not there."""

import logging
import os
import pickle
import stat
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from ratioscope.analysis.diagnosis import Severity
from ratioscope.analysis.diagnosis.opened import open_folder
from ratioscope.analysis.summary import blocks
from ratioscope.dashboard import roots
from ratioscope.dashboard.annotations import Annotation, write_annotation
from ratioscope.dashboard.watching import headlines
from ratioscope.dashboard.watching.alerts import Memory, Terminal, memory_place
from ratioscope.errors import RatioscopeError
from ratioscope.storage.cache import Entry, _checksum, cache_folder, distrusted, own_folder
from ratioscope.trainer.model import warm_start
from tests.making.runs import numbered_step, write_run


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the cache is going to be."""
    monkeypatch.setenv("RATIOSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def entry() -> Entry:
    return Entry("things", 32 * "0")


def mode(folder: Path) -> int:
    return stat.S_IMODE(folder.stat().st_mode) & 0o777


def test_folders_are_made_for_this_user_and_in_a_groups_folder_for_the_group(root: Path) -> None:
    entry().put(b"contents")
    assert (mode(root), mode(root / "things"), entry().get()) == (0o700, 0o700, b"contents")
    root.chmod(0o770)
    Entry("others", 32 * "0").put(b"contents")
    assert mode(root / "others") == 0o770
    root.chmod(0o777)
    Entry("more", 32 * "0").put(b"contents")
    assert mode(root / "more") == 0o700


def test_where_everybody_may_write_nothing_is_read_or_written(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    entry().put(b"contents")
    (root / "things").chmod(0o1777)
    with caplog.at_level(logging.WARNING, "ratioscope"):
        assert entry().get() is None and not entry().there
        Entry("things", 32 * "1").put(b"more")
    assert [path.name for path in (root / "things").iterdir()] == [entry().path.name]
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith(f"ratioscope: {root}/things is not used as a cache, everybody may write into")
    (root / "things").chmod(0o700)
    assert entry().get() == b"contents"


def test_another_users_folder_is_not_believed_unless_it_is_the_groups(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry().put(b"contents")
    if os.geteuid() == 0:  # root's own are believed by everybody
        os.chown(root / "things", 12345, os.getegid())
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert distrusted(root / "things") == "it belongs to another user" and entry().get() is None
    (root / "things").chmod(0o770)
    assert entry().get() == b"contents"


def test_what_is_no_entry_is_not_believed_either_where_everybody_may_write(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was alerted, models that were converted or begun with, other programs' runs."""
    memory = Memory()
    memory.keep(Terminal(), "run", {"diverged": Severity.CRITICAL})
    assert Memory().reported(Terminal(), "run") == {"diverged": Severity.CRITICAL}
    roots.serve_from([tmp_path])
    roots.check_imports()
    imports = roots.imports_of(tmp_path)
    assert roots.shelves() == [tmp_path, imports]
    for purpose in ("bridge", "pretrained", "warm_start"):
        assert own_folder(purpose) == cache_folder(purpose)
    for folder in root.iterdir():
        folder.chmod(0o1777)
    assert Memory().reported(Terminal(), "run") == {} and memory_place("bridge", "wandb", "run") is None
    memory.keep(Terminal(), "another", {})
    assert len(list((root / "alerts").iterdir())) == 1
    assert roots.shelves() == [tmp_path]
    with pytest.raises(RatioscopeError, match="nothing is imported here, everybody may write into it"):
        roots.check_imports()
    assert not warm_start._load_weights(SimpleNamespace(), own_folder("warm_start"))  # type: ignore[arg-type]
    # Who asks for the folder itself does not keep files there without the check.
    package = Path(roots.__file__).parents[1]
    asked = {file.name for file in package.rglob("*.py") if "cache_folder" in file.read_text(encoding="utf-8")}
    assert asked <= {"cache.py", "caching.py", "roots.py"}


def test_each_person_has_a_terminal_in_a_groups_cache(root: Path) -> None:
    root.mkdir()
    root.chmod(0o770)
    mine, another = Terminal(), Terminal()
    another.identity = Terminal.identity + "1"
    Memory().keep(mine, "run", {"diverged": Severity.CRITICAL})
    assert str(os.geteuid()) in mine.identity and Memory().reported(another, "run") == {}
    (kept,) = (root / "alerts").iterdir()
    assert (mode(root / "alerts"), mode(kept)) == (0o770, 0o660)


def test_notes_are_for_their_writer_and_in_a_groups_folder_for_the_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = tmp_path / "data" / "notes"
    monkeypatch.setenv("RATIOSCOPE_NOTES", str(notes))
    for of_folder, of_file in ((0o700, 0o600), (0o755, 0o600), (0o2770, 0o660), (0o775, 0o660), (0o1777, 0o600)):
        write_annotation(tmp_path, Annotation(text="mine"))
        if of_folder == 0o700:
            assert mode(notes) == 0o700
        notes.chmod(of_folder)
        write_annotation(tmp_path, Annotation(text="mine"))
        assert [mode(file) for file in notes.iterdir()] == [of_file], oct(of_folder)


class _Planted:
    """What runs code when it is unpickled."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.proof,)


def test_planted_entries_run_nothing_and_change_nothing(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "UNITS", 2)  # with all that is kept of long runs
    run = write_run(tmp_path / "run", map(numbered_step, range(3)), flush_seconds=0)

    def read() -> tuple[pd.DataFrame, list[str], headlines.Headline]:
        opened = open_folder(run)
        return opened.summary.values, [finding.sentence for finding in opened.findings], headlines.found(run)

    values, findings, headline = read()
    kinds = {"findings", "footers", "headlines", "partials", "responses_by_place", "reward_means", "steps", "summaries"}
    assert {folder.name for folder in root.iterdir()} == kinds
    proof = tmp_path / "it ran"
    for planted in (pickle.dumps(_Planted(proof)), b"", b"[]", b"{}"):
        for path in root.glob("*/*.entry"):
            path.write_bytes(_checksum(planted) + planted)
        again = read()
        pd.testing.assert_frame_equal(again[0], values)
        assert again[1:] == (findings, headline)
    assert not proof.exists()
