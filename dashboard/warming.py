"""What pages need is imported while the server answers already, and then runs are read.

A first page does not wait for PyTorch, which few pages need.

One thread imports at a time: pages wait for it (`wait`), because modules that two threads import at once may be seen
half made.
"""

import gc
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from threading import Event, Thread

from ratioscope.dashboard import views
from ratioscope.dashboard.demo import demo, stage
from ratioscope.dashboard.roots import shelves

_done = Event()
_declared = Event()
for _event in (_done, _declared):
    _event.set()  # nothing is under way, as in tests and notebooks


def begin(host: str, port: int, listening: Callable[[], None]) -> None:
    """Start the thread; it calls `listening` when the server answers on this address, and imports afterwards."""
    _done.clear()
    _declared.clear()
    Thread(target=_warm, args=(host, port, listening), name="warming", daemon=True).start()


def wait_for_the_menu() -> None:
    """Return when the declarations of the pages are imported."""
    _declared.wait()


def wait() -> None:
    """Return when all is imported."""
    _done.wait()


def _warm(host: str, port: int, listening: Callable[[], None]) -> None:
    gc.disable()  # what is imported stays: to look through it again and again takes a tenth of the time
    try:
        while not _answers(host, port):
            time.sleep(0.02)
        listening()
        import_module("ratioscope.dashboard.sections")
        _declared.set()
        for module in iter_modules(views.__path__):
            import_module(f"{views.__name__}.{module.name}")
        reader = import_module("ratioscope.dashboard.watching.reader")
        reader.server_reader().processes = reader.processes()
        live = demo()
        reader.server_reader().first = frozenset(folder for _, folder, _ in live.guided) if live else frozenset()
        reader.server_reader().follow(_places)
        _done.set()
        import_module("torch")
        # Every collection would go over what imports leave behind, which takes 0.2 s.
        gc.collect()
        gc.freeze()
    finally:  # a page whose module cannot be imported says why
        gc.enable()
        _declared.set()
        _done.set()


def _places() -> list[Path]:
    """Where runs are to be read; of a demo that has no step yet the guided ones alone: the trainer needs the cores."""
    live = demo()
    if live and not (stage(live).has_steps or stage(live).ended):
        return [folder for _, folder, _ in live.guided]
    return shelves()


def _answers(host: str, port: int) -> bool:
    with suppress(OSError), socket.create_connection((host, port), timeout=1):
        return True
    return False
