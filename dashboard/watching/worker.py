"""A process that works out headlines at low priority, a folder a line on stdin and a headline a line on stdout.

A program of its own and not a spawned copy: Streamlit puts the script of a page in the place of the main module, which
a copy would run.
"""

import atexit
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

from ratioscope.dashboard.watching.headlines import Headline, found

_NICE = 15
# So many processes may end over one run; what else the machine does may have ended the first.
_TRIES = 2


def by_processes(take: Callable[[], Path | None], number: int, most: int) -> Iterator[tuple[Path, Headline]]:
    """The headlines of runs as they come, from so many processes at most.

    Args:
        take: the folder of the next run; None when all are taken. Called by several threads.
        number: of the runs.
    """
    done = SimpleQueue[tuple[Path, Headline]]()
    for _ in range(min(most, number)):
        Thread(target=_hand_out, args=(take, done), name="headlines", daemon=True).start()
    for _ in range(number):
        yield done.get()


def _hand_out(take: Callable[[], Path | None], done: SimpleQueue[tuple[Path, Headline]]) -> None:
    process: subprocess.Popen[str] | None = None
    while (folder := take()) is not None:
        answer, problem = None, f"{folder}: reading it ended the process that did."
        for _ in range(_TRIES):
            try:
                process = process or _start()
            except OSError as error:
                problem = f"{folder}: no process could be started to read it ({error.strerror})."
                break
            answer = _ask(process, folder)
            if answer is not None:
                break
            _end(process)  # it was killed, for its memory perhaps
            process = None
        done.put((folder, answer or Headline(problem=problem)))
    if process:
        _end(process)


def _ask(process: "subprocess.Popen[str]", folder: Path) -> Headline | None:
    assert process.stdin
    assert process.stdout
    with suppress(OSError, ValueError):
        process.stdin.write(json.dumps(os.fspath(folder)) + "\n")
        process.stdin.flush()
        return Headline.read(process.stdout.readline())
    return None


def _start() -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "ratioscope.dashboard.watching.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,  # Ctrl-C is for the process that waits for this one
    )
    atexit.register(process.kill)
    return process


def _end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait()
    atexit.unregister(process.kill)


def main() -> None:
    """The process."""
    with suppress(OSError):
        os.nice(_NICE)
    # What a library prints is no answer.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for line in sys.stdin:
        print(json.dumps(asdict(found(Path(json.loads(line))))), file=answers, flush=True)


if __name__ == "__main__":
    main()
