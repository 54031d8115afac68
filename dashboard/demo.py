"""The live run of `ratioscope demo`, as its first page sees it while the trainer warms up; imports nothing heavy.

The trainer is a process that the same command started; what it says of itself is in its run's manifest.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen

from ratioscope.errors import RatioscopeError
from ratioscope.run_format.manifest import WARM_START, Manifest

# What one can see meanwhile, in which sample run, and its icon. The packages hold these runs.
GUIDED = (
    ("A collapse", "sync_interval20-reinforce-lr0.0003-seed0", ":material/trending_down:"),
    ("A run that learns", "sync_interval20-grpo-seed0", ":material/check_circle:"),
    ("An engine that differs", "mismatch-grpo-seed0", ":material/compare_arrows:"),
)


@dataclass(frozen=True)
class Demo:
    """A live run that has been started."""

    folder: Path
    trainer: "Popen[bytes]"
    samples: Path | None
    """The folder of the sample runs, where there is one."""
    started: float
    """On the monotonic clock."""

    @property
    def guided(self) -> list[tuple[str, Path, str]]:
        """The sample runs to look at first: what one sees there, its folder, an icon."""
        return [(title, self.samples / name, icon) for title, name, icon in GUIDED] if self.samples else []

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started


@dataclass(frozen=True)
class Stage:
    """Where the live run is: what happens, how far that is, and whether something is to be waited for."""

    says: str
    detail: str = ""
    has_steps: bool = False
    ended: bool = False


_demo: list[Demo] = []


def begin(folder: Path, trainer: "Popen[bytes]", samples: Path | None) -> None:
    """Tell the pages of this process about the live run."""
    _demo[:] = [Demo(folder, trainer, samples, time.monotonic())]


def demo() -> Demo | None:
    """The live run; None in a dashboard that is no demo."""
    return _demo[0] if _demo else None


def stage(of: Demo) -> Stage:
    """How far the trainer has come, from its own files."""
    if next(of.folder.glob("steps/*.parquet"), None):
        return _with_steps(of)
    if of.trainer.poll() is not None:
        return Stage("The trainer ended before its first step; the terminal says why.", ended=True)
    try:
        manifest = Manifest.read(of.folder)
    except RatioscopeError:
        return Stage("The trainer starts", "PyTorch is being imported")
    warm = manifest.extra.get(WARM_START)
    if isinstance(warm, dict):
        detail = f"{warm['step']} supervised updates, {warm['learned']:.2f} learned; it begins at {warm['goal']:g}"
        return Stage("A small model learns to add, so that there is something to lose", detail)
    if "parameters" in manifest.model:
        return Stage("The first updates are under way")
    if manifest.live_status() != "running":
        return Stage("The trainer ended before its first step", manifest.status_reason, ended=True)
    return Stage("The model is made ready", f"{manifest.planned_updates} updates are planned")


def _with_steps(of: Demo) -> Stage:
    try:
        manifest = Manifest.read(of.folder)
    except RatioscopeError:
        return Stage("The first steps are there.", has_steps=True)
    status = manifest.live_status()
    if status == "running":
        return Stage("The first steps are there.", has_steps=True)
    says = "The training has finished." if status == "finished" else "The training has stopped."
    return Stage(says, manifest.status_reason, has_steps=True, ended=True)
