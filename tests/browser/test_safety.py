"""Nothing in a log runs, loads or links anywhere, and nobody but this machine is served."""

import base64
import os
import re
import socket
import urllib.request
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.browser.actions import charts, go_to, settled
from tests.browser.conftest import MARKUP, OpenPage

MARKED = MARKUP.replace("/", "∕")


def assert_inert(page: Page) -> None:
    """The markup is there to be read, and is nothing but text."""
    expect(page.get_by_text("onerror=alert(2)").first).to_be_visible()
    main = page.locator("[data-testid=stMain]")
    links = ("a[href^='javascript:']", "a[*|href^='javascript:']", "a[href^='http://127.0.0.2']")
    expect(main.locator(", ".join(("script", "img[onerror]", "img[src*='127.0.0.2']", *links)))).to_have_count(0)
    expect(main.locator("b, strong").filter(has_text=re.compile("^bold$"))).to_have_count(0)


def test_markup_of_a_log_is_inert(open_page: OpenPage) -> None:
    page = open_page(f"/compare?run={quote(MARKED)}&run=grpo")
    settled(page, "Compare")
    expect(charts(page).first).to_be_visible()
    assert_inert(page)
    page = open_page(f"/overview?run={quote(MARKED)}")
    settled(page, "Overview")
    expect(charts(page).first).to_be_visible()
    assert_inert(page)
    go_to(page, "Clipping")
    expect(charts(page).first).to_be_visible()
    assert_inert(page)
    go_to(page, "Report")
    assert_inert(page)
    go_to(page, "Runs")
    expect(page.get_by_text("Reading rewards and findings")).to_have_count(0)
    expect(page.locator("[data-testid=stDataFrame] canvas").first).to_be_visible()
    expect(page.locator("[data-testid=stMain] img[onerror]")).to_have_count(0)


def test_every_response_has_a_content_security_policy(server: str) -> None:
    for path in ("/", "/overview", "/_stcore/health"):
        with urllib.request.urlopen(server + path, timeout=30) as response:
            policy = response.headers["Content-Security-Policy"]
        rules = {rule.split()[0]: rule.split()[1:] for rule in policy.split(";")}
        assert rules["default-src"] == ["'self'"]
        assert rules["object-src"] == rules["frame-ancestors"] == ["'none'"]
        assert "'unsafe-eval'" not in rules["script-src"]
        assert not [source for sources in rules.values() for source in sources if "*" in source or "http" in source]


def _websocket_status(server: str, host: str, origin: str) -> int:
    """The HTTP status that the app's websocket answers a handshake with; 101 is an open door."""
    address = urlsplit(server)
    assert address.hostname is not None
    key = base64.b64encode(os.urandom(16)).decode()
    lines = ("GET /_stcore/stream HTTP/1.1", f"Host: {host}", f"Origin: {origin}", "Upgrade: websocket",
             "Connection: Upgrade", f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", "", "")  # fmt: skip
    with socket.create_connection((address.hostname, address.port), timeout=30) as connection:
        connection.sendall("\r\n".join(lines).encode())
        return int(connection.recv(1024).split()[1])


def test_the_websocket_opens_for_this_machine_only(server: str) -> None:
    here = urlsplit(server).netloc
    assert _websocket_status(server, here, server) == 101
    assert _websocket_status(server, "attacker.example", server) in (400, 403)
    assert _websocket_status(server, "attacker.example", "http://attacker.example") in (400, 403)
    assert _websocket_status(server, here, "http://attacker.example") in (400, 403)
    assert _websocket_status(server, here, "http://127.0.0.1:9") in (400, 403)  # another program of this machine


def test_nobody_is_told_the_numbers_of_the_server(server: str) -> None:
    with pytest.raises(HTTPError) as refused:
        urllib.request.urlopen(f"{server}/_stcore/metrics")
    assert refused.value.code == 404


def test_only_the_loopback_interface_listens(server: str) -> None:
    port = urlsplit(server).port
    listening = []
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            local, state = line.split()[1], line.split()[3]
            if state == "0A" and int(local.rpartition(":")[2], 16) == port:
                listening.append(local.rpartition(":")[0])
    assert listening == ["0100007F"]  # 127.0.0.1, as the kernel writes it


def test_the_first_page_has_an_address_too_which_keeps_what_it_asks_for(server: str) -> None:
    with urllib.request.urlopen(f"{server}/runs?q=grpo&order=name") as answer:
        assert answer.url == f"{server}/?q=grpo&order=name"
        assert answer.headers["content-security-policy"]
    with urllib.request.urlopen(f"{server}/drift?run=grpo") as answer:  # without it Streamlit searches
        assert b"<head><script>window.__streamlit = " in answer.read()
