"""The Chromium that prints PDF and draws images: what is installed is used, nothing is fetched."""

import os
import shutil
import subprocess
from pathlib import Path

from ratioscope.errors import RatioscopeError

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
# What asks the network for anything is off, and every report is printed from an empty profile.
_QUIET = (
    "--headless", "--disable-gpu", "--no-first-run", "--disable-extensions", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-default-apps", "--no-pdf-header-footer",
    "--generate-pdf-document-outline",
)  # fmt: skip
_PATIENCE = 300.0


def find_chromium() -> str | None:
    """The path of the first Chromium-like browser on PATH, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def required_chromium(what: str) -> str:
    """Its path.

    Args:
        what: is made with it, as the sentence calls it.

    Raises:
        RatioscopeError: there is none.
    """
    path = find_chromium()
    if path is None:
        raise RatioscopeError(
            f"{what} needs Chromium or Chrome, which is not on PATH. Install it (on Debian: apt install chromium), or "
            "write .html and print that from any browser."
        )
    return path


def print_to_pdf(page: Path, pdf: Path) -> None:
    """Print a local page.

    Raises:
        RatioscopeError: there is no Chromium, or it fails.
    """
    program = required_chromium("A PDF")
    profile = pdf.with_suffix(".profile")
    # Root may not use Chromium's sandbox; the page is our own, and its policy forbids every request.
    sandbox = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    command = [program, *_QUIET, *sandbox, f"--user-data-dir={profile}", "--virtual-time-budget=120000",
               f"--print-to-pdf={pdf}", f"{page.resolve().as_uri()}#paper"]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        raise RatioscopeError(f"{program}: printing took longer than {_PATIENCE:.0f} s; write .html instead.") from None
    finally:
        shutil.rmtree(profile, ignore_errors=True)
    if done.returncode or not pdf.is_file():
        reason = next(iter(done.stderr.strip().splitlines()[-1:]), f"exit code {done.returncode}")
        raise RatioscopeError(f"{program}: cannot print the report ({reason}); write .html instead.")
