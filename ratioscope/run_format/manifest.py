"""run.json: what a run is, who writes it, and whether it is still alive.

The file is replaced atomically, never edited in place: a reader sees the old or the new one and nothing between.
"""

import json
import os
import platform
import socket
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from shlex import quote
from typing import Any, Self

from ratioscope.errors import RunFormatError, first_line
from ratioscope.inert import one_line, safe_values
from ratioscope.run_format.schema import SCHEMA_VERSION, check_version
from ratioscope.storage.bounds import SETTINGS_BYTES, read_whole
from ratioscope.storage.whole_files import replace_atomically

MANIFEST_NAME = "run.json"
WRITTEN_STATES = ("running", "finished", "interrupted", "failed")

# A writer that lives beats every HEARTBEAT_SECONDS.
HEARTBEAT_SECONDS = 2.0
# Settings are not nested deeper; whoever walks through them calls himself.
_DEEPEST = 50
STALLED_AFTER_SECONDS = 20.0
INTERRUPTED_AFTER_SECONDS = 600.0

# The key in `extra` under which a trainer that learns before its first update says how far it is: step, learned, goal.
WARM_START = "warm_start"


def now() -> str:
    """The time as ISO 8601 in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass
class Manifest:
    """The contents of run.json; unknown keys of other producers are kept in `extra`."""

    name: str
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    schema_version: str = SCHEMA_VERSION
    created: str = field(default_factory=now)
    producer: dict[str, str] = field(default_factory=dict)
    status: str = "running"
    status_reason: str = ""
    heartbeat: str = field(default_factory=now)
    process_id: int = field(default_factory=os.getpid)
    host: str = field(default_factory=socket.gethostname)
    writers: dict[str, Any] = field(default_factory=dict)
    """Where several write: status, reason, process_id and host of each, by its number."""
    algorithm: dict[str, Any] = field(default_factory=dict)
    schedule: dict[str, Any] = field(default_factory=dict)
    sampler: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    task: dict[str, Any] = field(default_factory=dict)
    optimiser: dict[str, Any] = field(default_factory=dict)
    planned_updates: int | None = None
    seed: int | None = None
    libraries: dict[str, str] = field(default_factory=dict)
    source: dict[str, Any] = field(default_factory=dict)
    """Of a run that another program wrote or trained: framework, version, path, format."""
    missing: dict[str, str] = field(default_factory=dict)
    """Columns that the source does not have, and why, in one sentence each."""
    assumed: list[str] = field(default_factory=list)
    """What was taken for granted, and why, in one sentence each."""
    log_probability_decimals: int | None = None
    """Decimals that the source keeps of a log-probability; None: all."""
    sampled_with: str = ""
    """Whether logp_behavior is "raw" or "processed" (after temperature, top-k, top-p); "": it is not known."""
    tags: list[str] = field(default_factory=list)
    notes: str = ""
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def algorithm_name(self) -> str:
        """What the run calls its algorithm; "" where it does not say."""
        return str(self.algorithm.get("name") or "")

    @property
    def parts(self) -> Mapping[str, Any]:
        """What the loss is made of, by `algorithm.parts`; {} where it does not say."""
        return as_table(self.algorithm.get("parts"))

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The bounds and coefficients of the loss, by `algorithm.parameters`; {} where it does not say."""
        return as_table(self.algorithm.get("parameters"))

    @property
    def has_penalty(self) -> bool:
        """Whether it names a regulariser or a KL penalty in the loss, which has a gradient of its own."""
        return bool(self.parameters.get("reference_kl")) or self.parts.get("regulariser") not in ("none", None)

    @property
    def evaluation_prompts(self) -> int:
        """On how many prompts accuracy is evaluated, by `task.evaluation_prompts`; 0: it does not say."""
        count = self.task.get("evaluation_prompts")
        return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else 0

    def write(self, folder: Path, *, new: bool = False) -> None:
        """Replace `folder`/run.json atomically.

        Raises:
            FileExistsError: it is to be `new`, and there is one.
        """
        contents = asdict(self)
        contents |= contents.pop("extra")
        encoded = json.dumps(contents, indent=2, ensure_ascii=False).encode()
        replace_atomically(folder / MANIFEST_NAME, encoded, new=new)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read and check `folder`/run.json. Where the heartbeat is in the future, the file's own time takes its place.

        Raises:
            RunFormatError: it is missing, not a JSON object, of a newer format, or a field has the wrong type.
        """
        path = folder / MANIFEST_NAME
        try:
            text = read_whole(path, SETTINGS_BYTES).decode()
            contents = _written(json.loads(text, parse_int=_whole))
        except FileNotFoundError:
            raise RunFormatError(f"{folder}: not a run, it has no {MANIFEST_NAME}.") from None
        except RecursionError:
            raise RunFormatError(f"{path}: cannot be read as JSON (it is nested too deeply).") from None
        except (OSError, ValueError) as error:
            raise RunFormatError(f"{path}: cannot be read as JSON ({first_line(error)}).") from None
        if not isinstance(contents, dict):
            raise RunFormatError(f"{path}: must hold a JSON object, it holds a {type(contents).__name__}.")
        if "schema_version" not in contents:
            raise RunFormatError(
                f"{path}: says no schema_version, so it is another program's; "
                f"`ratioscope import {quote(str(folder))}` looks at its files."
            )
        check_version(str(contents["schema_version"]), str(path))
        known = {declared.name for declared in fields(cls)} - {"extra"}
        defaults = {
            "name": folder.name,
            "run_id": folder.name,
            "created": "",
            "heartbeat": "",
            "process_id": 0,
            "host": "",
        }
        values = defaults | {key: value for key, value in contents.items() if key in known}
        if "\\" in text or not text.isascii():  # what it says of the run is quoted in sentences of ours
            values |= {key: safe_values(value, one_line) for key, value in values.items() if key != "notes"}
        manifest = cls(**values, extra={key: value for key, value in contents.items() if key not in known})
        manifest._check_types(path)
        if manifest.status == "running" and manifest.heartbeat_age() < 0:  # by a clock that is ahead
            with suppress(OSError):
                manifest.heartbeat = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat()
        return manifest

    def _check_types(self, path: Path) -> None:
        for declared in fields(self):
            value, expected = getattr(self, declared.name), declared.type
            if declared.name in ("planned_updates", "seed", "log_probability_decimals"):
                fits = value is None or (isinstance(value, int) and not isinstance(value, bool))
            else:
                container = getattr(expected, "__origin__", expected)
                fits = isinstance(value, container)  # type: ignore[arg-type]
            if not fits:
                raise RunFormatError(f"{path}: field {declared.name!r} has the wrong type ({type(value).__name__}).")
        if not all(isinstance(entry, dict) for entry in self.writers.values()):
            raise RunFormatError(f"{path}: field 'writers' must hold an object for each writer.")
        if self.status not in WRITTEN_STATES:
            raise RunFormatError(f"{path}: status {self.status!r} is not one of {', '.join(WRITTEN_STATES)}.")

    def heartbeat_age(self, at: datetime | None = None) -> float:
        """Seconds since the writer's last sign of life; infinite when it never gave one."""
        try:
            last = datetime.fromisoformat(self.heartbeat).astimezone(UTC)
        except (ValueError, OverflowError):  # OverflowError: in the year 1 or 9999, and in another one by UTC
            return float("inf")
        return ((at or datetime.now(UTC)) - last).total_seconds()

    def live_status(self, at: datetime | None = None) -> str:
        """`status`, corrected by the heartbeat: a dead writer cannot say that it died.

        Returns one of running, stalled, finished, interrupted, failed.
        """
        if self.status != "running":
            return self.status
        age = self.heartbeat_age(at)
        if age < STALLED_AFTER_SECONDS and not self._writer_is_gone():
            return "running"
        return "interrupted" if age > INTERRUPTED_AFTER_SECONDS or self._writer_is_gone() else "stalled"

    def _writer_is_gone(self) -> bool:
        alone = {"status": "running", "process_id": self.process_id, "host": self.host}
        return not any(still_writing(entry) for entry in self.writers.values() or [alone])


def still_writing(writer: Mapping[str, Any]) -> bool:
    """Whether a writer with this status, process_id and host may still write; of another machine it cannot be known."""
    number = writer.get("process_id")
    if writer.get("status") != "running":
        return False
    if writer.get("host") != socket.gethostname() or not isinstance(number, int) or number <= 0:
        return True
    try:
        os.kill(number, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def library_versions(*names: str) -> dict[str, str]:
    """Installed versions of Python and the named distributions; those not installed are left out."""
    from importlib.metadata import PackageNotFoundError, version

    versions = {"python": platform.python_version()}
    for name in names:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def as_table(setting: object) -> Mapping[str, Any]:
    """Return a setting that is an object of settings; {} for anything else."""
    return setting if isinstance(setting, Mapping) else {}


def as_finite(setting: object) -> float | None:
    """Return a setting that is a finite number; None for anything else, a truth value too."""
    if isinstance(setting, bool) or not isinstance(setting, int | float) or not isfinite(setting):
        return None
    return float(setting)


_LARGEST_DIGITS = 308


def _whole(digits: str) -> int | float:
    """A whole number; beyond what a float holds it is infinite, as one with a decimal point is."""
    return int(digits) if len(digits) <= _LARGEST_DIGITS else float(digits)


def _written(contents: Any) -> Any:
    """The same contents as UTF-8 can hold them: JSON may escape halves of characters, which no page could show."""
    level = [contents]
    for _ in range(_DEEPEST):
        level = [child for parent in level if isinstance(parent, dict | list)
                 for child in (parent.values() if isinstance(parent, dict) else parent)]  # fmt: skip
    if level:
        raise RecursionError
    text = json.dumps(contents, ensure_ascii=False)
    return contents if text.isascii() else json.loads(text.encode("utf-8", "replace"))
