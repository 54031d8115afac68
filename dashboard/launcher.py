"""Starts the server with safe defaults: loopback only, no telemetry, a content security policy."""

import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from pkgutil import iter_modules
from types import FrameType
from urllib.parse import urlsplit

import streamlit as st
import uvicorn
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose
from streamlit import config
from streamlit.web import bootstrap

from ratioscope.dashboard import login, theme, warming
from ratioscope.dashboard.components.error_box import error_box
from ratioscope.dashboard.components.plot import PLOTLY_ADDRESS, PLOTLY_FILE
from ratioscope.dashboard.demo import demo
from ratioscope.dashboard.roots import serve_from
from ratioscope.errors import RatioscopeError

LOOPBACK = "127.0.0.1"
_METRICS = "/_stcore/metrics"

# Everything from this server; Plotly and Streamlit need inline styles and scripts, no eval.
_POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self' 'unsafe-inline' blob:",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self' ws: wss:",
        "worker-src 'self' blob:",
        "frame-ancestors 'none'",
        "base-uri 'self'",
        "object-src 'none'",
    )
)


class ContentSecurityPolicy:
    """Adds the policy to every HTTP response: a log's text cannot load anything from elsewhere."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [pair for pair in message["headers"] if pair[0].lower() != b"content-security-policy"]
                message = {**message, "headers": [*headers, (b"content-security-policy", _POLICY.encode())]}
            await send(message)

        await self.app(scope, receive, send_with_policy if scope["type"] == "http" else send)


class OwnPagesOnly:
    """Answers no web socket of a page from elsewhere, another port of this machine included, and nobody who asks for
    Streamlit's own numbers, which know no login.

    Args:
        origin: where browsers find the server beside its own address; "": nowhere.
    """

    def __init__(self, app: ASGIApp, origin: str = "") -> None:
        self.app, self.origin = app, origin

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket" and not self._is_ours(Headers(scope=scope)):
            await WebSocketClose()(scope, receive, send)
        elif scope["type"] == "http" and scope["path"].rstrip("/") == _METRICS:
            await Response(status_code=404)(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def _is_ours(self, headers: Headers) -> bool:
        """Whether the page is this server's; who says of none is no browser."""
        origin = headers.get("origin")
        return origin is None or origin == self.origin or urlsplit(origin).netloc == headers.get("host")


async def _plotly(request: Request) -> FileResponse:
    """Plotly's own file, from the installed package."""
    return FileResponse(
        PLOTLY_FILE, media_type="text/javascript", headers={"cache-control": "public, max-age=31536000, immutable"}
    )


# Streamlit takes its first page for "/" alone, and looks for itself below each page's name before it looks beside it.
_INDEX = Path(st.__file__).with_name("static") / "index.html"
_BESIDE = (
    "<script>window.__streamlit = "
    "{ BACKEND_BASE_URL: location.origin + location.pathname.replace(/[^/]*$/, '') }</script>"
)


async def _page(request: Request) -> HTMLResponse:
    """Streamlit's own document, which learns where the server is."""
    document = _INDEX.read_text("utf-8").replace("<head>", f"<head>{_BESIDE}", 1)
    return HTMLResponse(document, headers={"cache-control": "no-cache"})


async def _first_page(request: Request) -> RedirectResponse:
    return RedirectResponse(f"./?{request.url.query}" if request.url.query else "./")


def _pages() -> list[Route]:
    """The address of each page by its name, that of the first one too. To import their modules would take a second."""
    first = "start" if demo() else "runs"
    folders = [str(Path(__file__).with_name(name)) for name in ("sections", "views")]
    names = {module.name for module in iter_modules(folders)} - {first}
    return [Route(f"/{first}", _first_page), *(Route(f"/{name}", _page) for name in sorted(names))]


def serve(
    roots: Sequence[Path], port: int, listening: Callable[[], None] = lambda: None, asked: login.Login | None = None
) -> None:
    """Run the dashboard on these folders until it is stopped; blocks.

    Args:
        listening: called when the server answers.
        asked: what people have to log in with; None: all who reach the port may look.
    """
    options = _options(port, asked)
    _only_ours(options)
    login.ask(asked)
    serve_from(roots)
    warming.begin(LOOPBACK, port, listening)
    app = st.App(
        Path(__file__).parent / "entry" / "ratioscope_app.py",
        routes=[Route(PLOTLY_ADDRESS, _plotly), *_pages()],
        middleware=[
            Middleware(ContentSecurityPolicy),
            Middleware(OwnPagesOnly, origin=asked.origin if asked else ""),
        ],
        on_script_error=error_box,
    )
    _wait_for_nobody()
    _give_memory_back()
    app.run(config=options)


# Seconds that open connections have, from Ctrl-C on.
_PATIENCE = 10.0


def _wait_for_nobody() -> None:
    """Have the server end on the first Ctrl-C also where a connection does not: uvicorn waits for all of them."""
    original = uvicorn.Server.handle_exit

    def handle_exit(server: uvicorn.Server, number: int, frame: FrameType | None) -> None:
        def force() -> None:
            server.force_exit = True

        timer = threading.Timer(_PATIENCE, force)
        timer.daemon = True
        timer.start()
        original(server, number, frame)

    uvicorn.Server.handle_exit = handle_exit  # type: ignore[assignment, method-assign]


# Names and values of malloc.h: how many areas threads share, and from how many bytes on a piece is one of its own.
_ARENA_MAX, _MMAP_THRESHOLD = (-8, 2), (-3, 2**20)


def _give_memory_back() -> None:
    """Have glibc return large arrays when they are freed: each page is drawn in a thread of its own, and the areas that
    it keeps for each of many threads grow for hours. Elsewhere, nothing."""
    with suppress(OSError, AttributeError):
        allocator = ctypes.CDLL("libc.so.6")
        for setting in (_ARENA_MAX, _MMAP_THRESHOLD):
            allocator.mallopt(*setting)


# What an older Streamlit does not have need not be switched off there: since which version. To ask Streamlit which
# options it has would read the configuration files that it shall not obey.
_SINCE = {"server.enableAgentApi": (1, 67)}


def _options(port: int, asked: login.Login | None = None) -> dict[str, object]:
    """Every option that matters to the server's safety or its looks, also where Streamlit's default is the same.

    A login file adds the one address at which browsers find the server, which listens on loopback nevertheless.
    """
    version = tuple(map(int, st.__version__.split(".")[:2]))
    options = {
        "global.developmentMode": False,
        "server.address": LOOPBACK,
        "server.port": port,
        "server.baseUrlPath": "",
        "server.headless": True,
        "server.allowedHosts": [LOOPBACK, "localhost", *([asked.host] if asked else [])],
        "server.enableCORS": True,
        "server.corsAllowedOrigins": [asked.origin] if asked else [],
        "server.enableXsrfProtection": True,
        "server.enableStaticServing": False,
        "server.enableAgentApi": False,
        "server.trustedUserHeaders": {},
        "server.fileWatcherType": "none",
        "server.runOnSave": False,
        "browser.gatherUsageStats": False,
        "secrets.files": [str(asked.file)] if asked else [],
        "client.allowedOrigins": [],
        "client.toolbarMode": "viewer",
        "client.showErrorDetails": "type",
        "client.showErrorLinks": "false",  # to search engines, with the error's text
        "logger.level": "error",  # it warns of a tick that comes after its page has gone
        "logger.hideWelcomeMessage": True,  # the command prints the URL, once
        "runner.magicEnabled": False,
        "runner.postScriptGC": False,  # at each tick of each viewer; Python collects when there is something to collect
        **theme.streamlit_options(),
    }
    return {name: value for name, value in options.items() if version >= _SINCE.get(name, version)}


# What Streamlit says of an option that nobody has set, and of one that this command has.
_OURS = ("<default>", "command-line argument or environment variable")
# Random where it is not set; it may come from the environment.
_SECRET = "server.cookieSecret"


def _only_ours(options: Mapping[str, object]) -> None:
    """Have Streamlit obey these options and no `.streamlit/config.toml` that lies in the working folder or at home.

    Raises:
        RatioscopeError: another one is in force nevertheless.
    """
    everywhere = config.get_config_files

    def without_settings(file_name: str) -> list[str]:
        return [] if file_name == "config.toml" else everywhere(file_name)

    config.get_config_files = without_settings
    bootstrap.load_config_options(dict(options))
    set_elsewhere = [name for name in config.get_config_options() if config.get_where_defined(name) not in _OURS]
    others = [name for name, value in options.items() if config.get_option(name) != value]
    for name in (*others, *(name for name in set_elsewhere if name != _SECRET)):
        raise RatioscopeError(
            f"The server does not start: Streamlit's option {name} is set by {config.get_where_defined(name)}; "
            "remove it there."
        )
