"""A server with a login: a provider on this machine, three people, one of whom may look."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import PATIENCE_MS, Watch
from tests.browser.openid import CLIENT, SECRET, provider
from tests.browser.processes import await_server, command, free_port

_REFUSED = {
    "Eve": "elsewhere.example.org is not among those who may see the runs on this server.",
    "Mallory": "The provider does not say that it has verified ada",
}


@pytest.fixture(scope="module")
def guarded(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that lets people of lab.example.org in: its address."""
    place, port = tmp_path_factory.mktemp("guarded"), free_port()
    url, output, file = f"http://127.0.0.1:{port}", place / "output.txt", place / "login.toml"
    with provider() as address:
        said = {
            "redirect_uri": f"{url}/oauth2callback", "cookie_secret": "0123456789abcdef" * 2, "client_id": CLIENT,
            "client_secret": SECRET, "server_metadata_url": f"{address}/.well-known/openid-configuration",
        }  # fmt: skip
        lines = [f"{key} = {json.dumps(value)}" for key, value in said.items()]
        file.write_text("\n".join(["[auth]", *lines, "[ratioscope]", 'emails = ["@lab.example.org"]']), "utf-8")
        cache = str(place / "cache")
        arguments = ("dashboard", root, "--port", port, "--login", file)
        with command(*arguments, output=output, folder=place, RATIOSCOPE_CACHE=cache) as process:
            await_server(url, process, output)
            yield url


def log_in(page: Page, name: str) -> None:
    page.get_by_role("button", name="Log in", exact=True).click()
    page.get_by_role("link", name=name, exact=True).click()


def test_those_whom_the_file_names_see_runs_once_they_have_logged_in(guarded: str, chromium: Browser) -> None:
    watch, context = Watch(), chromium.new_context()
    watch.attach(context)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    sent: list[str] = []
    page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: sent.append(str(frame))))
    page.goto(f"{guarded}/overview?run=grpo")
    expect(page.get_by_text("Runs on this server are shown to people who have logged in.")).to_be_visible()
    for name, said in _REFUSED.items():
        log_in(page, name)
        expect(page.get_by_text(said)).to_be_visible()
        expect(page.get_by_role("link", name="Overview")).to_have_count(0)
        page.get_by_role("button", name="Log in as somebody else").click()
    page.get_by_role("button", name="Log in", exact=True).wait_for()
    page.goto(guarded)
    page.get_by_role("button", name="Log in", exact=True).wait_for()
    assert sent and not any("reinforce" in frame for frame in sent)  # the other run; the server told nobody of it
    log_in(page, "Ada")
    expect(page.get_by_role("navigation", name="Pages").get_by_role("link", name="Overview")).to_be_visible()
    expect(page.get_by_text("lab.example.org", exact=False)).to_be_visible()
    page.goto(f"{guarded}/overview?run=grpo")
    expect(page.get_by_text("Off-policy", exact=True)).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_text("Runs on this server are shown to people who have logged in.")).to_be_visible()
    context.close()
    assert not watch.problems
