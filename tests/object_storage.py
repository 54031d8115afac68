"""An object storage on this machine: moto's server, behind a proxy that counts and fails as it is told."""

import http.client
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ratioscope.storage import listings, ranges

BUCKET = "bucket"
SILENT_SECONDS = 4.0
# Headers that are between neighbours.
_OF_THE_WAY = ("content-length", "connection", "transfer-encoding", "expect")


class Storage:
    """The proxy: what was asked for, and what goes wrong next."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.bytes_read = 0
        """Of the bodies of objects; listings are not among them."""
        self.requests: Counter[str] = Counter()
        """By kind: list, get, head, put, post, delete."""
        self.failures: list[str] = []
        """Of the next requests, one each: 503, silent, truncated, 403."""
        self.down = False

    def reset(self) -> None:
        self.bytes_read, self.down = 0, False
        self.requests.clear()
        self.failures.clear()


def _handler(storage: Storage, moto_port: int) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            body = self._body()
            listing = self.command == "GET" and "list-type=2" in self.path
            storage.requests["list" if listing else self.command.lower()] += 1
            fault = "503" if storage.down else storage.failures.pop(0) if storage.failures else ""
            if fault in ("403", "503"):
                self.send_response(int(fault))
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if fault == "silent":
                time.sleep(SILENT_SECONDS)
                self.close_connection = True
                return
            onward = http.client.HTTPConnection("127.0.0.1", moto_port)
            headers = {key: value for key, value in self.headers.items() if key.lower() not in _OF_THE_WAY}
            onward.request(self.command, self.path, body, headers)
            answer = onward.getresponse()
            data = answer.read()
            self.send_response(answer.status)
            for key, value in answer.getheaders():
                if key.lower() not in (*_OF_THE_WAY, "date", "server"):
                    self.send_header(key, value)
            length = answer.getheader("Content-Length", "0") if self.command == "HEAD" else str(len(data))
            self.send_header("Content-Length", length)
            self.end_headers()
            if fault == "truncated":
                self.close_connection, data = True, data[: len(data) // 2]
            if self.command == "GET" and not listing:
                storage.bytes_read += len(data)
            self.wfile.write(data)
            onward.close()

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding", "") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@contextmanager
def serving() -> Iterator[Storage]:
    """A storage with an empty bucket."""
    from moto.server import ThreadedMotoServer

    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    _, moto_port = moto.get_host_and_port()
    request = urllib.request.Request(f"http://127.0.0.1:{moto_port}/{BUCKET}", method="PUT")
    urllib.request.urlopen(request).close()
    proxy = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    storage = Storage(proxy.server_port)
    proxy.RequestHandlerClass = _handler(storage, moto_port)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    try:
        yield storage
    finally:
        proxy.shutdown()
        proxy.server_close()
        moto.stop()


def configure(storage: Storage, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    """Settings as a user makes them, and a process that has seen nothing yet."""
    for key, value in {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{storage.port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "RATIOSCOPE_STORAGE_TIMEOUT": "60",  # on a busy machine an answer takes seconds
        "RATIOSCOPE_CACHE": str(cache),
    }.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setattr("ratioscope.storage.failures.WAITS", (0.0, 0.0, 0.0))
    storage.reset()
    forget_all()


def forget_all() -> None:
    """What a process holds of listings and objects; the cache on disk stays."""
    for known in (listings._listings, listings._whole, listings._asked, listings._objects):
        known.clear()
    ranges.pieces.cache_clear()
    ranges._memory.__init__()
