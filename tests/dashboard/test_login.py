"""Whom a login file admits, and what is wrong with one that cannot be used."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ratioscope.dashboard.login import Login, read_login
from ratioscope.errors import RatioscopeError

AUTH = {
    "redirect_uri": "https://runs.example.org/oauth2callback",
    "cookie_secret": "0123456789abcdef0123456789abcdef",
    "client_id": "ratioscope",
    "client_secret": "s",
    "server_metadata_url": "https://accounts.example.org/.well-known/openid-configuration",
}
EMAILS = 'emails = ["Ada@example.org", "@lab.example.org"]'


def written(folder: Path, auth: Mapping[str, str], ours: str = EMAILS) -> Path:
    file = folder / "login.toml"
    lines = [f'{key} = "{value}"' for key, value in auth.items()]
    file.write_text("\n".join(["[auth]", *lines, "[ratioscope]", ours]), encoding="utf-8")
    return file


def test_a_file_says_where_browsers_find_the_server_and_who_may_look(tmp_path: Path) -> None:
    login = read_login(written(tmp_path, AUTH))
    assert (login.origin, login.host) == ("https://runs.example.org", "runs.example.org")
    assert login.emails == ("ada@example.org", "@lab.example.org") and not login.unverified


@pytest.mark.parametrize(
    ("email", "verified", "admitted"),
    [
        ("ada@example.org", True, True),
        ("ADA@Example.org", "true", True),
        ("ada@example.org", False, False),
        ("ada@example.org", None, False),
        ("eve@example.org", True, False),
        ("anybody@lab.example.org", True, True),
        ("anybody@sub.lab.example.org", True, False),
        ("anybody@evil-lab.example.org", True, False),
        ("eve@lab.example.org@example.net", True, False),
        ("eve@example.net@lab.example.org", True, False),
        ("\N{KELVIN SIGN}im@example.org", True, False),
        ("kim@example.org", True, True),
        ("eve@\N{KELVIN SIGN}elvin.example.org", True, False),
        ("@lab.example.org", True, False),
        ("lab.example.org", True, False),
        ("", True, False),
        (None, True, False),
        (["ada@example.org"], True, False),
    ],
)
def test_who_is_admitted(email: Any, verified: Any, admitted: bool) -> None:
    emails = ("ada@example.org", "@lab.example.org", "kim@example.org", "@kelvin.example.org")
    claims = {"email": email, "email_verified": verified}
    assert (not Login(Path(), "", emails, unverified=False).refusal(claims)) is admitted
    lenient = Login(Path(), "", emails, unverified=True)
    assert (not lenient.refusal(claims)) is (admitted or email == "ada@example.org")


def test_a_refusal_says_why() -> None:
    login = Login(Path(), "", ("ada@example.org",), unverified=False)
    assert "verified ada@example.org" in login.refusal({"email": "ada@example.org"})
    assert login.refusal({"name": "Eve"}).startswith("Eve is not among those")
    assert login.refusal({}).startswith("Your account is not among those")


@pytest.mark.parametrize("missing", AUTH)
def test_nothing_may_be_missing(missing: str, tmp_path: Path) -> None:
    file = written(tmp_path, {key: value for key, value in AUTH.items() if key != missing})
    with pytest.raises(RatioscopeError, match=rf"login.toml: \[auth\] needs {missing}, a text;"):
        read_login(file)


@pytest.mark.parametrize(
    ("auth", "ours", "said"),
    [
        ({"cookie_secret": "short"}, EMAILS, "cookie_secret has 5 characters and needs 32 or more"),
        ({"redirect_uri": "https://runs.example.org/"}, EMAILS, "without any path between"),
        ({"redirect_uri": "https://example.org/runs/oauth2callback"}, EMAILS, "without any path between"),
        (
            {"redirect_uri": "runs.example.org/oauth2callback"},
            EMAILS,
            "redirect_uri is 'runs.example.org/oauth2callback'",
        ),
        ({}, "emails = []", "needs emails"),
        ({}, 'emails = "ada@example.org"', "needs emails"),
        ({}, 'emails = ["*"]', "needs emails"),
        ({}, f"{EMAILS}\nunverified_emails = 1", "unverified_emails is true or false"),
    ],
)
def test_what_is_wrong_is_one_sentence_without_secrets(
    auth: Mapping[str, str], ours: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(RatioscopeError) as caught:
        read_login(written(tmp_path, {**AUTH, **auth}, ours))
    assert said in str(caught.value)
    assert AUTH["cookie_secret"] not in str(caught.value) and "short" not in str(caught.value)


def test_both_tables_are_needed(tmp_path: Path) -> None:
    (file := tmp_path / "login.toml").write_text("auth = 1", encoding="utf-8")
    with pytest.raises(RatioscopeError, match=r"needs the tables \[auth\] and \[ratioscope\]"):
        read_login(file)
