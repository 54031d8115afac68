"""Starts the server with safe defaults: loopback only, no telemetry, a content security policy."""

from collections.abc import Callable, Sequence
from pathlib import Path
from pkgutil import iter_modules

import streamlit as st
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ratioscope.dashboard import theme, views, warming
from ratioscope.dashboard.components.plot import PLOTLY_ADDRESS, PLOTLY_FILE
from ratioscope.dashboard.demo import demo
from ratioscope.dashboard.roots import serve_from

LOOPBACK = "127.0.0.1"

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
    """The address of each page by its name, that of the first one too."""
    first = "start" if demo() else "runs"
    names = {module.name for module in iter_modules(views.__path__)} - {first}
    return [Route(f"/{first}", _first_page), *(Route(f"/{name}", _page) for name in sorted(names))]


def serve(roots: Sequence[Path], port: int, listening: Callable[[], None] = lambda: None) -> None:
    """Run the dashboard on these folders until it is stopped; blocks.

    Args:
        listening: called when the server answers.
    """
    serve_from(roots)
    warming.begin(LOOPBACK, port, listening)
    app = st.App(
        Path(__file__).parent / "entry" / "ratioscope_app.py",
        routes=[Route(PLOTLY_ADDRESS, _plotly), *_pages()],
        middleware=[Middleware(ContentSecurityPolicy)],
    )
    app.run(
        config={
            "server.address": LOOPBACK,
            "server.port": port,
            "server.headless": True,
            "server.allowedHosts": [LOOPBACK, "localhost"],
            "server.fileWatcherType": "none",
            "browser.gatherUsageStats": False,
            "client.toolbarMode": "viewer",
            "logger.level": "error",  # it warns of a tick that comes after its page has gone
            "logger.hideWelcomeMessage": True,  # the command prints the URL, once
            "client.showErrorDetails": "type",
            "client.showErrorLinks": "false",  # to search engines, with the error's text
            "runner.magicEnabled": False,
            "server.runOnSave": False,
            **theme.streamlit_options(),
        }
    )
