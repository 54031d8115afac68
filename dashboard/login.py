"""Who may look: the people that a file names, once an OpenID Connect provider has said who they are.

Without such a file nobody is asked: the server then is for those who use this machine. The file:

[auth]                        # of your provider, under Streamlit's names
redirect_uri = "https://runs.example.org/oauth2callback"
cookie_secret = "..."         # 32 random characters or more
client_id = "..."
client_secret = "..."
server_metadata_url = "https://accounts.example.org/.well-known/openid-configuration"

[ratioscope]
emails = ["ada@example.org", "@lab.example.org"]
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import streamlit as st

from ratioscope.dashboard.formats import escape
from ratioscope.errors import RatioscopeError
from ratioscope.toml_file import read_toml

_AUTH = ("redirect_uri", "cookie_secret", "client_id", "client_secret", "server_metadata_url")
_CALLBACK = "/oauth2callback"
_SHORTEST_SECRET = 32


@dataclass(frozen=True)
class Login:
    """What a login file says."""

    file: Path
    origin: str
    """Where browsers find the server, as in https://runs.example.org."""
    emails: tuple[str, ...]
    """In lower case; one that begins with @ admits everybody of that domain."""
    unverified: bool
    """Whether an address counts that the provider does not say it has verified."""

    @property
    def host(self) -> str:
        return urlsplit(self.origin).hostname or ""

    def refusal(self, claims: Mapping[str, Any]) -> str:
        """Why somebody of whom the provider says this may not see runs, a sentence; "" for who may."""
        address = _lower(str(claims.get("email") or ""))
        name, _, domain = address.partition("@")
        known = {address, f"@{domain}"}.intersection(self.emails)
        if not name or not domain or "@" in domain or not known:
            return f"{_who(claims)} is not among those who may see the runs on this server."
        verified = str(claims.get("email_verified")).lower() == "true"  # some write it as a string
        if not verified and not self.unverified:
            return f"The provider does not say that it has verified {_who(claims)}, which this server asks for."
        return ""


def read_login(file: Path) -> Login:
    """Read the file that `--login` names.

    Raises:
        RatioscopeError: it cannot be read or lacks something, or what Streamlit logs people in with is not installed.
    """
    contents = read_toml(file)
    auth, ours = contents.get("auth"), contents.get("ratioscope")
    if not isinstance(auth, dict) or not isinstance(ours, dict):
        raise RatioscopeError(f"{file}: it needs the tables [auth] and [ratioscope]; docs/login.md shows them.")
    for key in _AUTH:
        if not isinstance(auth.get(key), str) or not auth[key]:
            raise RatioscopeError(f"{file}: [auth] needs {key}, a text; docs/login.md says where it comes from.")
    if len(auth["cookie_secret"]) < _SHORTEST_SECRET:
        raise RatioscopeError(
            f"{file}: cookie_secret has {len(auth['cookie_secret'])} characters and needs {_SHORTEST_SECRET} or more "
            "that nobody can guess."
        )
    parts = urlsplit(auth["redirect_uri"])
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path != _CALLBACK or parts.query:
        raise RatioscopeError(
            f"{file}: redirect_uri is {auth['redirect_uri']!r}; it has to be the address at which browsers find this "
            f"server and then {_CALLBACK}, without any path between."
        )
    emails = ours.get("emails")
    named = isinstance(emails, list) and all(isinstance(each, str) and each.count("@") == 1 for each in emails)
    if not isinstance(emails, list) or not emails or not named:
        raise RatioscopeError(
            f'{file}: [ratioscope] needs emails, a list of addresses and of domains as in ["ada@example.org", '
            '"@lab.example.org"]: all others who have an account there see nothing.'
        )
    unverified = ours.get("unverified_emails", False)
    if not isinstance(unverified, bool):
        raise RatioscopeError(f"{file}: unverified_emails is true or false.")
    if find_spec("authlib") is None or find_spec("httpx") is None:
        raise RatioscopeError("A login needs Authlib and httpx: pip install 'ratioscope[login]'.")
    origin = f"{parts.scheme}://{parts.netloc}"
    return Login(file.resolve(), origin, tuple(_lower(each.strip()) for each in emails), unverified)


def _lower(address: str) -> str:
    """An address as it is compared. Other signs than ASCII's stay: some of them are letters of ASCII in lower case."""
    return "".join(sign.lower() if sign.isascii() else sign for sign in address)


_asked: Login | None = None


def ask(login: Login | None) -> None:
    """Have every session of this process log in as that says."""
    global _asked
    _asked = login


def asks() -> bool:
    """Return True where people log in."""
    return _asked is not None


def admitted() -> bool:
    """Whether this session may see runs. If not, the page says how to get there."""
    if _asked is None:
        return True
    claims = st.user.to_dict()
    known = bool(claims.get("is_logged_in"))
    refusal = _asked.refusal(claims) if known else ""
    if known and not refusal:
        return True
    st.title("ratioscope", anchor=False)
    if known:
        st.warning(escape(refusal), icon=":material/block:")
        st.button("Log in as somebody else", on_click=st.logout)
    else:
        st.write("Runs on this server are shown to people who have logged in.")
        st.button("Log in", type="primary", on_click=st.login)
    return False


def way_out() -> None:
    """Below the menu: who is logged in, and how to leave."""
    if _asked is None:
        return
    with st.sidebar, st.container(key="who", gap="xsmall"):
        st.caption(escape(_who(st.user.to_dict())))
        st.button("Log out", icon=":material/logout:", on_click=st.logout)


def _who(claims: Mapping[str, Any]) -> str:
    return str(claims.get("email") or claims.get("name") or claims.get("sub") or "Your account")
