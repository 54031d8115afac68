"""What moved upstream, on a made-up package: nothing is said of what stays, and one line of each thing that moves."""

import subprocess
import zipfile
from pathlib import Path

import pytest

from ratioscope.analysis.frameworks.sources import FRAMEWORKS
from ratioscope.analysis.importers.formats import IMPORTERS
from tests.making import upstream
from tests.making.upstream import Held, Moved, Sources, compare, from_repository, held_in, held_parts, moved, unpacked

WRITER = '''
class LossConfig:
    """Read of nothing."""
    clip_low: float = 0.2
    seed: int = 1

    def write(self, rows, step):
        return {"token_ids": rows, "logprobs": step}

class Other:
    unrelated: int = 3
'''
READER = '''"""A made-up format.

Read against made-up 1.2.0: made/writer.py (LossConfig.write).
"""

KEYS = ("token_ids", "logprobs")
SETTINGS = {"clip_low": 0.2, "seed": 1}
MISSING = {"entropy": "the file has no entropy"}

def wrapped(trainer):
    return trainer.write(KEYS)
'''


def sources(folder: Path, text: str = WRITER, file: str = "made/writer.py", release: str = "") -> Sources:
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(text, encoding="utf-8")
    return Sources(folder, release or folder.name)


@pytest.fixture
def held() -> Held:
    (found,) = held_in(READER, "reader.py", [READER], attributes=True)
    return found


def test_a_docstring_says_what_was_read(held: Held) -> None:
    assert (held.program, held.releases, held.files) == ("made-up", ("1.2.0",), ("made/writer.py",))
    assert {"token_ids", "logprobs", "clip_low", "write"} <= held.words
    assert not {"file", "made", "KEYS"} & held.words  # sentences and our own names
    assert held_in('"""Nothing was read."""', "a.py", [], attributes=False) == []
    fork = READER.replace('.write).\n"""', '.write).\nRead against fork-of-it 0.3: fork/loop.py.\n"""')
    assert [(each.program, each.releases, each.files) for each in held_in(fork, "a.py", [], attributes=False)] == [
        ("made-up", ("1.2.0",), ("made/writer.py",)),
        ("fork-of-it", ("0.3",), ("fork/loop.py",)),
    ]


def test_what_stays_is_not_said(held: Held, tmp_path: Path) -> None:
    before = sources(tmp_path / "1.2.0")
    now = sources(tmp_path / "1.3.0", WRITER + "\nclass More:\n    clip_low: int = 9\n")
    assert moved(held, before, now) == []


@pytest.mark.parametrize(
    ("change", "what", "expected", "found"),
    [
        (('"logprobs"', '"log_probs"'), "a name is gone", "logprobs", "log_probs that is new"),
        (("def write(", "def dump_all("), "a name is gone", "write", "nothing"),
        (("def write(self, rows, step)", "def write(self, step, rows)"), "arguments moved", "write(self, rows, step)",
         "(self, step, rows)"),
        (("clip_low: float = 0.2", "clip_low: float = 0.3"), "a default moved", "LossConfig.clip_low = 0.2", "0.3"),
        (("clip_low: float = 0.2", "clip_low: float = field(default=0.3)"), "a default moved",
         "LossConfig.clip_low = 0.2", "0.3"),
    ],
)  # fmt: skip
def test_what_moves_is_one_line(
    held: Held, tmp_path: Path, change: tuple[str, str], what: str, expected: str, found: str
) -> None:
    before, now = sources(tmp_path / "1.2.0"), sources(tmp_path / "1.3.0", WRITER.replace(*change))
    (one,) = moved(held, before, now)
    assert one == Moved(what, "reader.py", f"{expected} (made-up 1.2.0)", found, "1.3.0")
    assert "\n" not in str(one)


def test_a_file_that_moves_is_said_with_its_place(held: Held, tmp_path: Path) -> None:
    before, now = sources(tmp_path / "1.2.0"), sources(tmp_path / "1.3.0", file="made/new/writer.py")
    found = moved(held, before, now)
    assert [one for one in found if one.what == "a file is gone"] == [
        Moved("a file is gone", "reader.py", "made/writer.py (made-up 1.2.0)", "made/new/writer.py", "1.3.0")
    ]
    assert all(one.found == "it in made/new/writer.py" for one in found if one.what == "a name is gone")


def test_behind_a_preset_all_defaults_of_a_class_count(tmp_path: Path) -> None:
    held = Held("presets", "made-up", ("1.2.0",), ("made/writer.py",), frozenset({"clip_low"}), whole_owners=True)
    text = WRITER.replace("seed: int = 1", "seed: int = 2").replace("unrelated: int = 3", "unrelated: int = 4")
    before, now = sources(tmp_path / "1.2.0"), sources(tmp_path / "1.3.0", text)
    assert [one.expected for one in moved(held, before, now)] == ["LossConfig.seed = 1 (made-up 1.2.0)"]
    after_its_name = Held(
        "presets", "made-up", ("1.2.0",), ("made/writer.py",), frozenset({"other"}), whole_owners=True
    )
    word = sources(tmp_path / "1.2.1", WRITER + "\nother = 1\n")
    assert [
        one.expected for one in moved(after_its_name, word, sources(tmp_path / "1.4.0", text + "\nother = 1\n"))
    ] == ["Other.unrelated = 3 (made-up 1.2.1)"]


def test_each_part_has_a_line(held: Held, tmp_path: Path) -> None:
    same, newer = sources(tmp_path / "1.2.0"), sources(tmp_path / "1.3.0")
    assert list(compare([held], lambda _: (None, newer))) == ["made-up: not installable, held to 1.2.0 (reader.py)"]
    assert list(compare([held], lambda _: (same, same))) == ["made-up 1.2.0: nothing newer (reader.py)"]
    assert list(compare([held], lambda _: (same, newer))) == ["made-up 1.3.0: nothing moved since 1.2.0 (reader.py)"]
    past = Held("old.py", "made-up", ("0.1",), (), frozenset(), past=True)
    assert list(compare([past], lambda _: (same, newer))) == []


def test_the_exit_code_is_that_of_what_moved(
    held: Held, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(upstream, "held_parts", lambda: [held])
    before = sources(tmp_path / "1.2.0")
    for text, code in ((WRITER, 0), (WRITER.replace("0.2", "0.3"), 1)):
        now = sources(tmp_path / f"newer{code}", text)
        monkeypatch.setattr(upstream.Upstream, "both", lambda self, part, now=now: (before, now))
        assert upstream.main(["made-up"]) == code
    assert capsys.readouterr().out.splitlines()[-1].startswith("newer1: a default moved; reader.py expects ")


def test_a_wheel_is_unpacked_and_a_repository_is_read_at_both_commits(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "made_up-1.2.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("made/writer.py", WRITER)
    place = unpacked(tmp_path / "made_up-1.2.0-py3-none-any.whl", tmp_path / "unpacked")
    assert Sources(place, "1.2.0").named("made/writer.py") == [Path("made/writer.py")]
    repository = tmp_path / "repository"
    sources(repository)
    git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "init", "--quiet", str(repository)], check=True)
    for text in (WRITER, WRITER.replace("0.2", "0.3")):
        sources(repository, text)
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "--quiet", "-m", "one"], check=True)
    first = subprocess.run([*git, "rev-parse", "HEAD~1"], check=True, capture_output=True, text=True).stdout.strip()
    found = [from_repository(str(repository), commit, tmp_path / "trees") for commit in (first, "")]
    assert [each.parsed(Path("made/writer.py")).defaults["LossConfig.clip_low"] for each in found if each] == [
        "0.2",
        "0.3",
    ]
    assert from_repository(str(tmp_path / "nowhere"), "", tmp_path / "trees") is None


def test_a_format_that_two_programs_have_is_held_to_both() -> None:
    of_board = {held.program: held.files for held in held_parts() if held.part.endswith("formats/logging_board.py")}
    assert of_board.keys() == {"RLLoggingBoard", "ROLL"}
    assert "rl_logging_board.py" in of_board["RLLoggingBoard"]
    assert "roll/pipeline/rlvr/rlvr_pipeline.py" in of_board["ROLL"]


def test_every_reader_and_recorder_says_what_it_was_read_against() -> None:
    parts = {held.part: held for held in held_parts()}
    modules = {importer.describe.__module__ for importer in IMPORTERS}
    modules |= {type(owner).__module__ for each in IMPORTERS if (owner := getattr(each.describe, "__self__", None))}
    recorders = {f"ratioscope/adapters/{name}" for name in ("trl", "verl", "skyrl.py", "tinker.py")}
    assert recorders <= parts.keys()
    assert {f"analysis/frameworks ({key})" for key in FRAMEWORKS} <= parts.keys()
    assert all(held.releases and held.files for held in parts.values())
    programs = {held.program for held in parts.values()}
    assert not {one for one in programs if not upstream.package_of(one)} - upstream.REPOSITORIES.keys()
    assert upstream.package_of("openpipe-art") == upstream.package_of("ART") == "openpipe-art"
