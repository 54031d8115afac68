"""Who can write the cache, and what a planted entry could do: nothing runs, and what is not believed is not there."""

import logging
import os
import pickle
import stat
from pathlib import Path

import pandas as pd
import pytest

from ratioscope.analysis.diagnosis.opened import open_folder
from ratioscope.analysis.summary import blocks
from ratioscope.cache import Entry, _checksum, distrusted
from ratioscope.dashboard.watching import headlines
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
    kinds = {"findings", "footers", "headlines", "partials", "steps", "summaries"}
    assert {folder.name for folder in root.iterdir()} == kinds
    proof = tmp_path / "it ran"
    for planted in (pickle.dumps(_Planted(proof)), b"", b"[]", b"{}"):
        for path in root.glob("*/*.entry"):
            path.write_bytes(_checksum(planted) + planted)
        again = read()
        pd.testing.assert_frame_equal(again[0], values)
        assert again[1:] == (findings, headline)
    assert not proof.exists()
