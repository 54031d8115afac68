"""The console commands as processes of their own: a server, the demo."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE = 90.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def command(
    *arguments: object, output: Path, folder: Path | None = None, **environment: str
) -> Iterator["subprocess.Popen[bytes]"]:
    """`ratioscope ARGUMENTS` in a folder until the block ends; what it prints goes into the file `output`."""
    with output.open("wb") as printed:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ratioscope", *map(str, arguments)],
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            cwd=folder,
            stdout=printed,
            stderr=subprocess.STDOUT,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(timeout=PATIENCE)
                except subprocess.TimeoutExpired:
                    process.kill()
                    raise


def await_server(url: str, process: "subprocess.Popen[bytes]", output: Path) -> None:
    """Return when the server answers; a server that ended is an error with what it printed."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        assert process.poll() is None, output.read_text()
        try:
            with urllib.request.urlopen(f"{url}/_stcore/health", timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"{url} did not answer: {output.read_text()}")


def await_file(folder: Path, pattern: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not list(folder.glob(pattern)):
        assert time.monotonic() < deadline, f"no {pattern} in {folder}"
        time.sleep(0.1)


def command_lines() -> str:
    """The command lines of everything that runs on this machine."""
    return subprocess.run(["ps", "-e", "-ww", "-o", "args="], capture_output=True, text=True, check=True).stdout
