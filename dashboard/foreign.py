"""Other programs' runs below the folders of a dashboard: what is there, and importing it beside, never into them.

An import is a process of its own, which follows its source: pages stay quick, and Ctrl-C in the terminal ends both. Its
run lies in the user's cache, in a folder that the dashboard serves along.
"""

import atexit
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import IO

from ratioscope.analysis.importers.detect import FoundSource, search
from ratioscope.dashboard.roots import check_imports, imports_of
from ratioscope.errors import RatioscopeError
from ratioscope.run_format.manifest import MANIFEST_NAME, Manifest
from ratioscope.storage.places import Remote

LOOK_SECONDS = 2.0
"""Between two looks at a source that is followed."""


@dataclass(frozen=True)
class Foreign:
    """A source below a folder that is served, and the folder that its run is imported to."""

    found: FoundSource
    folder: Path

    @property
    def state(self) -> str:
        """The status of its run; "" where it has not been imported."""
        try:
            return Manifest.read(self.folder).live_status() if (self.folder / MANIFEST_NAME).is_file() else ""
        except RatioscopeError:
            return ""


def foreign_below(roots: Sequence[Path]) -> list[Foreign]:
    """The sources in these folders; in the order of the folders."""
    listed: list[Foreign] = []
    for root in roots:
        if isinstance(root, Remote):  # to look for them would be to list everything
            continue
        sources = list(search(root))
        places = [each.description.path for each in sources]
        for each in sources:
            path = each.description.path
            name = "-".join(path.relative_to(root).parts) if path.is_relative_to(root) and path != root else root.name
            several = places.count(path) > 1
            listed.append(Foreign(each, imports_of(root) / (f"{name}-{each.importer.name}" if several else name)))
    return listed


class Imports:
    """The imports that this server has started."""

    def __init__(self) -> None:
        self._running: dict[Path, tuple[subprocess.Popen[bytes], IO[bytes]]] = {}
        self._problems: dict[Path, str] = {}
        self._lock = RLock()  # sessions look at the same time
        atexit.register(self.stop)

    def start(self, foreign: Foreign) -> None:
        """Import a source and follow it while it grows; nothing happens where that is going on."""
        with self._lock:
            if not self.runs(foreign):
                self._start(foreign)

    def _start(self, foreign: Foreign) -> None:
        self._problems.pop(foreign.folder, None)
        try:
            check_imports()
        except RatioscopeError as error:
            self._problems[foreign.folder] = str(error)
            return
        complaints = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the process has ended
        command = [
            *(sys.executable, "-P", "-m", "ratioscope", "import", str(foreign.found.description.path.resolve())),
            *("--format", foreign.found.importer.name, "--to", str(foreign.folder.parent)),
            *("--name", foreign.folder.name, "--follow", "--every", str(LOOK_SECONDS), "--quiet"),
        ]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=complaints)
        self._running[foreign.folder] = (process, complaints)

    def runs(self, foreign: Foreign) -> bool:
        """Whether a process of this server is importing it."""
        with self._lock:
            return foreign.folder in self._running and self._goes_on(foreign)

    def _goes_on(self, foreign: Foreign) -> bool:
        process, complaints = self._running[foreign.folder]
        if process.poll() is None:
            return True
        complaints.seek(0)
        said = complaints.read().decode("utf-8", "replace").strip().removeprefix("ratioscope: ")
        complaints.close()
        del self._running[foreign.folder]
        if process.returncode:
            self._problems[foreign.folder] = said or f"The import ended with exit code {process.returncode}."
        return False

    def problem(self, foreign: Foreign) -> str:
        """Why the last import failed; "" where it did not."""
        return "" if self.runs(foreign) else self._problems.get(foreign.folder, "")

    def stop(self) -> None:
        """End every import as Ctrl-C would: the next one continues."""
        for process, _ in list(self._running.values()):
            with suppress(OSError):
                process.send_signal(signal.SIGINT)
