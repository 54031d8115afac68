"""A server over synthetic runs and one that is being written, and a Chromium that reports what goes wrong."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright

from ratioscope import RunRecorder
from tests.browser.processes import await_server, command, free_port
from tests.find_chromium import find_chromium
from tests.making.runs import random_step, write_run

ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
ARTIFACTS = Path(__file__).resolve().parents[2] / "test-artifacts"
MARKUP = (
    "<script>alert(1)</script><img src=http://127.0.0.2 onerror=alert(2)> ![picture](http://127.0.0.2/x.png) "
    "[link](javascript:alert(3)) $x^2$ <b>bold</b>"
)
SCHEDULE = {"sync_interval": 4, "sync_offset": 0, "offline": False}
PPO = {
    "name": "ppo",
    "parts": {"gate": "one_side", "weight": "ratio", "level": "token"},
    "parameters": {"epsilon_low": 0.2, "epsilon_high": 0.2},
}
# What the Back button does; the app is not loaded again, which takes seconds of every test.
GO_ON = "address => { history.pushState({}, '', address); dispatchEvent(new PopStateEvent('popstate')) }"

# Of what is expected and of what is clicked, scrolled to or measured; ten others at work on two cores are borne.
PATIENCE_MS = 120_000
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two finished runs of forty steps and one with markup wherever text goes."""
    folder, rng = tmp_path_factory.mktemp("served"), np.random.default_rng(0)
    for name in ("grpo", "reinforce"):
        steps = [random_step(rng, number, spread=0.05 + 0.1 * (number % 4)) for number in range(40)]
        write_run(folder / name, steps, algorithm={"name": name}, schedule=SCHEDULE, seed=0)
    texts = {"name": MARKUP, "tags": [MARKUP], "notes": MARKUP, "task": {"name": MARKUP}}
    marked = {"name": MARKUP, "parts": {MARKUP: MARKUP}}
    write_run(folder / MARKUP.replace("/", "∕"), [random_step(rng, 0), random_step(rng, 1)], algorithm=marked, **texts)
    return folder


_OPEN_DOORS = """
[server]
enableCORS = false
enableXsrfProtection = false
corsAllowedOrigins = ["http://attacker.example"]
maxMessageSize = 1
[theme]
base = "/nowhere/theme.toml"
"""


@pytest.fixture(scope="session")
def server(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`ratioscope dashboard` on that folder, where a file lies that would open its doors; its address."""
    place, port = tmp_path_factory.mktemp("server"), free_port()
    url, output = f"http://127.0.0.1:{port}", place / "output.txt"
    cache = str(place / "cache")
    (place / ".streamlit").mkdir()
    (place / ".streamlit" / "config.toml").write_text(_OPEN_DOORS, encoding="utf-8")
    dashboard = ("dashboard", root, "--port", port)
    own = {"RATIOSCOPE_CACHE": cache, "RATIOSCOPE_NOTES": str(place / "notes")}
    with command(*dashboard, output=output, folder=place, **own) as process:
        await_server(url, process, output)
        yield url


class Live:
    """A run that this process writes, as a trainer does, but not before a test wants its next step."""

    def __init__(self, recorder: RunRecorder) -> None:
        self._recorder, self._random = recorder, np.random.default_rng(1)
        self.id, self.last_step = recorder.folder.name, -1

    def grow(self) -> int:
        """One step more on disk; its number."""
        self.last_step += 1
        step = random_step(self._random, self.last_step)
        self._recorder.record_step(step.number, tokens=step.tokens, sequences=step.sequences, scalars=step.scalars)
        self._recorder.flush()
        return self.last_step


@pytest.fixture(scope="module")
def live(root: Path) -> Iterator[Live]:
    """A run that is live for as long as the tests of a file last, with eight steps to begin with."""
    with RunRecorder(root / "live", flush_seconds=0.0, algorithm=PPO, schedule=SCHEDULE, seed=3) as recorder:
        run = Live(recorder)
        for _ in range(8):
            run.grow()
        yield run


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    path = find_chromium()
    assert path is not None, "no Chromium on PATH: apt install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield browser
        browser.close()


@dataclass
class Watch:
    """What a browser context did that nobody wants."""

    problems: list[str] = field(default_factory=list)

    def on_console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.problems.append(f"console: {message.text} ({message.location['url']})")

    def attach(self, context: BrowserContext) -> None:
        context.on("console", self.on_console)
        context.on("weberror", lambda error: self.problems.append(f"page error: {error.error}"))
        context.on("dialog", lambda dialog: (self.problems.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        context.on("request", lambda request: self._on_address(request.url))
        context.on("page", lambda page: page.on("websocket", lambda socket: self._on_address(socket.url)))

    def _on_address(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("data", "blob") and parts.hostname != "127.0.0.1":
            self.problems.append(f"request to {url}")


OpenPage = Callable[..., Page]


@pytest.fixture(scope="session")
def contexts(chromium: Browser) -> dict[str, tuple[BrowserContext, Watch]]:
    """A browser context for light and one for dark; they keep what they have loaded, as a browser does."""
    made = {}
    for scheme in ("light", "dark"):
        context = chromium.new_context(color_scheme=scheme, viewport={"width": 1400, "height": 1000})  # type: ignore[arg-type]
        context.set_default_timeout(PATIENCE_MS)
        made[scheme] = (context, Watch())
        made[scheme][1].attach(context)
    return made


@pytest.fixture
def open_page(
    contexts: dict[str, tuple[BrowserContext, Watch]], server: str, request: pytest.FixtureRequest
) -> Iterator[OpenPage]:
    """open_page("/overview?run=grpo") -> the page; fails afterwards if anything went wrong in the browser.

    The tab of the test before goes on to that address, unless that test failed or the address is another server's.
    """
    problems: list[str] = []
    for _, watch in contexts.values():
        watch.problems = problems
    failed_before = request.session.testsfailed
    if getattr(request.node, "execution_count", 1) > 1:  # the first attempt is not counted as failed
        for page in [page for context, _ in contexts.values() for page in context.pages]:
            page.close()

    def open_it(path: str, scheme: str = "light", address: str = server) -> Page:
        context = contexts[scheme][0]
        if context.pages and context.pages[-1].url.startswith(address):
            context.pages[-1].evaluate(GO_ON, path)
            return context.pages[-1]
        page = context.new_page()
        page.goto(address + path)
        return page

    ARTIFACTS.mkdir(exist_ok=True)
    yield open_it
    for page in [page for context, _ in contexts.values() for page in context.pages]:
        page.screenshot(path=ARTIFACTS / f"{request.node.name.replace('/', '-')}.png")
        exceptions = page.locator("[data-testid=stException]")
        problems += [f"exception on the page: {text}" for text in exceptions.all_inner_texts()]
        if problems or request.session.testsfailed > failed_before:
            page.close()
    assert not problems
