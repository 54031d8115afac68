"""The command line: the one place that knows all four packages, each imported inside its command."""

import json
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console

from ratioscope.errors import RatioscopeError

if TYPE_CHECKING:
    from analysis.comparison import Member
    from trainer.ablation import Grid
    from trainer.config import TrainConfig
    from trainer.loop import Progress as TrainingProgress

app = typer.Typer(
    name="ratioscope",
    help="Diagnostics for off-policy LLM reinforcement learning.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
# Log texts are printed through `print`, never through markup.
console = Console(highlight=False, markup=False, stderr=True)

DEFAULT_ROOT = Path("runs")
DEFAULT_PORT = 8501
USAGE_ERROR = 2
PROBLEMS_FOUND = 1

Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings, e.g. sync_interval=20.")
]
Root = Annotated[Path, typer.Option(help="Folder that runs are written to.")]
Port = Annotated[int, typer.Option(help="Port on the loopback interface.", min=1, max=65535)]


def main() -> None:
    """The console command: a user's mistake is one sentence and exit code 2."""
    try:
        app()
    except RatioscopeError as error:
        print(f"ratioscope: {error}", file=sys.stderr)
        sys.exit(USAGE_ERROR)


@app.command(epilog="Example: ratioscope demo --port 8600")
def demo(port: Port = DEFAULT_PORT, root: Root = DEFAULT_ROOT) -> None:
    """Train a short live run and open the dashboard on it and on the sample runs."""
    from ratioscope.manifest import now
    from trainer.ablation import plan  # fails early when the installation lacks the trainer

    _check_port(port)
    name = plan("demo", []).cells[0].config.run_name().replace(" ", "-")
    folder = root / f"{name}-{now()[:19].replace(':', '')}"
    trainer = subprocess.Popen(
        [sys.executable, "-m", "dashboard.cli", "train", "demo", "--folder", str(folder), "--quiet"],
        start_new_session=True,  # Ctrl-C reaches this process, which then asks the trainer to stop
    )
    samples = sample_runs_folder()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # by way of `finally`
    try:
        _serve([root, *([samples] if samples else [])], port, page=f"overview?run={folder.name}")
    finally:
        _stop(trainer)


@app.command(epilog="Example: ratioscope train sync_interval algorithm=rec_oneside_nois epsilon_high=2.0 seed=1")
def train(
    preset: Annotated[str, typer.Argument(help="A preset's name, a .toml file, or with --resume a run's folder.")],
    overrides: Overrides = None,
    root: Root = DEFAULT_ROOT,
    folder: Annotated[Path | None, typer.Option(help="The run's own folder; default: ROOT/<name>.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the interrupted run in the folder PRESET.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
) -> None:
    """Train one run; Ctrl-C stops it after the update, --resume goes on."""
    from trainer.loop import configuration_of
    from trainer.settings import load

    if resume:
        folder = Path(preset)
        config = configuration_of(folder, overrides or [])
    else:
        config = load(preset, overrides or [])
        folder = folder or root / config.run_name()
    status = _train(config, folder, resume=resume, quiet=quiet)
    if status == "interrupted":
        print(f"Interrupted; go on with: ratioscope train --resume {folder}")
    else:
        print(f"Finished: {folder}")


@app.command(epilog="Example: ratioscope ablate sync_interval algorithm=reinforce,grpo seed=0,1,2")
def ablate(
    name: Annotated[str, typer.Argument(help="A study (figure3) or a preset.")],
    overrides: Overrides = None,
    root: Root = DEFAULT_ROOT,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
) -> None:
    """Train a grid of runs; several values for a key make one run each. Finished runs are left as they are."""
    from ratioscope.manifest import MANIFEST_NAME, Manifest
    from trainer.ablation import plan

    grid = plan(name, overrides or [])
    for number, cell in enumerate(grid.cells, start=1):
        folder = root / cell.config.run_name()
        there = (folder / MANIFEST_NAME).exists()
        if there and Manifest.read(folder).status == "finished":
            print(f"{number}/{len(grid.cells)} {folder}: already finished")
            continue
        print(f"{number}/{len(grid.cells)} {folder}", flush=True)
        # One file a table: nobody follows a grid live, and small files cost room.
        if _train(cell.config, folder, resume=there, quiet=quiet, flush_seconds=600.0) == "interrupted":
            print("Interrupted; the same command goes on.")
            raise typer.Exit(130)
    if grid.claims:
        _print_claims(grid, root)
    print(f"Compare them with: ratioscope dashboard {root}")


@app.command(epilog="Example: ratioscope dashboard runs sample_runs")
def dashboard(
    roots: Annotated[list[Path], typer.Argument(help="Folders with runs; a run's own folder will do.")],
    port: Port = DEFAULT_PORT,
) -> None:
    """Open the dashboard on folders of runs."""
    for root in roots:
        if not root.is_dir():
            raise RatioscopeError(f"{root}: there is no such folder.")
    _check_port(port)
    _serve(roots, port)


@app.command(name="ls", epilog="Example: ratioscope ls sample_runs --json")
def list_runs(
    root: Annotated[Path, typer.Argument(help="Folder with runs.")] = DEFAULT_ROOT,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False,
) -> None:
    """List runs with status and number of steps."""
    from analysis.store import discover

    if not root.is_dir():
        raise RatioscopeError(f"{root}: there is no such folder.")
    rows: list[dict[str, Any]] = [
        {
            "run": run.run_id,
            "name": run.manifest.name if run.manifest else None,
            "status": run.manifest.live_status() if run.manifest else "unreadable",
            "algorithm": run.manifest.algorithm.get("name") if run.manifest else None,
            "steps": run.steps,
            "created": run.manifest.created if run.manifest else None,
            "problem": run.problem or None,
        }
        for run in discover([root])
    ]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    if not rows:
        print(f"No runs below {root}.")
    width = max((len(row["run"] or "") for row in rows), default=0)
    for row in rows:
        print(
            f"{row['run']:<{width}}  {row['status']:<11}  {row['steps']:>6} steps  {row['problem'] or row['algorithm']}"
        )


@app.command(epilog="Example: ratioscope summarize sample_runs/offline-grpo-seed0 --json")
def summarize(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Every metric of every step, with intervals and notes.")
    ] = False,
) -> None:
    """Every metric of a run; without --json a short table of the last steps."""
    from analysis.store import open_run
    from analysis.summary import Summariser, to_json

    opened = open_run(run)
    for problem in opened.problems:
        print(f"ratioscope: {problem}", file=sys.stderr)
    with console.status("Reading") as status:
        summary = Summariser().summarise(opened, lambda done, of: status.update(f"Reading, part {done} of {of}"))
    if as_json:
        print(json.dumps(to_json(opened, summary), allow_nan=False))
        return
    columns = ["n_tokens", "reward", "s_k", "u_k", "clip_fraction", "ess_token", "khat_token", "chi2_token"]
    print(summary.values[columns].tail(20).to_string(float_format=lambda value: f"{value:.4g}", na_rep="-"))


@app.command(epilog="Example: ratioscope compare runs/grpo-seed0 runs/grpo-seed1 runs/asymre-seed0 --by tokens")
def compare(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs; a folder with runs in it will do.")],
    metric: Annotated[str, typer.Option(help="A metric's key.")] = "eval_accuracy",
    by: Annotated[Literal["step", "tokens", "time"], typer.Option(help="What runs are brought in line by.")] = "step",
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False,
) -> None:
    """Is A better than B? Runs that differ in their seed only are one setting; the best against each of the others."""
    from analysis.comparison import report

    found = report(_members(runs), metric, by)
    print(json.dumps(found.to_json(), allow_nan=False) if as_json else found.text())


@app.command(epilog="Example: ratioscope check sample_runs/mismatch-grpo-seed0 --json")
def check(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Every remark with numbers, steps and example rows.")] = False,
) -> None:
    """Whether a log is what it claims to be; exit code 1 when it is not (a warning or worse)."""
    from analysis.linter import lint, text, to_json
    from analysis.store import open_run
    from analysis.thresholds import thresholds_of

    opened = open_run(run)
    limits = thresholds_of(run)
    with console.status("Checking") as status:
        remarks = lint(opened, progress=lambda done, of: status.update(f"Checking, {done} of {of}"), thresholds=limits)
    if as_json:
        contents = {"schema_version": opened.manifest.schema_version, "run": opened.manifest.name}
        print(json.dumps(contents | {"remarks": to_json(remarks)}, allow_nan=False))
    else:
        print(text(remarks))
    if any(remark.is_problem for remark in remarks):
        raise typer.Exit(PROBLEMS_FOUND)


@app.command(epilog="Example: ratioscope diagnose runs/latest --fail-on warning")
def diagnose(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Every finding with its numbers and steps.")] = False,
    fail_on: Annotated[
        Literal["notice", "warning", "critical"] | None,
        typer.Option(help="Exit code 1 when there is a finding of this severity or worse."),
    ] = None,
    thresholds: Annotated[
        Path | None, typer.Option(help="A TOML file; default: ratioscope.toml beside the run or above it.")
    ] = None,
) -> None:
    """What is wrong with a run, why, and what to change; worst first."""
    from analysis.diagnosis import Severity, read_thresholds, thresholds_of
    from analysis.diagnosis import diagnose as find
    from analysis.diagnosis.report import text, to_json
    from analysis.store import open_run
    from analysis.summary import summarise

    opened = open_run(run)
    limits = read_thresholds(thresholds) if thresholds else thresholds_of(run)
    for problem in opened.problems:
        print(f"ratioscope: {problem}", file=sys.stderr)
    with console.status("Reading"):
        findings = find(summarise(opened), opened, limits)
    print(json.dumps(to_json(opened, findings, limits), allow_nan=False) if as_json else text(findings))
    if fail_on and any(finding.severity >= Severity[fail_on.upper()] for finding in findings):
        raise typer.Exit(PROBLEMS_FOUND)


@app.command(epilog="Example: ratioscope explain s_k")
def explain(
    what: Annotated[
        str | None,
        typer.Argument(help="A metric's key, an algorithm's name, or format, metrics, algorithms, thresholds."),
    ] = None,
) -> None:
    """What a metric, an algorithm or the run format is, with its formula and source."""
    from ratioscope import catalogue, schema
    from trainer.algorithms import ALGORITHMS, ALIASES, describe, table

    if what in catalogue.ENTRIES:
        print(catalogue.explain(what))
    elif what in ALGORITHMS or what in ALIASES:
        print(describe(ALGORITHMS[ALIASES.get(str(what), str(what))]))
    elif what == "format":
        print(schema.describe())
    elif what == "thresholds":
        print(catalogue.thresholds.explain())
    elif what == "algorithms":
        print(table())
    elif what in (None, "metrics"):
        for entry in catalogue.ENTRIES.values():
            print(f"{entry.key:<30} {entry.title}")
        print("\nalgorithms, format, thresholds: more to explain.")
    else:
        raise RatioscopeError(f"There is nothing called {what!r} to explain; see ratioscope explain metrics.")


# Helpers ----------------------------------------------------------------------------------------------------------


def sample_runs_folder() -> Path | None:
    """The sample runs: in the package when installed, beside it in a checkout."""
    here = Path(__file__).resolve().parent
    places = (here / "sample_runs", here.parent / "sample_runs")
    return next((place for place in places if place.is_dir()), None)


def _members(folders: list[Path]) -> "list[Member]":
    """The runs in these folders with their summaries; a bad run inside a folder of runs is named and left out."""
    from analysis.comparison import Member
    from analysis.store import discover, open_run
    from analysis.summary import summarise

    members = {}
    for folder in folders:
        if not folder.is_dir():
            raise RatioscopeError(f"{folder}: there is no such folder.")
        listed = discover([folder])
        if not listed:
            raise RatioscopeError(f"{folder}: there is no run in this folder.")
        for entry in listed:
            if entry.problem and entry.folder != folder:
                print(f"ratioscope: {entry.problem} The run is left out.", file=sys.stderr)
                continue
            with console.status(f"Reading {entry.folder.name}"):
                run = open_run(entry.folder)
                summary = summarise(run)
            for problem in run.problems:
                print(f"ratioscope: {problem}", file=sys.stderr)
            if len(summary.values):
                members[entry.folder.resolve()] = Member(str(entry.folder), run, summary)
            else:
                print(f"ratioscope: {entry.folder}: left out, no step is on disk yet.", file=sys.stderr)
    return list(members.values())


def _train(config: "TrainConfig", folder: Path, *, resume: bool, quiet: bool, flush_seconds: float = 3.0) -> str:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from trainer.loop import Trainer

    stop = threading.Event()

    def ask_to_stop(number: int, frame: FrameType | None) -> None:
        if stop.is_set():  # a second Ctrl-C does not wait for the update
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, ask_to_stop) for number in (signal.SIGINT, signal.SIGTERM)}
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[now]}"),
    )
    # Transient: what stays on the screen is the sentence that says how it ended.
    quiet = quiet or not console.is_terminal
    bar = Progress(*columns, console=console, disable=quiet, refresh_per_second=5, transient=True)
    try:
        with bar:
            task = bar.add_task("warm start", total=None, now="")

            def warm_up(step: int, accuracy: float) -> None:
                bar.update(task, completed=step, now=f"accuracy {accuracy:.2f} of {config.warm_start.accuracy:g}")
                if stop.is_set():
                    raise KeyboardInterrupt

            trainer = Trainer(config, folder, resume=resume, flush_seconds=flush_seconds, warm_up=warm_up)
            bar.update(task, description="train", total=config.updates, completed=trainer.next_update)

            def report(progress: "TrainingProgress") -> None:
                bar.update(task, completed=progress.update + 1, now=_progress_text(progress))

            return trainer.run(report, should_stop=stop.is_set)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _print_claims(grid: "Grid", root: Path) -> None:
    """Claim by claim, whether the runs of a study agree with its source."""
    from analysis.claims import Claim, judge, measure, text
    from analysis.store import open_run
    from analysis.summary import summarise

    summaries = {
        (cell.preset, cell.variant, cell.config.seed): summarise(open_run(root / cell.config.run_name()))
        for cell in grid.cells
    }

    def numbers(claim: Claim, wanted: str) -> dict[int, float]:
        return {
            seed: measure(claim, summary)
            for (preset, variant, seed), summary in summaries.items()
            if (preset, variant) == (claim.preset, wanted)
        }

    judgements = [
        judge(claim, numbers(claim, claim.of), numbers(claim, claim.than) if claim.than else None)
        for claim in (Claim(**row) for row in grid.claims)
    ]
    print(f"\n{text(judgements)}\n")


def _progress_text(progress: "TrainingProgress") -> str:
    return f"reward {progress.reward:.2f}  staleness {progress.staleness:.3f}  drift {progress.drift:.3f}"


def _check_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise RatioscopeError(f"Port {port} is taken; choose another with --port.") from None


def _serve(roots: list[Path], port: int, page: str = "") -> None:
    from dashboard import launcher

    print(f"ratioscope: http://{launcher.LOOPBACK}:{port}/{page}   (Ctrl-C stops)", flush=True)
    with suppress(KeyboardInterrupt):  # the usual way to end it
        launcher.serve(roots, port)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """Ask a trainer to close its run; insist after a while."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()


if __name__ == "__main__":
    main()
