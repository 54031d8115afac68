"""`ratioscope bridge`: the step summaries of a run in CSV, TensorBoard, trackio or W&B."""

import time
from pathlib import Path
from typing import Annotated, Literal

import typer

from ratioscope.dashboard.cli import completion
from ratioscope.dashboard.cli.common import Quiet, RunFolder, app, examples, opened
from ratioscope.dashboard.terminal import print_line, working
from ratioscope.errors import RatioscopeError
from ratioscope.inert import one_line
from ratioscope.run_format.manifest import Manifest

TargetName = Literal["csv", "tensorboard", "trackio", "wandb"]  # of `TARGETS`


@app.command(
    epilog=examples(
        "bridge sample_runs/sync_interval20-grpo-seed0 --to csv --output steps.csv",
        "bridge runs/mine --to tensorboard --follow",
        "bridge runs/mine --to wandb --metric u_k --metric s_k_bounded --project mine",
    )
)
def bridge(
    run: RunFolder,
    to: Annotated[TargetName, typer.Option(help="Where the numbers go.", show_default=False)],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="csv: the file, tensorboard: the folder, wandb: where its folder lies.",
            show_default=False,
        ),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY",
            help="Only these metrics; may be given several times.",
            autocompletion=completion.metrics,
            show_default=False,
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until the run has ended.")] = False,
    every: Annotated[float, typer.Option(metavar="SECONDS", help="Time between two looks.", min=0.05)] = 10.0,
    project: Annotated[str, typer.Option(help="Of trackio or wandb.")] = "ratioscope",
    online: Annotated[
        bool, typer.Option("--online", help="wandb: upload. Without it nothing uses the network (`wandb sync` later).")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Send every step once more, where the earlier ones were deleted.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Send the step summaries of a run to where people look, each step once.

    A metric is ratioscope/KEY, with ratioscope/KEY/low and /high, the ends of its 95 % interval, and /doubt, which is 1
    where it is unreliable. In CSV these are KEY, KEY.low, KEY.high and KEY.note. What is undefined is not sent, and
    empty in CSV. A second call goes on behind the last step that was sent.
    """  # fmt: skip
    from ratioscope.dashboard.bridge.numbers import chosen
    from ratioscope.dashboard.bridge.sending import NewSteps
    from ratioscope.dashboard.bridge.targets import TARGETS, Wanted
    from ratioscope.dashboard.report.target import check_target_folder

    if online and to != "wandb":
        raise RatioscopeError("--online is of --to wandb; the others stay on this machine.")
    if output and to == "trackio":
        raise RatioscopeError("--output is not of --to trackio, which has a database of its own (TRACKIO_DIR).")
    existing = (output or Path("here")).absolute().parent
    while not existing.is_dir():
        existing = existing.parent
    check_target_folder(output if output and output.is_dir() else existing)
    wanted = Wanted(opened(run), chosen(metric), output, project, online, again)
    new, target = NewSteps(run, wanted.metrics), TARGETS[to](wanted)
    sent = 0
    try:
        while True:
            live = follow and Manifest.read(run).live_status() in ("running", "stalled")
            with working("Sending", quiet):
                sent += new.send(target)
            if not live:
                break
            time.sleep(every)
    finally:
        target.close()
    steps = f"{sent or 'no'} new step{'s' * (sent != 1)}"
    done = f"Sent {steps} to {to} ({target.where}); the last one there is {target.last_step}."
    print_line(one_line(done) if target.last_step >= 0 else "No step yet.")
