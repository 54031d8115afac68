"""What ratioscope says of many runs, as files: a change that is to change nothing leaves them byte for byte.

python -m tests.making.net write FOLDER [WORD ...]   every answer whose name has one of these words, default: all
python -m tests.making.net compare BEFORE AFTER      which answers differ, and the first lines in which they do

Not a test: floats differ from processor to processor in their last digits, so both are written on one machine, BEFORE
in a checkout of the commit that a change starts from. The answers are the JSON of the commands, the report as Markdown
and every page with every fold open, of sample runs, of damaged copies and of what other programs have written.
"""

import argparse
import contextlib
import difflib
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

HASHES = "hashes.json"
_COMMANDS = {
    "summarize": ("summarize", "--json", "--quiet"),
    "check": ("check", "--json", "--quiet"),
    "diagnose": ("diagnose", "--json", "--quiet"),
    "diagnose as text": ("diagnose", "--quiet"),
    "translate": ("translate", "--json", "--quiet"),
}
_REPORTS = {"report md": ".md", "report full md": ".md", "report json": ".json"}
# Reports and pages of these: one run each of what decides which blocks there are.
_PAGED = (
    "mismatch-grpo-seed0", "offline-reinforce-seed0", "sync_interval20-reinforce-lr0.0003-seed0",
    "sync_interval5_mixture4-adaptive_clip-seed0", "sync_offset10-rec_oneside_nois_0.6_2-seed0", "trl-smollm2-gcd",
)  # fmt: skip


def corpus(folder: Path) -> dict[str, Path]:
    """Runs by name: sample runs, logs that lack columns, damaged ones, imported ones."""
    from ratioscope.analysis.importers.detect import the_source
    from ratioscope.analysis.importers.writing import Options, import_run
    from ratioscope.errors import RatioscopeError
    from tests.analysis.importers import test_every_format as formats
    from tests.making import sources
    from tests.making.damaged import DAMAGE
    from tests.making.runs import random_step, write_run
    from tests.making.samples import NAMES, SAMPLE_RUNS

    found = {f"sample {name}": SAMPLE_RUNS / name for name in NAMES}
    for name in sources.SOURCES:
        sources.write_source(folder / "lacking" / name, name)
        found[f"lacking {name}"] = folder / "lacking" / name
    rng = np.random.default_rng(1)
    whole = write_run(folder / "whole" / "run", [random_step(rng, number) for number in range(3)], flush_seconds=0)
    for place, (name, damage) in enumerate(DAMAGE.items()):
        damaged = folder / "damaged" / str(place) / "run"
        damage(Path(shutil.copytree(whole, damaged)))
        found[f"damaged {name}"] = damaged
    for name, make in formats.SOURCES.items():
        theirs = folder / "theirs" / name
        theirs.mkdir(parents=True)
        with contextlib.suppress(RatioscopeError):
            import_run(the_source(make(theirs)), folder / "imported" / name, Options(unpickle=True))
        found[f"imported {name}"] = folder / "imported" / name
    return found


def answers(corpus: dict[str, Path]) -> dict[str, tuple[Callable[..., str], tuple[object, ...]]]:
    """By name, what gives an answer, and of what."""
    found: dict[str, tuple[Callable[..., str], tuple[object, ...]]] = {}
    for name, run in corpus.items():
        paged = name.removeprefix("sample ") in _PAGED or name.startswith("lacking ")
        for command, words in _COMMANDS.items():
            found[f"{command}: {name}"] = (_command, (words[0], str(run), *words[1:]))
        if paged:
            for report, suffix in _REPORTS.items():
                found[f"{report}: {name}"] = (_report, (run, suffix, "full" in report))
        if name.startswith("imported "):
            found[f"contents: {name}"] = (_contents, (run,))
        for page in _pages(name, paged):
            found[f"page {page}: {name}"] = (_page, (page, run))
    samples = [str(run) for name, run in corpus.items() if name.startswith("sample sync_interval20-")]
    found["compare"] = (_command, ("compare", *samples[:12], "--json", "--quiet"))
    return found


def _pages(name: str, paged: bool) -> tuple[str, ...]:
    from tests.dashboard.test_every_page import DAMAGED
    from tests.making.pages import RUN_PAGES

    if paged:
        return (*RUN_PAGES, "compare", "report")
    if name.startswith("damaged "):
        return tuple(page for page, damage in DAMAGED.items() if name == f"damaged {damage}")
    return ("overview", "linter") if name.startswith(("sample ", "imported ")) else ()


def _command(*arguments: str) -> str:
    from ratioscope.dashboard import cli

    out, err = io.StringIO(), io.StringIO()
    before, sys.argv = sys.argv, ["ratioscope", *arguments]
    code: object = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            cli.main()
    except SystemExit as ending:
        code = ending.code
    finally:
        sys.argv = before
    return f"exit code {code or 0}\n{_indented(out.getvalue())}\n{err.getvalue()}"


def _report(run: Path, suffix: str, full: bool) -> str:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"report{suffix}"
        said = _command("report", str(run), "-o", str(file), "--quiet", *(["--full"] if full else []))
        written = _indented(file.read_text(encoding="utf-8")) if file.exists() else ""
        return f"{said}\n{written}".replace(folder, "FOLDER")


def _contents(run: Path) -> str:
    """What was imported: the manifest and every table, as rows of text."""
    import pyarrow.parquet as pq

    parts = [(run / "run.json").read_text(encoding="utf-8")] if (run / "run.json").exists() else []
    for table in ("steps", "sequences", "tokens", "prompts"):
        for file in sorted((run / table).glob("*.parquet")):
            rows = pq.ParquetFile(file).read()
            parts.append(f"{table} {rows.schema.remove_metadata()}\n" + "\n".join(map(repr, rows.to_pylist())))
    return "\n".join(parts)


def _page(page: str, run: Path) -> str:
    from functools import cache

    import streamlit
    from streamlit.components.v2 import manifest_scanner

    from ratioscope.dashboard.roots import serve_from
    from tests.making import pages

    if not hasattr(streamlit.expander, "opens"):
        folded = streamlit.expander

        def expander(*args: object, **options: object) -> object:
            return folded(*args, **options | {"expanded": True})

        expander.opens = True  # type: ignore[attr-defined]
        streamlit.expander = expander  # type: ignore[assignment]
        manifest_scanner.scan_component_manifests = cache(manifest_scanner.scan_component_manifests)
    serve_from([run.parent])
    at = pages.AppTest.from_function(pages._script, args=(page,), default_timeout=300)
    at.query_params["run"] = run.name
    at.run()
    return "\n".join(_drawn(pages.elements(at)))


def _drawn(elements: Iterator[object]) -> Iterator[str]:
    for element in elements:
        kind, proto = getattr(element, "type", ""), getattr(element, "proto", None)
        if kind == "bidi_component":
            yield f"chart {json.loads(proto.json).get('figure', proto.json)}"
            continue
        if kind in ("arrow_data_frame", "table", "dataframe"):
            yield f"{kind}\n{element.value.to_csv()}"  # type: ignore[attr-defined]
            continue
        said = [str(getattr(proto, name, "")) for name in ("label", "body", "help", "options", "placeholder", "url")]
        value = "" if kind in ("button_group",) else str(getattr(element, "value", ""))
        yield " | ".join([kind, value, *said])


def _indented(text: str) -> str:
    """JSON over lines, so that a difference can be read."""
    with contextlib.suppress(ValueError):
        return json.dumps(json.loads(text), indent=1, ensure_ascii=False)
    return text


# What differs from run to run: times, versions of files, identities that are drawn.
_VARYING = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d\\?:\d\d(\\?:\d\d(\.\d+)?)?(Z|[+-]\d\d\\?:\d\d)?"
    r"|\b[0-9a-f]{32}\b|\b[0-9a-f]{16}(?= \(footers)"
    r"|\d+(\.\d+)? (second|minute|hour|day)s? ago"
)


# A process gives a warning once, whichever answer comes first.
_WARNING = re.compile(r"^CHECKOUT.*Warning: .*\n  .*\n", re.MULTILINE)
# Sums over threads differ in their last digits.
_LONG = re.compile(r"-?\d+\.\d{10,}(e-?\d+)?")


def _comparable(text: str) -> list[str]:
    return _LONG.sub(
        lambda found: f"{float(found[0]):.11g}", _VARYING.sub("VARYING", _WARNING.sub("", text))
    ).splitlines()


def _text(answer: Callable[..., str], asked: tuple[object, ...], folder: str) -> str:
    from ratioscope.dashboard.load import server_load

    server_load._followers.clear()  # other viewers would be waited for
    try:
        said = answer(*asked)
    except Exception as error:  # noqa: BLE001 - is an answer, too
        said = f"{type(error).__name__}: {error}"
    checkout = str(Path(__file__).parents[2])
    return _VARYING.sub("VARYING", said.replace(folder, "FOLDER").replace(checkout, "CHECKOUT"))


def _file(folder: Path, name: str) -> Path:
    return folder / "answers" / (re.sub(r"[^\w. -]", "_", name) + ".txt")


def _prepare(folder: str) -> None:
    os.environ.update(COLUMNS="120", NO_COLOR="1", RATIOSCOPE_ROOTS="", RATIOSCOPE_CACHE=f"{folder}/cache")
    import torch

    torch.set_num_threads(1)


def write(folder: Path, words: list[str]) -> None:
    """Every answer as a file of `folder`, and their hashes in one; one process a core, each with every n-th of them."""
    if folder.exists():
        shutil.rmtree(folder)
    (folder / "answers").mkdir(parents=True)
    _prepare(str(folder))
    (folder / "corpus.json").write_text(json.dumps({name: str(run) for name, run in corpus(folder).items()}))
    cores = os.cpu_count() or 1
    own = [sys.executable, "-m", "tests.making.net", "part", str(folder)]
    parts = [subprocess.Popen([*own, str(place), str(cores), *words]) for place in range(cores)]
    failed = [part.args for part in parts if part.wait()]
    hashes = {file.stem: hashlib.sha256(file.read_bytes()).hexdigest() for file in (folder / "answers").iterdir()}
    (folder / HASHES).write_text(json.dumps(dict(sorted(hashes.items())), indent=1))
    print(f"{folder / HASHES}: {len(hashes)} answers", *failed)


def part(folder: Path, place: int, cores: int, words: list[str]) -> None:
    """Every n-th answer of what has one of the words."""
    _prepare(str(folder))
    asked = answers({name: Path(run) for name, run in json.loads((folder / "corpus.json").read_text()).items()})
    chosen = [name for name in asked if not words or any(word in name for word in words)]
    for name in chosen[place::cores]:
        _file(folder, name).write_text(_text(*asked[name], str(folder)), encoding="utf-8")
    sys.stdout.flush()
    os._exit(0)  # DuckDB's threads are not waited for


def compare(before: Path, after: Path) -> int:
    """Print what differs, and how many answers do."""
    a, b = (json.loads((folder / HASHES).read_text()) for folder in (before, after))
    different = 0
    for name in sorted(name for name in a.keys() & b.keys() if a[name] != b[name]):
        files = [folder / "answers" / f"{name}.txt" for folder in (before, after)]
        lines = [_comparable(file.read_text(encoding="utf-8")) for file in files]
        different += lines[0] != lines[1]
        if lines[0] == lines[1]:
            continue
        print(f"== {name}", *[line[:400] for line in difflib.unified_diff(*lines, lineterm="", n=0)][2:14], sep="\n")
    gone = sorted(a.keys() - b.keys()) if len(a) > len(b) else []
    print(f"{different} of {len(a.keys() & b.keys())} differ; only in the first: {len(gone)}")
    return different


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    writing = commands.add_parser("write")
    writing.add_argument("folder", type=Path)
    writing.add_argument("words", nargs="*")
    comparing = commands.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    of_one_core = commands.add_parser("part")
    of_one_core.add_argument("folder", type=Path)
    of_one_core.add_argument("place", type=int)
    of_one_core.add_argument("cores", type=int)
    of_one_core.add_argument("words", nargs="*")
    asked = parser.parse_args()
    if asked.command == "part":
        part(asked.folder, asked.place, asked.cores, asked.words)
    elif asked.command == "write":
        write(asked.folder.resolve(), asked.words)
    else:
        sys.exit(bool(compare(asked.before, asked.after)))


if __name__ == "__main__":
    main()
