"""How a command ends: exit codes, Ctrl-C at any moment, and a crash that no gate takes for a finding.

Ctrl-C is a KeyboardInterrupt in the main thread, and whatever it turns into on its way out (a query that DuckDB gives
up, an import that fails, an error that somebody catches), the command says one line and ends with INTERRUPTED. What
does not end is interrupted once more, and then ended. Imports nothing heavy: it must be there before what takes long.
"""

import _thread
import atexit
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn, TextIO

PROBLEMS_FOUND = 1
USAGE_ERROR = 2
CRASHED = 70
"""An error of ours; EX_SOFTWARE of sysexits.h."""
INTERRUPTED = 130
"""As a shell reports a program that ended by Ctrl-C (128 + SIGINT)."""
PIPE_CLOSED = 141
"""As a shell reports a program that ended because nobody read its output any more (128 + SIGPIPE)."""
MEANINGS = (
    "0 fine, 1 something was found, 2 a mistake in the command or its input, "
    "70 an error of ratioscope itself, 130 Ctrl-C"
)

# Seconds after which what was interrupted is interrupted again, and then ended.
_AGAIN, _AT_LAST = 1.0, 4.0


@dataclass
class _Press:
    """Of Ctrl-C, while a command is being interrupted."""

    stderr: TextIO
    """Where the one line goes; nothing else is printed any more."""
    said: bool = False


_presses: list[_Press] = []


def run(command: Callable[[], None]) -> NoReturn:
    """Run a command to the end of this process, whatever happens in it."""
    _open_closed()
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        listen()
    code: int | str | None
    try:
        command()
        code = 0
    except SystemExit as ending:
        code = ending.code
    except BaseException as error:  # noqa: BLE001 - the end of every command is here
        code = CRASHED
        if not _presses and not isinstance(error, KeyboardInterrupt):
            traceback.print_exc()
            print(
                f"ratioscope: this is an error of ratioscope itself ({type(error).__name__}), not a finding; please "
                "report it with the lines above.",
                file=sys.stderr,
            )
        if isinstance(error, KeyboardInterrupt):
            code = INTERRUPTED
    for _ in range(2):  # it has ended; the first call may bring a signal that was on its way
        with suppress(KeyboardInterrupt):
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    if _presses:
        say_last("interrupted.")
        code = INTERRUPTED
    else:
        threading.excepthook = _complain
        threading._shutdown()  # type: ignore[attr-defined]  # waits for the threads that Python waits for
    _leave(code)


def _open_closed() -> None:
    """Where a shell has closed stdout or stderr (`>&-`), what is written goes nowhere, as with /dev/null. Else the next
    file that is opened would take its number, and be written to."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:  # the lowest number that is free is the one that is taken
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "r+" if number == 0 else "w", encoding="utf-8", closefd=False))  # noqa: SIM115


def _complain(problem: threading.ExceptHookArgs) -> None:
    """An error of a thread while the command ends. A thread that is not waited for may import what must not begin any
    more: nothing is lost with it."""
    if problem.thread is None or not problem.thread.daemon:
        threading.__excepthook__(problem)


def _leave(code: int | str | None) -> NoReturn:
    """End this process as sys.exit would, but without taking the interpreter down.

    That ends daemon threads inside of DuckDB and of PyTorch, whose C++ aborts the process then. Python would also end
    as if killed where a KeyboardInterrupt has come out of an exec(), as of dataclasses.
    """
    atexit._run_exitfuncs()
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    for stream in filter(None, (sys.stdout, sys.stderr)):  # None where a shell has closed it
        with suppress(OSError, ValueError):  # a command that could not write has said so
            stream.flush()
    os._exit(code or 0)


def listen() -> None:
    """From now on Ctrl-C ends the command, also one that was started in the background, where it is ignored."""
    signal.signal(signal.SIGINT, _pressed)


def say_last(sentence: str) -> None:
    """What is said of an interruption, once; the first that is said counts."""
    press = _presses[-1] if _presses else _Press(sys.stderr)
    if not press.said:
        press.said = True
        if press.stderr.isatty():
            press.stderr.write("\r\x1b[K\x1b[?25h")  # a progress bar hides the cursor
        print(f"ratioscope: {sentence}", file=press.stderr, flush=True)


def accept() -> None:
    """Ctrl-C was the usual way to end this command; it goes on to its end."""
    if _presses:
        sys.stderr = _presses.pop().stderr
        _presses.clear()


def _pressed(number: int, frame: FrameType | None) -> None:
    if not _presses:
        _presses.append(_Press(sys.stderr))
        # Whoever is cut short complains: callbacks, threads, whoever catches any error.
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
        _thread.start_new_thread(_insist, (_presses[0],))  # threading's own locks may be held here
    raise KeyboardInterrupt


def _insist(press: _Press) -> None:
    time.sleep(_AGAIN)
    if press in _presses and not press.said:
        # The first one may have been lost in a callback; this one also wakes who sleeps.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    time.sleep(_AT_LAST - _AGAIN)
    if press in _presses:
        say_last("interrupted.")
        os._exit(INTERRUPTED)
