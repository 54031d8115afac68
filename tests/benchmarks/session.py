"""A dashboard's server as a process, and a browser session of it without a browser: what the server sends, and when.

It speaks Streamlit's own protocol over the websocket, so that what is timed is the server's whole answer (script,
caches, serialisation) and neither a test harness nor a browser.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin, Subprotocol

from tests.browser.processes import await_server, free_port

PATIENCE = 300.0


class Server:
    """A running server: its port, its memory, the processor time that it has used, as Linux tells them."""

    def __init__(self, port: int, process: int) -> None:
        self.port = port
        self._place = Path("/proc", str(process))

    @property
    def megabytes(self) -> float:
        """Resident memory."""
        return int((self._place / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

    @property
    def threads(self) -> int:
        return len(list((self._place / "task").iterdir()))

    @property
    def files(self) -> int:
        """How many it has open, sockets among them."""
        return len(list((self._place / "fd").iterdir()))

    @property
    def processor_seconds(self) -> float:
        """Processor time so far, of all its threads."""
        fields = (self._place / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def serving(root: Path, place: Path, code: str = "", port: int = 0) -> Iterator[Server]:
    """`ratioscope dashboard` on a folder until the block ends; `code` starts another server in its place, on {port}.

    Args:
        port: 0: any that is free.
    """
    port, output = port or free_port(), place / "server-output.txt"
    arguments = (
        ["-c", code.format(port=port)] if code else ["-P", "-m", "ratioscope", "dashboard", root, "--port", port]
    )
    with output.open("wb") as printed:
        process = subprocess.Popen(
            [sys.executable, *map(str, arguments)],
            env={**os.environ, "RATIOSCOPE_NOTES": str(place / "notes")},
            stdout=printed,
            stderr=subprocess.STDOUT,
        )
        try:
            await_server(f"http://127.0.0.1:{port}", process, output)
            yield Server(port, process.pid)
        finally:
            process.terminate()
            process.wait(PATIENCE)


class Session:
    """What one browser tab asks and gets."""

    def __init__(self, server: Server) -> None:
        address = f"127.0.0.1:{server.port}"
        self._socket: ClientConnection = connect(
            f"ws://{address}/_stcore/stream",
            origin=Origin(f"http://{address}"),
            subprotocols=[Subprotocol("streamlit")],
            max_size=None,
        )
        self._page, self._query, self._script = "", "", ""
        self._kept: set[str] = set()
        self.specs: list[dict[str, Any]] = []
        """The figures of the last answer, as the browser gets them."""
        self.ticks: dict[str, float] = {}
        """Fragments that the page wants run again by themselves, and how often, in seconds."""
        self.bytes = 0
        """Size of the last answer."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._socket.close()

    def open(self, page: str, query: str = "") -> float:
        """Go to a page; returns the seconds until all of it is here."""
        self._page, self._query, self.ticks = page, query, {}
        return self._answered(ClientState(page_name=page, query_string=query))

    def refresh(self) -> float:
        """Have the page drawn again."""
        return self.open(self._page, self._query)

    def tick(self, fragment: str) -> float:
        """Run a fragment as the page's timer does."""
        state = ClientState(query_string=self._query, fragment_id=fragment, is_auto_rerun=True)
        state.page_script_hash = self._script
        return self._answered(state)

    def _answered(self, state: ClientState) -> float:
        state.cached_message_hashes.extend(self._kept)
        self.bytes, figures = 0, []
        started = time.perf_counter()
        self._socket.send(BackMsg(rerun_script=state).SerializeToString())
        done = (ForwardMsg.FINISHED_SUCCESSFULLY, ForwardMsg.FINISHED_FRAGMENT_RUN_SUCCESSFULLY)
        while True:
            data = self._socket.recv(PATIENCE)
            assert isinstance(data, bytes)
            self.bytes += len(data)
            message = ForwardMsg.FromString(data)
            kind = message.WhichOneof("type")
            if message.metadata.cacheable:
                self._kept.add(message.hash)
            if kind == "navigation":  # the page among those of the app, which a tick has to name
                self._script = message.navigation.page_script_hash
            elif kind == "auto_rerun":
                self.ticks[message.auto_rerun.fragment_id] = message.auto_rerun.interval
            elif kind == "delta" and message.delta.WhichOneof("type") == "new_element":
                figures += _figures(message.delta.new_element)
            elif kind == "script_finished" and message.script_finished in done:
                took = time.perf_counter() - started
                self.specs = [json.loads(figure) for figure in figures]
                return took


def _figures(element: Any) -> list[str]:
    kind = element.WhichOneof("type")
    if kind == "exception":
        raise RuntimeError(f"{element.exception.type}: {element.exception.message}")
    if kind == "bidi_component":  # the dashboard's own chart, or its reader of tokens
        figure = json.loads(element.bidi_component.json or "{}").get("figure")
        return [figure] if figure else []
    return [element.plotly_chart.spec] if kind == "plotly_chart" else []
