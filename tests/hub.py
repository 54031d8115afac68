"""The Hugging Face Hub on this machine: one data set, as its interface for lists and downloads shows it."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

REPOSITORY = "owner/name"


class Hub:
    """What was asked of it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.bytes_read = 0
        """Of the bodies of files."""


def _handler(hub: Hub, root: Path) -> type[BaseHTTPRequestHandler]:
    def entry(path: Path) -> dict[str, object]:
        name = path.relative_to(root).as_posix()
        if path.is_dir():
            return {"type": "directory", "oid": "0" * 40, "size": 0, "path": name}
        return {"type": "file", "oid": "1" * 40, "size": path.stat().st_size, "path": name}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            path, options = unquote(asked.path), parse_qs(asked.query)
            about, files = f"/api/datasets/{REPOSITORY}", f"/datasets/{REPOSITORY}/resolve/main/"
            if path in (about, f"{about}/revision/main"):
                self._json({"id": REPOSITORY, "sha": "a" * 40, "siblings": [], "tags": []})
            elif path.startswith(f"{about}/tree/main"):
                folder = root / path.removeprefix(f"{about}/tree/main").strip("/")
                every = folder.rglob("*") if options.get("recursive", [""])[0].lower() == "true" else folder.glob("*")
                self._json([entry(found) for found in sorted(every)])
            elif path.startswith(files) and (root / path.removeprefix(files)).is_file():
                self._file((root / path.removeprefix(files)).read_bytes())
            else:
                self._json({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})

        def _file(self, whole: bytes) -> None:
            first, last = self.headers["Range"].removeprefix("bytes=").split("-")
            part = whole[int(first) : int(last) + 1]
            hub.bytes_read += len(part)
            self._send(part, 206, {"Content-Range": f"bytes {first}-{last}/{len(whole)}"})

        def _json(self, answer: object, status: int = 200, headers: dict[str, str] | None = None) -> None:
            self._send(json.dumps(answer).encode(), status, headers or {})

        def _send(self, body: bytes, status: int, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(body))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    return Handler


@contextmanager
def serving(root: Path) -> Iterator[Hub]:
    """A hub whose only data set holds what lies in a folder."""
    hub = Hub("")
    with ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub, root)) as server:
        hub.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield hub
        server.shutdown()
        thread.join()
