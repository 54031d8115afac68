"""Where numbers are sent. A service is imported when it is asked for, and uses the network only where that is."""

import csv
import io
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from math import isfinite
from pathlib import Path
from typing import Any, Protocol

from ratioscope.analysis.runs.store import Run
from ratioscope.dashboard.bridge.numbers import PREFIX, StepNumbers
from ratioscope.dashboard.watching.alerts import memory_place, safe_name
from ratioscope.errors import RatioscopeError
from ratioscope.storage.whole_files import append_whole, replace_atomically

STEP = f"{PREFIX}/step"


class Target(Protocol):
    """Somewhere that steps go; each is sent once, also over restarts."""

    @property
    def last_step(self) -> int:
        """The last step that was sent; -1: none."""

    @property
    def where(self) -> str:
        """The file, folder or project that they are in."""

    def send(self, numbers: StepNumbers) -> None:
        """Hand one step over."""

    def close(self) -> None:
        """Wait until what was handed over has arrived."""


@dataclass(frozen=True)
class Wanted:
    """What a user asked for."""

    run: Run
    metrics: Sequence[str]
    output: Path | None = None
    project: str = PREFIX
    online: bool = False
    again: bool = False
    """Forget what was sent before."""

    @property
    def name(self) -> str:
        """The run's name as services may have it: it comes from a log."""
        return safe_name(self.run.manifest.name) or "run"

    @property
    def run_id(self) -> str:
        """Of the run in a service: the same after a restart."""
        return "".join(sign for sign in self.run.manifest.run_id if sign.isascii() and sign.isalnum())[:32] or self.name


class CsvFile:
    """A row per step; of each metric KEY, KEY.low, KEY.high and KEY.note; what is undefined is empty, with its reason.

    Raises:
        RatioscopeError: the file is another table, or cannot be written.
    """

    def __init__(self, wanted: Wanted) -> None:
        self._path = wanted.output or Path(f"{wanted.run.folder.resolve().name}.csv")
        self.where = str(self._path)
        self._keys = list(wanted.metrics)
        head = ["step", *(f"{key}{end}" for key in self._keys for end in ("", ".low", ".high", ".note"))]
        try:
            there = self._path.read_text(encoding="utf-8") if self._path.exists() and not wanted.again else ""
            whole = there[: there.rfind("\n") + 1]  # a row that a kill cut short is written again
            rows = list(csv.reader(io.StringIO(whole)))
            if rows and rows[0] != head:
                raise RatioscopeError(f"{self._path}: has other columns; name another --output, or the same --metric.")
            if not rows or whole != there:
                replace_atomically(self._path, (whole or _row(head)).encode())
        except (OSError, UnicodeDecodeError) as error:
            raise RatioscopeError(f"{self._path}: cannot be used ({error}); choose another --output.") from None
        self.last_step = int(rows[-1][0]) if rows[1:] else -1

    def send(self, numbers: StepNumbers) -> None:
        cells: list[object] = [numbers.step]
        for key in self._keys:
            metric = numbers.metrics[key]
            ends = (metric.value, metric.low, metric.high)
            cells += [*(value if isfinite(value) else "" for value in ends), metric.text]
        append_whole(self._path, _row(cells).encode())
        self.last_step = numbers.step

    def close(self) -> None:
        """Every row is written at once."""


class _Service(ABC):
    """A service, which does not say what it has: a file remembers the last step that was sent of each metric.

    Args:
        place: of that file; None: nothing is remembered.
    """

    def __init__(self, wanted: Wanted, place: Path | None) -> None:
        self._wanted, self._place, self._begun = wanted, place, False
        self.where = f"project {wanted.project}"
        self._steps: dict[str, int] = {}
        if place is not None and not wanted.again:
            with suppress(OSError, ValueError, TypeError, AttributeError):
                kept = json.loads(place.read_text(encoding="utf-8"))
                self._steps = {str(key): int(step) for key, step in kept.items()}

    @property
    def last_step(self) -> int:
        return min((self._steps.get(key, -1) for key in self._wanted.metrics), default=-1)

    def send(self, numbers: StepNumbers) -> None:
        step = numbers.step
        new = {key: metric for key, metric in numbers.metrics.items() if step > self._steps.get(key, -1)}
        if not self._begun:
            self._begin()
            self._begun = True
        self._log(replace(numbers, metrics=new))
        self._steps |= dict.fromkeys(new, step)
        with suppress(OSError):
            if self._place is not None:
                self._place.parent.mkdir(parents=True, exist_ok=True)
                replace_atomically(self._place, json.dumps(self._steps).encode())

    def close(self) -> None:
        if self._begun:
            self._end()

    @abstractmethod
    def _begin(self) -> None:
        """Open a run there; not before there is something to send."""

    @abstractmethod
    def _log(self, numbers: StepNumbers) -> None:
        """Hand a step over."""

    @abstractmethod
    def _end(self) -> None:
        """Wait until it has arrived."""


class TensorBoard(_Service):
    """Scalars of `torch.utils.tensorboard` in a folder, which remembers what it has."""

    def __init__(self, wanted: Wanted) -> None:
        self._made = _needed("torch.utils.tensorboard", "tensorboard").SummaryWriter
        self._folder = wanted.output or Path("tensorboard") / wanted.run.folder.resolve().name
        super().__init__(wanted, self._folder / f"{PREFIX}.json")
        self.where = str(self._folder)

    def _begin(self) -> None:
        self._writer = self._made(str(self._folder))

    def _log(self, numbers: StepNumbers) -> None:
        for tag, value in numbers.flat.items():
            self._writer.add_scalar(tag, value, numbers.step, walltime=numbers.wall_time)
        self._writer.flush()

    def _end(self) -> None:
        self._writer.close()


class Trackio(_Service):
    """A run of trackio, in its database on this machine."""

    def __init__(self, wanted: Wanted) -> None:
        self._trackio = _needed("trackio", "trackio")
        super().__init__(wanted, _remembered_at(f"trackio {os.environ.get('TRACKIO_DIR', '')}", wanted))

    def _begin(self) -> None:
        self._run = self._trackio.init(
            project=self._wanted.project, name=f"{self._wanted.name}-{self._wanted.run_id[:8]}", resume="allow",
            embed=False, auto_log_cpu=False, auto_log_gpu=False,
        )  # fmt: skip

    def _log(self, numbers: StepNumbers) -> None:
        self._run.log(numbers.flat, step=numbers.step)

    def _end(self) -> None:
        self._trackio.finish()


class WeightsAndBiases(_Service):
    """A run of W&B: a folder that `wandb sync` uploads, unless `online`. The axis is ratioscope/step."""

    def __init__(self, wanted: Wanted) -> None:
        if not wanted.online:
            os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # which is the network, too
        self._wandb = _needed("wandb", "wandb")
        self._mode = "online" if wanted.online else "offline"
        super().__init__(wanted, _remembered_at(f"wandb {self._mode}", wanted))

    def _begin(self) -> None:
        wanted = self._wanted
        quiet = self._wandb.Settings(
            console="off", silent=True, disable_git=True, save_code=False, x_disable_meta=True, x_disable_stats=True
        )
        self._run = self._wandb.init(
            project=wanted.project, name=wanted.name, id=wanted.run_id, resume="allow", mode=self._mode,
            dir=str(wanted.output or Path.cwd()), settings=quiet,
        )  # fmt: skip
        self._run.define_metric(STEP)
        self._run.define_metric(f"{PREFIX}/*", step_metric=STEP)

    def _log(self, numbers: StepNumbers) -> None:
        self._run.log({STEP: numbers.step} | numbers.flat)

    def _end(self) -> None:
        self._run.finish()


TARGETS: dict[str, Callable[[Wanted], Target]] = {
    "csv": CsvFile,
    "tensorboard": TensorBoard,
    "trackio": Trackio,
    "wandb": WeightsAndBiases,
}


def _needed(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        missing = f"({error.name} is missing) " if error.name not in (None, package) else ""
        raise RatioscopeError(f"--to needs {package} {missing}here: pip install {package}") from None


def _remembered_at(service: str, wanted: Wanted) -> Path | None:
    where = f"{service} {wanted.project} {(wanted.output or Path.cwd()).resolve()}"
    return memory_place("bridge", where, f"{wanted.run.folder.resolve()}\n{wanted.run.manifest.run_id}")


def _row(cells: Sequence[object]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()
