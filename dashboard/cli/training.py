"""`ratioscope demo`, `train` and `ablate`: runs of the built-in trainer, which Ctrl-C stops without a loss."""

import signal
import subprocess
import sys
import threading
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from ratioscope.dashboard.cli import completion
from ratioscope.dashboard.cli.common import DEFAULT_PORT, DEFAULT_ROOT, Port, Quiet, Root, app, examples
from ratioscope.dashboard.cli.server import check_port, sample_runs_folder, serve
from ratioscope.dashboard.terminal import complain, print_line, shows_progress, working
from ratioscope.ending import PROBLEMS_FOUND
from ratioscope.errors import RatioscopeError
from ratioscope.stopping import StopOnCritical
from ratioscope.stopping import stop_on_critical as guard_of

if TYPE_CHECKING:
    from ratioscope.trainer.settings.ablation import Grid
    from ratioscope.trainer.settings.config import TrainConfig
    from ratioscope.trainer.training.loop import UpdateProgress as TrainingProgress

_TRAINER_PACKAGES = ("torch", "transformers", "pydantic")
# `--lr 1e-4` is a setting written as elsewhere, of which the trainer says how it is written here.
_DASHES = {"ignore_unknown_options": True}

Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY=VALUE", help="Settings, e.g. sync_interval=20.", autocompletion=completion.complete_settings
    ),
]


@app.command(epilog=examples("demo", "demo --port 8600"))
def demo(port: Port = DEFAULT_PORT, root: Root = DEFAULT_ROOT) -> None:
    """Train a short run that collapses, and open the dashboard on it.

    The sample runs are shown beside it. Ctrl-C is the usual way to stop both and ends them with exit code 0.
    """
    from ratioscope.dashboard import demo as demo_of
    from ratioscope.run_format.manifest import now

    for package in _TRAINER_PACKAGES:  # what is missing is said here; importing it is the trainer's, and takes seconds
        if find_spec(package) is None:
            raise ModuleNotFoundError(name=package)
    check_port(port)
    folder = root / f"live-demo-{now()[:19].replace(':', '')}"
    trainer = subprocess.Popen(
        [sys.executable, "-P", "-m", "ratioscope", "train", "demo", "--folder", str(folder), "--quiet"],
        start_new_session=True,  # Ctrl-C reaches this process, which then asks the trainer to stop
    )
    samples = sample_runs_folder()
    demo_of.begin(folder, trainer, samples)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # by way of `finally`
    try:
        serve([root, *([samples] if samples else [])], port)
    finally:
        _stop(trainer)


class _KnowsSettings(TyperCommand):
    """`train`, whose help ends with every preset and every setting."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        super().format_epilog(ctx, formatter)
        if find_spec("pydantic") is None:  # a package of the trainer, without which there is still help
            return
        from ratioscope.trainer.settings import table

        with formatter.section("Presets"):
            formatter.write_dl([*table.presets().items()])
        for section, (about, rows) in table.sections().items():
            with formatter.section(f"Settings, {section}"):
                formatter.write_text(about)
                formatter.write_dl([(f"{row.name}={row.default}", f"{row.words} ({row.allowed})") for row in rows])


@app.command(
    cls=_KnowsSettings,
    context_settings=_DASHES,
    epilog=examples(
        "train sync_interval algorithm=rec_oneside_nois epsilon_high=2.0 seed=1",
        "train on_policy updates=20 --folder runs/short",
        "train --resume runs/short updates=40",
        "train --sample offline-grpo-seed0",
    ),
)
def train(
    preset: Annotated[
        str,
        typer.Argument(
            help="A preset's name, a .toml file; with --resume a run's folder, with --sample a sample run's name. "
            "Without one: which presets there are.",
            autocompletion=completion.presets,
            show_default=False,
        ),
    ] = "",
    overrides: Overrides = None,
    root: Root = DEFAULT_ROOT,
    folder: Annotated[Path | None, typer.Option(help="The run's own folder; default: ROOT/<name>.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the interrupted run in the folder PRESET.")] = False,
    sample: Annotated[bool, typer.Option("--sample", help="Train the sample run PRESET, as it was.")] = False,
    stop_on_critical: Annotated[
        bool,
        typer.Option("--stop-on-critical", help="Stop at a critical finding, and write a post-mortem beside the run."),
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Train one run; Ctrl-C stops it, --resume continues it.

    A run that was stopped has recorded its last update completely; the exit code is then 130, after a critical finding
    1.
    """
    if not preset and (resume or sample):
        raise RatioscopeError("--resume takes the folder of a run, --sample the name of a sample run.")
    if not preset:
        print_line(_presets_text())
        return
    if sample and (resume or overrides):
        raise RatioscopeError("--sample trains a run as it was: it takes no settings and no --resume.")
    if resume:
        from ratioscope.trainer.training.loop import configuration_to_resume

        folder = Path(preset)
        config = configuration_to_resume(folder, overrides or [])
    else:
        from ratioscope.trainer.settings.ablation import sample_run
        from ratioscope.trainer.settings.load import load_settings

        config = sample_run(preset) if sample else load_settings(preset, overrides or [])
        folder = folder or root / config.run_name()
    guard = guard_of(folder, every=10, share=0.25) if stop_on_critical else None
    stopped_by = _train(config, folder, resume=resume, quiet=quiet, guard=guard)
    if guard:
        guard.close()
    if guard and guard.stop:
        print_line(f"Stopped: {folder}; resume with: ratioscope train --resume {folder}")
        raise typer.Exit(PROBLEMS_FOUND)
    if stopped_by:
        print_line(f"Interrupted; resume with: ratioscope train --resume {folder}")
        raise typer.Exit(128 + stopped_by)
    print_line(f"Finished: {folder}")
    _print_verdict(folder, quiet)


@app.command(
    context_settings=_DASHES,
    epilog=examples(
        "ablate figure3 --root runs/figure3",
        "ablate sync_interval algorithm=reinforce,grpo seed=0,1,2",
    ),
)
def ablate(
    name: Annotated[
        str,
        typer.Argument(help="A study (figure3) or a preset.", autocompletion=completion.grids, show_default=False),
    ],
    overrides: Overrides = None,
    root: Root = DEFAULT_ROOT,
    quiet: Quiet = False,
) -> None:
    """Train a grid of runs: a study, or a preset with several values.

    Several values for a key make one run each. Finished runs are left as they are, interrupted ones resume. A
    study ends with its claims and whether these runs support them.
    """
    from ratioscope.run_format.manifest import MANIFEST_NAME, Manifest
    from ratioscope.trainer.settings.ablation import plan

    grid = plan(name, overrides or [])
    if grid.claims:
        import_module("ratioscope.analysis.compare.claims")  # what it lacks is said before all that training
    for number, cell in enumerate(grid.cells, start=1):
        folder = root / cell.config.run_name()
        there = (folder / MANIFEST_NAME).exists()
        if there and Manifest.read(folder).status == "finished":
            print_line(f"{number}/{len(grid.cells)} {folder}: already finished")
            continue
        print_line(f"{number}/{len(grid.cells)} {folder}")
        # One file a table: nobody follows a grid live, and small files cost room.
        stopped_by = _train(cell.config, folder, resume=there, quiet=quiet, flush_seconds=600.0)
        if stopped_by:
            print_line("Interrupted; the same command resumes.")
            raise typer.Exit(128 + stopped_by)
    if grid.claims:
        _print_claims(grid, root)
    print_line(f"Compare them with: ratioscope dashboard {root}")


def _print_verdict(folder: Path, quiet: bool) -> None:
    """The lights of a finished run in one line, and what to type next."""
    try:
        from ratioscope.analysis.diagnosis.opened import open_folder
        from ratioscope.analysis.overview.lights import lights_line, lights_of

        with working("Reading", quiet) as progress:
            print_line(lights_line(lights_of(open_folder(folder, progress=progress))))
    except ModuleNotFoundError:  # the trainer alone is installed: no verdict here
        pass
    except RatioscopeError as error:  # of a ratioscope.toml, say: the run is trained all the same
        complain(str(error))
    print_line(f"Next: ratioscope diagnose {folder}, or look at it: ratioscope dashboard {folder}")


def _presets_text() -> str:
    """The presets, each with what it is about, and what to type next."""
    from ratioscope.trainer.algorithms.rows import ALGORITHMS
    from ratioscope.trainer.settings.table import presets_text

    return "\n".join([
        "Presets:", presets_text(), "",
        f"Each with any of {len(ALGORITHMS)} algorithms (ratioscope explain algorithms), settings as key=value:",
        "  ratioscope train sync_interval algorithm=grpo seed=1 updates=60",
        "Every setting: ratioscope train --help, ratioscope explain settings.",
    ])  # fmt: skip


def _train(
    config: "TrainConfig",
    folder: Path,
    *,
    resume: bool,
    quiet: bool,
    flush_seconds: float = 3.0,
    guard: StopOnCritical | None = None,
) -> int:
    """Train a run; returns the number of the signal that stopped it, 0 when it ran to its end."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from ratioscope.trainer.training.loop import Trainer

    stop = threading.Event()
    stopped_by: list[int] = []

    def ask_to_stop(number: int, frame: FrameType | None) -> None:
        if stop.is_set():  # a second Ctrl-C does not wait for the update
            raise KeyboardInterrupt
        stopped_by.append(number)
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
    bar = Progress(
        *columns, console=Console(stderr=True), disable=not shows_progress(quiet), refresh_per_second=5, transient=True
    )
    try:
        with bar:
            task = bar.add_task("warm start", total=None, now="")

            def warm_up(step: int, learned: float) -> None:
                bar.update(task, completed=step, now=f"learned {learned:.2f} of {config.warm_start.accuracy:g}")
                if stop.is_set():
                    raise KeyboardInterrupt

            trainer = Trainer(config, folder, resume=resume, flush_seconds=flush_seconds, warm_up=warm_up)
            bar.update(task, description="train", total=config.updates, completed=trainer.next_update)

            def report(progress: "TrainingProgress") -> None:
                bar.update(task, completed=progress.update + 1, now=_progress_text(progress))

            def should_stop() -> bool:
                return bool(guard and guard.step()) or stop.is_set()

            def why() -> str:
                return f"critical finding: {guard.sentence}"[:500] if guard and guard.stop else "stopped by the user"

            status = trainer.run(report, should_stop, why)
            return (stopped_by or [signal.SIGINT])[0] if status == "interrupted" else 0
    except KeyboardInterrupt:
        complain(f"{folder}: interrupted before the end of an update.")
        raise typer.Exit(128 + (stopped_by or [signal.SIGINT])[0]) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _print_claims(grid: "Grid", root: Path) -> None:
    """Claim by claim, whether the runs of a study agree with its source."""
    from ratioscope.analysis.compare.claims import Claim, claims_of, claims_text, judge_claim, measure_claim
    from ratioscope.analysis.runs.store import open_run
    from ratioscope.analysis.summary.summary import summarise

    summaries = {
        (cell.preset, cell.variant, cell.config.seed): summarise(open_run(root / cell.config.run_name()))
        for cell in grid.cells
    }

    def numbers(claim: Claim, wanted: str) -> dict[int, float]:
        return {
            seed: measure_claim(claim, summary)
            for (preset, variant, seed), summary in summaries.items()
            if (preset, variant) == (claim.preset, wanted)
        }

    judgements = [
        judge_claim(claim, numbers(claim, claim.of), numbers(claim, claim.than) if claim.than else None)
        for claim in claims_of(grid.claims)
    ]
    print_line(f"\n{claims_text(judgements)}\n")


def _progress_text(progress: "TrainingProgress") -> str:
    return f"reward {progress.reward:.2f}  staleness {progress.staleness:.3f}  drift {progress.drift:.3f}"


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """Ask a trainer to close its run; insist after a while."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
