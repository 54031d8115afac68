"""What an open page says while the server does not answer: that, and the command that has the page go on."""

import shlex
from pathlib import Path
from urllib.parse import urlsplit

import streamlit as st

from ratioscope.dashboard import login
from ratioscope.dashboard.roots import roots
from ratioscope.inert import one_line

_HERE = ("localhost", "127.0.0.1", "::1")
_component = st.components.v2.component(
    "ratioscope.connection", js=Path(__file__).with_suffix(".js").read_text(encoding="utf-8")
)


def connection() -> None:
    """Bring the words into the browser, which needs them when nothing more can be brought."""
    says = [
        "The dashboard's server does not answer.",
        "This page keeps its last state and goes on by itself as soon as the server answers.",
    ]
    with st.container(key="connection"):
        _component(key="connection-words", data={"says": [*says, _command()]})


def _command() -> str:
    """What starts the server again; "" for people who need not be those who started it: elsewhere, or logged in."""
    address = urlsplit(str(st.context.url or ""))
    if login.asks() or address.hostname not in _HERE:
        return ""
    words = ["ratioscope", "dashboard", *map(str, roots()), *(["--port", str(address.port)] if address.port else [])]
    return one_line(shlex.join(words))
