"""`ratioscope import`: what another program wrote, as a run."""

import shlex
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ratioscope.dashboard.cli import completion
from ratioscope.dashboard.cli.common import DEFAULT_ROOT, Quiet, app, examples
from ratioscope.dashboard.terminal import complain, print_line, shows_progress
from ratioscope.ending import accept, listen, say_last
from ratioscope.errors import RatioscopeError
from ratioscope.inert import one_line

if TYPE_CHECKING:
    from ratioscope.analysis.importers.detect import FoundSource
    from ratioscope.analysis.importers.writing import Imported, Tell

# Bad lines that are named; more are counted.
_MOST_PROBLEMS = 5
# Reasons of what failed or was dropped that are named, and signs of each.
_MOST_REASONS, _LONGEST_REASON = 4, 80
# Seconds: a source that was written to since may still grow.
_FRESH = 30.0


@app.command(
    name="import",
    epilog=examples(
        "import outputs/my-run",
        "import outputs/my-run --follow",
        "import --template rollouts",
        "import rollouts --mapping mapping.toml --name mine",
    ),
)
def import_source(
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="PATH",
            help="A folder or file that a training framework wrote.",
            autocompletion=completion.folders,
            show_default=False,
        ),
    ] = None,
    to: Annotated[
        Path, typer.Option(help="Folder that the run is written to.", autocompletion=completion.folders)
    ] = DEFAULT_ROOT,
    name: Annotated[str, typer.Option(help="Name of the run; default: that of PATH.", show_default=False)] = "",
    format_name: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="NAME",
            help="Where several formats fit: which.",
            autocompletion=completion.formats,
            show_default=False,
        ),
    ] = "",
    mapping: Annotated[
        Path | None,
        typer.Option(metavar="FILE.toml", help="Describes Parquet, JSON, SQLite or Arrow files of any other program."),
    ] = None,
    template_wanted: Annotated[
        bool, typer.Option("--template", help="Print a mapping file for what is in PATH, with guesses to check.")
    ] = False,
    tokenizer: Annotated[
        str,
        typer.Option(
            metavar="FOLDER_OR_NAME",
            help="Tokenizer for the texts of tokens, as transformers takes it.",
            show_default=False,
        ),
    ] = "",
    allow_pickle: Annotated[
        bool,
        typer.Option("--allow-pickle", help="Read pickles, too; for files you trust."),
    ] = False,
    skip_bad: Annotated[
        bool,
        typer.Option("--skip-bad", help="Leave out what cannot be read and count it; default: nothing is written."),
    ] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Go on while the source grows.")] = False,
    until_quiet: Annotated[
        float, typer.Option(metavar="SECONDS", help="--follow ends when nothing has changed for so long.", min=0.0)
    ] = 1800.0,
    every: Annotated[float, typer.Option(metavar="SECONDS", help="--follow: time between two looks.", min=0.05)] = 5.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what is there, and write nothing.")] = False,
    quiet: Quiet = False,
) -> None:
    """Make a run of what a training framework wrote.

    It says what it found, what is missing and why, and what it takes for granted. Nothing is written into PATH.

    The run appears when it is whole. After Ctrl-C or a crash the same command continues, and until then no run is
    listed; after an error nothing is left. Importing a source again adds what is new of it. With --follow the run is
    there at once and grows; its newest step waits until a later one shows that it is complete.
    """
    from ratioscope.analysis.importers.detect import FoundSource, the_source
    from ratioscope.analysis.importers.vocabulary import token_texts
    from ratioscope.analysis.importers.writing import Options, follow_run, import_run, last_change

    if template_wanted:
        from ratioscope.analysis.importers.template import template

        print_line(template(path))
        return
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        # Who starts a process in the background has it ignore Ctrl-C, which is how the dashboard ends an import.
        listen()
    if path is None:
        raise RatioscopeError("Name what to import: ratioscope import PATH.")
    if mapping is not None:
        from ratioscope.analysis.importers.mapping import importer_of

        importer = importer_of(mapping)
        description = importer.describe(path)
        assert description is not None  # a mapping that does not fit raises
        found = FoundSource(importer, description, path)
    else:
        found = the_source(path, format_name)
    if not quiet or dry_run:
        print_line(_described(found, path))
    if dry_run:
        return
    folder = to / (name or _name_of(found.place))
    if folder.parent.resolve() != to.resolve() or folder.name.startswith("."):
        raise RatioscopeError(
            f"{folder}: cannot be the folder of a run; give it a name without dots before it: --name."
        )
    options = Options(allow_pickle, skip_bad, token_texts(tokenizer) if tokenizer else None)
    began = time.monotonic()
    with _progress(found, quiet) as tell:
        if not follow:
            try:
                done = import_run(found, folder, options, tell)
            except KeyboardInterrupt:
                say_last(f"{folder}: interrupted; nothing is listed until the same command has read the rest.")
                raise
        else:
            try:
                done = follow_run(found, folder, options, every=every, quiet=until_quiet, tell=tell)
            except KeyboardInterrupt:
                accept()
                complain(f"{folder}: no longer followed; the same command goes on where it stopped.")
                return
    for problem in done.problems[:_MOST_PROBLEMS]:
        complain(problem)
    if len(done.problems) > _MOST_PROBLEMS:
        complain(f"And {len(done.problems) - _MOST_PROBLEMS:,} more.")
    print_line(_done(done, time.monotonic() - began))
    age = time.time() - last_change(found.description.path)
    if not follow and age < _FRESH:
        complain(
            f"{found.place} was written to {age:.0f} s ago: its last step may not be whole yet, "
            "which --follow waits for."
        )


def _name_of(path: Path) -> str:
    """The name of a folder, or of a file without its ending."""
    resolved = path.resolve()
    return (resolved.stem if resolved.is_file() else resolved.name) or "imported"


def _described(found: "FoundSource", path: Path) -> str:
    description = found.description
    facts = [
        f"version {description.version}" if description.version else "",
        _many(description.steps, "step") if description.steps is not None else "",
    ]
    said = ", ".join(fact for fact in facts if fact)
    lines = [f"{description.path}: {found.importer.title}{f' ({said})' if said else ''}"]
    if found.place != path:
        lines.insert(0, f"{path}: nothing to import here itself, but one source in the folders below.")
    by_reason: dict[str, list[str]] = {}
    for column, why in description.missing.items():
        by_reason.setdefault(why, []).append(column)
    lines += [f"  missing  {', '.join(columns)}: {why.rstrip('.')}." for why, columns in by_reason.items()]
    lines += [f"  assumed  {sentence.rstrip('.')}." for sentence in description.assumed]
    return "\n".join(map(one_line, lines))


def _many(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'s' * (count != 1)}"


def _done(done: "Imported", seconds: float) -> str:
    if not done.steps:
        return f"{done.folder}: nothing is new, the run is as it was."
    left_out = f", {len(done.problems):,} left out because they cannot be read" if done.problems else ""
    rate = f" ({done.tokens / seconds / 1e6:.2g} M tokens a second)" if done.tokens > 1e5 and seconds > 0.5 else ""
    what = f"{_many(done.tokens, 'token')} of " if done.tokens else ""
    what += _many(done.responses, "response")
    steps = _many(done.steps, "new step" if done.continued else "step")
    lines = [
        f"{done.folder}: {steps} with {what}{left_out}{rate}.",
        *(f"  {one_line(sentence)}" for sentence in _lacking(done)),
        f"ratioscope diagnose {_quoted(done.folder)} says what is wrong, ratioscope dashboard "
        f"{_quoted(done.folder.parent)} shows it.",
    ]
    return "\n".join(lines)


def _lacking(done: "Imported") -> Iterator[str]:
    """What of the responses is not there, a sentence each."""
    of = f"of {_many(done.responses, 'response')}"
    dropped = f"{'is' if done.dropped.total() == 1 else 'are'} dropped from the loss"
    for reasons, what in ((done.failed, "failed"), (done.dropped, dropped)):
        named = [f"{count:,} {why:.{_LONGEST_REASON}}" for why, count in reasons.most_common(_MOST_REASONS)]
        if others := reasons.total() - sum(count for _, count in reasons.most_common(_MOST_REASONS)):
            named.append(f"{others:,} for other reasons")
        if named:
            yield f"{reasons.total():,} {of} {what}: {', '.join(named)}."
    for column in sorted(done.logged):
        none, partly = done.without[column], done.partly[column]
        if none:
            yield f"{none:,} {of} {'has' if none == 1 else 'have'} no {column}."
        if partly:
            yield f"{partly:,} {of} {'has' if partly == 1 else 'have'} {column} for a part of the tokens alone."


def _quoted(folder: Path) -> str:
    """As a shell takes it."""
    return shlex.quote(str(folder))


@contextmanager
def _progress(found: "FoundSource", quiet: bool) -> "Iterator[Tell]":
    """Tokens, megabytes, rate and what remains, on a terminal; do not print inside."""
    if not shows_progress(quiet):
        yield lambda so_far: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    path, steps = found.description.path, found.description.steps
    size = path.stat().st_size if path.is_file() else None
    bar = Progress(
        SpinnerColumn(),
        TextColumn("Importing"),
        BarColumn(),
        TextColumn("{task.fields[count]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True, highlight=False, markup=False),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    began = time.monotonic()
    with bar:
        task = bar.add_task("", total=size if size is not None else steps, count="")

        def tell(so_far: "Imported") -> None:
            rate = so_far.tokens / max(time.monotonic() - began, 1e-9)
            read = f", {so_far.bytes_read / 1e6:,.0f} MB" if so_far.bytes_read else ""
            step = f"step {so_far.last_step:,}, " if so_far.last_step >= 0 else ""
            count = f"{step}{so_far.tokens:,} tokens{read}, {rate / 1e6:.2f} M tokens/s"
            bar.update(task, completed=so_far.bytes_read if size is not None else so_far.steps, count=count)

        yield tell
