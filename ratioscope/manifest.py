"""run.json: what a run is, who writes it, and whether it is still alive.

The file is replaced atomically, never edited in place: a reader sees the old or the new one and nothing between.
"""

import json
import os
import platform
import secrets
import socket
import uuid
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from ratioscope.errors import RunFormatError
from ratioscope.schema import SCHEMA_VERSION, check_version

MANIFEST_NAME = "run.json"
WRITTEN_STATES = ("running", "finished", "interrupted", "failed")

# A writer that lives beats every HEARTBEAT_SECONDS.
HEARTBEAT_SECONDS = 2.0
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
    def evaluation_prompts(self) -> int:
        """On how many prompts accuracy is evaluated, by `task.evaluation_prompts`; 0: it does not say."""
        count = self.task.get("evaluation_prompts")
        return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else 0

    def write(self, folder: Path) -> None:
        """Replace `folder`/run.json atomically."""
        contents = asdict(self)
        contents |= contents.pop("extra")
        replace_atomically(folder / MANIFEST_NAME, json.dumps(contents, indent=2, ensure_ascii=False).encode())

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read and check `folder`/run.json.

        Raises:
            RunFormatError: it is missing, not a JSON object, of a newer format, or a field has the wrong type.
        """
        path = folder / MANIFEST_NAME
        try:
            contents = _written(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            raise RunFormatError(f"{folder}: not a run, it has no {MANIFEST_NAME}.") from None
        except (OSError, ValueError) as error:
            raise RunFormatError(f"{path}: cannot be read as JSON ({error}).") from None
        if not isinstance(contents, dict):
            raise RunFormatError(f"{path}: must hold a JSON object, it holds a {type(contents).__name__}.")
        check_version(str(contents.get("schema_version", "missing")), str(path))
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
        manifest = cls(**values, extra={key: value for key, value in contents.items() if key not in known})
        manifest._check_types(path)
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
        if self.status not in WRITTEN_STATES:
            raise RunFormatError(f"{path}: status {self.status!r} is not one of {', '.join(WRITTEN_STATES)}.")

    def heartbeat_age(self, at: datetime | None = None) -> float:
        """Seconds since the writer's last sign of life; infinite when it never gave one."""
        try:
            last = datetime.fromisoformat(self.heartbeat)
        except ValueError:
            return float("inf")
        return ((at or datetime.now(UTC)) - last.astimezone(UTC)).total_seconds()

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
        if self.host != socket.gethostname() or self.process_id <= 0:
            return False  # cannot be known from here
        try:
            os.kill(self.process_id, 0)
        except (ProcessLookupError, OverflowError):
            return True
        except OSError:
            return False
        return False


def replace_atomically(path: Path, contents: bytes, *, lasting: bool = True) -> None:
    """Write a file so that a crash at any moment leaves the old or the new one whole.

    Args:
        lasting: a crash of the machine, too, which takes time; without, only one of the process.
    """
    temporary = path.with_name(f"{path.name}.tmp-{secrets.token_hex(8)}")  # machines may share the folder
    try:
        with temporary.open("wb") as file:
            file.write(contents)
            if lasting:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


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


def _written(contents: Any) -> Any:
    """The same contents as UTF-8 can hold them: JSON may escape halves of characters, which no page could show."""
    text = json.dumps(contents, ensure_ascii=False)
    return contents if text.isascii() else json.loads(text.encode("utf-8", "replace"))
