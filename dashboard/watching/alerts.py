"""Where alerts go (the terminal, a file, a webhook), and what was already reported to each."""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any, Protocol
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, Request, build_opener

from ratioscope import __version__
from ratioscope.analysis.findings.news import SeverityByRule, reported_from_json, reported_to_json
from ratioscope.dashboard.report.target import check_target_folder
from ratioscope.dashboard.terminal import print_line
from ratioscope.errors import RatioscopeError
from ratioscope.inert import one_line, safe_values
from ratioscope.run_format.manifest import now
from ratioscope.storage.cache import own_folder
from ratioscope.storage.whole_files import append_whole, replace_atomically

Alert = Mapping[str, Any]
"""As `analysis.findings.news.to_json` makes it."""

WEBHOOK_TIMEOUT_SECONDS = 10.0
# What a run's name may hold in a chat message besides letters and digits: nothing that makes a link, a picture or calls
# people. A dot between letters could begin the end of an address.
_NOT_OF_NAMES = re.compile(r"[^\w ._+=,/()-]|(?<=[^\W\d])\.(?=[^\W\d])")
# What a chat service makes a link, a picture or a call of; a space behind its first sign keeps it text.
_OBEYED_IN_CHATS = re.compile(r":(?=[\w+-]+:|//)|[@<](?=\S)|\bwww(?=\.)", re.IGNORECASE)
_LONGEST_NAME = 120


class UndeliveredError(Exception):
    """An alert that did not arrive; `str(error)` is one sentence."""


class Listener(Protocol):
    """Somewhere that alerts go."""

    @property
    def identity(self) -> str:
        """Its identity among listeners, the same after a restart."""

    @property
    def is_new(self) -> bool:
        """Whether it cannot know what was reported to it before."""

    def deliver(self, alert: Alert) -> None:
        """Hand one alert over, or raise an `UndeliveredError`."""


class Terminal:
    """One line an alert on stdout; each person has one, where several share a cache."""

    identity = f"terminal of {os.geteuid() if hasattr(os, 'geteuid') else os.environ.get('USERNAME', '')}"
    is_new = False

    def deliver(self, alert: Alert) -> None:
        print_line(f"{alert['severity']:<9} {one_line(alert['run'])}: {one_line(alert['sentence'])}")


class LinesFile:
    """One JSON object a line, appended to a file.

    Raises:
        RatioscopeError: the file cannot be appended to, or lies inside of a run.
    """

    def __init__(self, path: Path) -> None:
        check_target_folder(path.parent)
        self._path = path
        self.identity = f"file {path.resolve()}"
        try:
            with path.open("ab") as file:
                self.is_new = file.tell() == 0
        except OSError as error:
            raise RatioscopeError(f"{path}: cannot be written ({error.strerror}); choose another --file.") from None

    def deliver(self, alert: Alert) -> None:
        try:
            append_whole(self._path, f"{json.dumps(message(alert), allow_nan=False)}\n".encode())
        except OSError as error:
            raise UndeliveredError(f"{self._path}: an alert could not be written ({error.strerror}).") from None


class Webhook:
    """A POST with one JSON object an alert, to an address of the user's own.

    Redirects are not followed: an alert goes only to the address that was given.

    Raises:
        RatioscopeError: the address is not an http or https URL.
    """

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:
            usable = False
        if not usable or not url.isascii() or not url.isprintable() or " " in url:
            raise RatioscopeError("--webhook must be a URL that begins with http:// or https:// and names a host.")
        self._url, self._host = url, str(parts.hostname)
        self._opener: OpenerDirector = build_opener(_NoRedirect)
        self.is_new = False
        self.identity = f"webhook {url}"

    def deliver(self, alert: Alert) -> None:
        request = Request(
            self._url,
            data=json.dumps(message(alert), allow_nan=False).encode(),
            headers={"Content-Type": "application/json", "User-Agent": f"ratioscope/{__version__}"},
            method="POST",
        )
        try:
            with self._opener.open(request, timeout=WEBHOOK_TIMEOUT_SECONDS):
                return  # what it says is not read
        except HTTPError as error:
            error.close()
            moved = ", and redirects are not followed" if 300 <= error.code < 400 else ""
            reason = f"answered {error.code}{moved}"
        except URLError as error:
            reason = f"cannot be reached ({error.reason})"
        except (OSError, HTTPException, ValueError) as error:
            reason = f"failed ({type(error).__name__})"
        # The address itself is a secret with many services.
        raise UndeliveredError(f"The webhook at {self._host} {reason}; the alert is sent again at the next check.")


class Memory:
    """What was reported to each listener about each run, kept in the cache folder: a restart repeats nothing."""

    def __init__(self) -> None:
        self._reported: dict[tuple[str, str], SeverityByRule] = {}

    def reported(self, listener: Listener, run_key: str) -> SeverityByRule:
        """The worst severity by rule; empty for what was never reported or can no longer be read."""
        key = (listener.identity, run_key)
        if key not in self._reported:
            self._reported[key] = {}
            if listener.is_new:
                return self._reported[key]
            place = memory_place("alerts", *key)
            with suppress(OSError, ValueError):
                if place is not None:
                    self._reported[key] = reported_from_json(json.loads(place.read_text(encoding="utf-8")))
        return self._reported[key]

    def keep(self, listener: Listener, run_key: str, reported: SeverityByRule) -> None:
        """Remember; on disk, too, where that can be written."""
        key = (listener.identity, run_key)
        self._reported[key] = dict(reported)
        place = memory_place("alerts", *key)
        with suppress(OSError):
            if place is not None:
                replace_atomically(place, json.dumps(reported_to_json(reported)).encode(), private=True)


def message(alert: Alert) -> dict[str, Any]:
    """What is sent: the alert, when, and all of it in one line of text, as chat services want it."""
    sentence = _OBEYED_IN_CHATS.sub(r"\g<0> ", one_line(alert["sentence"]))
    text = f"ratioscope: {alert['severity']} in {safe_name(str(alert['run']))}: {sentence}"
    return {"text": text, "time": now(), **safe_values(alert, one_line)}


def safe_name(name: str) -> str:
    """The name of a run for other people's services: short, in one line, and nothing that makes a link or a call."""
    return _NOT_OF_NAMES.sub("?", one_line(name)[:_LONGEST_NAME])


class _NoRedirect(HTTPRedirectHandler):
    """Makes an error of every redirect."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> None:
        return None


def memory_place(purpose: str, identity: str, run_key: str) -> Path | None:
    """Where it is remembered what was sent of a run; named by a hash: a webhook's address may be a secret.

    None: nowhere, because others could write there what was not sent.
    """
    folder = own_folder(purpose)
    name = hashlib.sha256(f"{identity}\n{run_key}".encode(errors="surrogateescape")).hexdigest()[:32]
    return folder and folder / f"{name}.json"
