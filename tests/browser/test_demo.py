"""The first minute: one command, one address, a run that is training before one's eyes; Ctrl-C ends all of it."""

import re
import signal
from pathlib import Path

from playwright.sync_api import APIResponse, Browser, Route, expect

from ratioscope import Manifest
from ratioscope.analysis.runs.store import open_run
from tests.browser.actions import badge, go_to, settled, shown_step
from tests.browser.conftest import ARTIFACTS, OpenPage
from tests.browser.processes import PATIENCE, await_file, await_server, command, command_lines, free_port


def test_the_demo_trains_before_ones_eyes_and_ctrl_c_ends_all_of_it(
    open_page: OpenPage, chromium: Browser, tmp_path: Path
) -> None:
    port, root, output = free_port(), tmp_path / "demo-runs", tmp_path / "output.txt"
    address = f"http://127.0.0.1:{port}"
    with command("demo", "--port", port, "--root", root, output=output) as demo:
        await_server(address, demo, output)
        (url,) = re.findall(r"http://\S+", output.read_text())
        assert url == f"{address}/"
        page = open_page("/", address=address)
        expect(page.get_by_role("heading", name=re.compile("^(Start|Overview)$"))).to_be_visible()
        settled(page, "Overview")  # by itself, with the first step
        assert re.search(r"/overview\?run=live-demo-", page.url)
        expect(badge(page, "live")).to_be_visible()
        expect(page.get_by_text(re.compile(r"data up to step \d+"))).to_be_visible()
        seen = shown_step(page)
        page.screenshot(path=ARTIFACTS / "demo.png")
        go_to(page, "Start")
        expect(page.get_by_role("link", name="See its answer")).to_have_count(3)
        expect(page.get_by_text(re.compile("^Its findings are being read"))).to_have_count(0)
        expect(page.get_by_role("link", name="Open it")).to_be_visible()
        page.close()  # a page whose server goes away complains, rightly
        unwatched, late = chromium.new_page(), chromium.new_page()
        held: list[tuple[Route, APIResponse]] = []  # what the words are brought by, on the page that has it late
        late.route(re.compile(r"/BidiComponent\."), lambda route: held.append((route, route.fetch())))
        for each in unwatched, late:
            each.goto(f"{address}/runs")
            settled(each, "Runs")
        expect(unwatched.locator("#ratioscope-away")).to_be_attached()

        demo.send_signal(signal.SIGINT)
        assert demo.wait(timeout=PATIENCE) == 0, output.read_text()
        expect(late.get_by_role("dialog", name="Connection error")).to_be_visible()
        for route, response in held:
            route.fulfill(response=response)
        for each in unwatched, late:
            away = each.get_by_role("alert").filter(has_text="The dashboard's server does not answer.")
            expect(away.get_by_text(f"--port {port}")).to_be_visible()
            expect(each.get_by_role("dialog")).to_have_count(0)
            each.close()

    assert "Traceback" not in output.read_text()
    (folder,) = root.iterdir()
    manifest = Manifest.read(folder)
    assert (manifest.status, manifest.status_reason) == ("interrupted", "stopped by the user")
    assert folder.name.startswith("live-demo-")
    run = open_run(folder)
    assert run.last_step >= seen >= 0
    assert not run.problems
    assert not list(folder.rglob("*.tmp-*"))
    assert str(root) not in command_lines()


def test_a_demo_that_is_terminated_leaves_no_trainer_behind(tmp_path: Path) -> None:
    port, root, output = free_port(), tmp_path / "demo-runs", tmp_path / "output.txt"
    with command("demo", "--port", port, "--root", root, output=output) as demo:
        await_server(f"http://127.0.0.1:{port}", demo, output)
        await_file(root, "*/steps/*.parquet")
        demo.terminate()
        demo.wait(timeout=PATIENCE)
    assert "Traceback" not in output.read_text()
    assert str(root) not in command_lines()
    (folder,) = root.iterdir()
    assert Manifest.read(folder).status == "interrupted"
