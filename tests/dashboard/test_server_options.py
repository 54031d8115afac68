"""What the server obeys, and what a page shows of an error, without a browser; the open doors are in tests/browser."""

import asyncio
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send
from streamlit.testing.v1 import AppTest


def test_an_option_that_is_not_ours_keeps_the_server_from_starting() -> None:
    """As if a newer Streamlit read its file from somewhere else."""
    program = """
from pathlib import Path
from ratioscope import RatioscopeError
from ratioscope.dashboard import launcher

load = launcher.bootstrap.load_config_options

def another(options):
    load(options)
    launcher.config._set_option(NAME, VALUE, "/tmp/.streamlit/config.toml")

launcher.bootstrap.load_config_options = another
for NAME, VALUE in (("server.enableXsrfProtection", False), ("server.maxUploadSize", 1), ("server.cookieSecret", "x")):
    try:
        launcher._only_ours(launcher._options(8501))
    except RatioscopeError as error:
        print(error)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    said = "The server does not start: Streamlit's option {} is set by /tmp/.streamlit/config.toml; remove it there."
    assert ended.stdout.splitlines() == [
        said.format("server.enableXsrfProtection"),
        said.format("server.maxUploadSize"),
    ]


def test_a_login_opens_the_door_to_its_address_alone_and_reads_its_file_alone() -> None:
    program = """
from pathlib import Path
from streamlit.web.server.starlette.starlette_websocket import _is_origin_allowed
from ratioscope.dashboard import launcher
from ratioscope.dashboard.login import Login

file = Path("login.toml").resolve()
login = Login(file, "https://runs.example.org", ("@example.org",), unverified=False)
launcher._only_ours(launcher._options(8501, login))
for host in ("runs.example.org", "127.0.0.1:8501", "example.org"):
    print([_is_origin_allowed(f"https://{name}", host) for name in ("runs.example.org", "example.org")])
print(launcher.config.get_option("secrets.files") == [str(file)])
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.split("\n") == ["[True, False]", "[True, False]", "[False, False]", "True", ""]


@pytest.mark.parametrize("login", ["", "https://runs.example.org"])
def test_a_web_socket_opens_for_pages_of_this_server_alone_and_its_numbers_for_nobody(login: str) -> None:
    from ratioscope.dashboard.launcher import OwnPagesOnly

    reached: list[str] = []
    answers: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        reached.append(scope["type"])

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        answers.append(message)

    threads = ThreadPoolExecutor(1)  # tests in a browser leave a running loop in the first one

    def opens(kind: str, path: str = "/", host: str = "", origin: str | None = None) -> bool:
        reached.clear()
        headers = [(b"host", host.encode()), *([(b"origin", origin.encode())] if origin is not None else [])]
        scope: dict[str, Any] = {"type": kind, "path": path, "headers": headers}
        threads.submit(asyncio.run, OwnPagesOnly(app, login)(scope, receive, send)).result()
        return bool(reached)

    here = "127.0.0.1:8501"
    assert opens("websocket", host=here, origin=f"http://{here}")
    assert opens("websocket", host="localhost:9000", origin="http://localhost:9000")  # a forwarded port
    assert opens("websocket", host="runs.example.org", origin="https://runs.example.org")
    assert opens("websocket", host=here)
    assert opens("websocket", host=here, origin="https://runs.example.org") is bool(login)
    others = (
        "http://127.0.0.1:8502",
        "http://localhost:8501",
        "https://runs.example.org:444",
        "http://a.example",
        "null",
    )
    for origin in others:
        assert not opens("websocket", host=here, origin=origin), origin
        assert answers[-1]["type"] == "websocket.close"
    assert opens("http", "/_stcore/health") and opens("lifespan")
    for path in ("/_stcore/metrics", "/_stcore/metrics/"):
        answers.clear()
        assert not opens("http", path) and answers[0]["status"] == 404


def _page() -> None:
    from unittest.mock import patch

    import streamlit as st

    from ratioscope.dashboard import app
    from ratioscope.dashboard.components.error_box import error_box
    from ratioscope.dashboard.views import sql

    @st.fragment
    def part() -> None:
        raise ValueError("the text of an error")

    with patch.object(sql, "render", part):
        app.main(default="sql")
    error_box(ValueError("the text of an error"))  # what the server calls; AppTest has Streamlit's own


def test_a_part_of_a_page_that_fails_has_one_box() -> None:
    at = AppTest.from_function(_page, default_timeout=120).run()
    (ours,) = at.error
    assert ours.value.startswith("A part of this page cannot be drawn because of an error in ratioscope (ValueError).")
    assert "the text" not in ours.value and len(at.exception) == 1
