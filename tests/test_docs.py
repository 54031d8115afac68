"""The pages of docs/: their generated parts are those of the code, links lead somewhere, commands and examples work."""

import re
import shlex
from dataclasses import fields
from pathlib import Path

import pytest
import typer

from ratioscope.analysis.diagnosis import RULES
from ratioscope.analysis.findings.cause import CAUSES
from ratioscope.analysis.findings.mark import MARKS
from ratioscope.analysis.linter import CHECKS
from ratioscope.analysis.runs.store import open_run
from ratioscope.catalogue import ENTRIES, THRESHOLDS
from ratioscope.dashboard import cli
from ratioscope.dashboard.cli import completion
from ratioscope.run_format.manifest import Manifest
from ratioscope.sources import SOURCES
from ratioscope.trainer.settings.load import load_settings
from tests.cases import score
from tests.making import docs, questions
from tests.making.commands import command

ROOT = docs.ROOT
PAGES = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
         for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(docs.FOLDER.rglob("*.md")))}  # fmt: skip
_LINK = re.compile(r"\]\(([^)\s]+)\)")
# Files as the text names them, in backticks: `analysis/runs/relations.py`, `ratioscope/catalogue/`.
_PATH = re.compile(r"`((?:analysis|dashboard|docs|ratioscope|sample_runs|tests|trainer)/[\w./-]*)`")


def prose(text: str) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(text: str) -> set[str]:
    """What a link may name after its #: headings as GitHub spells them, and anchors of our own."""
    headings = re.findall(r"^#+ (.+)$", prose(text), flags=re.MULTILINE)
    spelled = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return spelled | set(re.findall(r'<a id="([^"]+)">', text))


def test_generated_parts_are_those_of_the_code() -> None:
    found = docs.pages()
    stale = [page.name for page in found if docs.made(text := page.read_text(encoding="utf-8")) != text]
    assert stale == [], "run `make docs`"
    named = [name for page in found for name in docs.names(page.read_text(encoding="utf-8"))]
    assert sorted(named) == sorted(docs.PARTS)


@pytest.mark.parametrize("page", questions.pages(), ids=lambda page: page.stem)
def test_what_a_question_quotes_of_the_sample_runs_is_what_they_say(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert questions.made(text) == text, "run `make docs`"


def test_every_relative_link_leads_somewhere() -> None:
    broken = []
    for page, text in PAGES.items():
        for link in _LINK.findall(prose(text)):
            target, _, anchor = link.partition("#")
            if "://" in link:
                continue
            file = ((ROOT / page).parent / target).resolve() if target else ROOT / page
            if not file.exists() or (anchor and anchor not in anchors(file.read_text(encoding="utf-8"))):
                broken.append(f"{page}: {link}")
    assert broken == []


def test_every_path_that_is_named_exists() -> None:
    named = [(page, path) for page, text in PAGES.items() for path in _PATH.findall(prose(text))]
    named = [(page, path) for page, path in named if not re.search(r"/x\b|\.\.\.", path)]  # any room, any file
    assert [f"{page}: {path}" for page, path in named if not (ROOT / path).exists()] == []


def test_examples_of_the_run_format_write_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for block in re.findall(r"```python\n(.*?)```", PAGES["docs/run_format.md"], flags=re.DOTALL):
        exec(block, {})
    runs = {name: open_run(tmp_path / "runs" / name) for name in ("recorded", "by_hand")}
    assert {name: (run.status, run.problems, run.last_step) for name, run in runs.items()} == dict.fromkeys(
        runs, ("finished", (), 1)
    )
    assert [len(run.read("tokens")) for run in runs.values()] == [12, 6]


def test_every_metric_threshold_finding_and_check_is_defined() -> None:
    text = PAGES["docs/metrics.md"]
    assert [key for key in (*ENTRIES, *THRESHOLDS) if f'<a id="{key}"></a>' not in text] == []
    assert [key for key in (*RULES, *CHECKS) if f"\n| `{key}` |" not in text] == []


def test_a_rule_is_shown_with_its_limits_and_source() -> None:
    row = next(line for line in PAGES["docs/metrics.md"].splitlines() if line.startswith("| `staleness_high` |"))
    assert "(#epsilon_stale)" in row and "S0 5.6" in row


def test_every_field_of_the_manifest_is_in_the_format() -> None:
    named = {field.name for field in fields(Manifest)} - {"extra"}
    assert [name for name in sorted(named) if f"`{name}`" not in PAGES["docs/run_format.md"]] == []


def commands() -> list[tuple[str, list[str]]]:
    """Every `ratioscope ...` in the text of a page, and in its blocks of shell."""
    inline = [(page, line) for page, text in PAGES.items() for line in re.findall(r"`ratioscope (.+?)`", prose(text))]
    blocks = [
        (page, line.removeprefix("ratioscope "))
        for page, text in PAGES.items()
        for language, block in re.findall(r"^```(\w*)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
        if language in ("", "sh")
        for line in block.splitlines()
        if line.startswith("ratioscope ")
    ]
    return [(page, shlex.split(re.split(r" [>|&]", line)[0], comments=True)) for page, line in inline + blocks]


def test_every_command_parses_and_means_something(monkeypatch: pytest.MonkeyPatch) -> None:
    app = typer.main.get_command(cli.app)
    for one in app.commands.values():
        monkeypatch.setattr(one, "callback", lambda **values: None)
    known = set(completion.explained(""))
    for page, words in commands():
        if words[0].startswith("--"):
            continue
        where = f"{page}: {' '.join(words)}"
        assert words[0] in app.commands, where
        if len(words) == 1 or words[1].startswith("--"):  # the name of a command or of its option
            continue
        app.main([*words], prog_name="ratioscope", standalone_mode=False)
        named = [word for word in words[1:] if word.startswith("sample_runs") and "nowhere" not in word]
        assert all(any(ROOT.glob(word)) for word in named), where
        if words[0] == "train" and "--resume" not in words:
            load_settings(words[1], [word for word in words[2:] if re.match(r"[\w.]+=", word)])
        if words[0] == "explain" and words[1] != words[1].upper():
            assert words[1] in known, where


def test_every_source_has_its_part_of_the_page() -> None:
    assert [name for name in SOURCES if f"\n## {name}: " not in PAGES["docs/papers.md"]] == []


def test_views_of_the_protocol_are_made_where_the_page_says() -> None:
    rows = re.findall(r"^\| (`\w+`.*?) \|.*\| (?:`(.+?)`|the same) \|$", PAGES["docs/architecture.md"], re.MULTILINE)
    views = [(view, path) for names, path in rows if path.endswith(".sql") for view in re.findall(r"`(\w+)`", names)]
    assert len(views) > 5
    assert [view for view, path in views if f"view {view} as" not in (ROOT / path).read_text(encoding="utf-8")] == []


def test_readme_and_guide_count_what_is_declared() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for n, of in ((len(CHECKS), "checks"), (len(RULES), "rules"), (len(CAUSES), "causes"), (len(MARKS), "signs")):
        assert re.search(rf"\b{n} {of}\b", text), f"{n} {of}"
    n_faults = sum(score.kind_of(case).endswith("faults") for case in score.CASES.values())
    guide = (ROOT / "docs/guide.md").read_text(encoding="utf-8")
    assert f"{n_faults} faults" in text and f"{n_faults} faults" in guide
    for n, of in ((len(RULES), "rules"), (len(CAUSES), "causes"), (len(MARKS), "signs")):
        assert re.search(rf"\b{n} {of}\b", guide), f"{n} {of} of the guide"


def test_readme_shows_what_diagnose_prints(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    block = r"```sh\n(ratioscope diagnose [^\n]*)\n```\n\n```text\n(.*?)\n\.\.\.\n```"
    found = re.search(block, PAGES["README.md"], re.DOTALL)
    assert found is not None
    words = found[1].split()[1:]
    printed = command(monkeypatch, capsys, *words[:-1], ROOT / words[-1]).succeeded()
    assert " ".join(printed.split()).startswith(" ".join(found[2].split()))
