"""An OpenID Connect provider on this machine: codes with PKCE, signed tokens, a page to choose who one is."""

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT, SECRET = "ratioscope", "the client's secret"
PEOPLE = {
    "Ada": {"sub": "1", "email": "ada@lab.example.org", "email_verified": True},
    "Eve": {"sub": "2", "email": "eve@elsewhere.example.org", "email_verified": True},
    "Mallory": {"sub": "3", "email": "ada@lab.example.org", "email_verified": False},
}


class _Provider(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.key = RSAKey.generate_key(2048, {"kid": "1", "use": "sig", "alg": "RS256"})
        self.codes: dict[str, tuple[str, dict[str, str]]] = {}
        """By the code that was given out: who it is for, and what was asked."""


class _Handler(BaseHTTPRequestHandler):
    server: _Provider

    def do_GET(self) -> None:
        url, at = urlsplit(self.path), self.server.address
        asked = {key: values[0] for key, values in parse_qs(url.query).items()}
        match url.path:
            case "/.well-known/openid-configuration":
                names = {"authorization": "authorize", "token": "token", "end_session": "leave"}
                self._json(
                    {"issuer": at, "jwks_uri": f"{at}/keys", "code_challenge_methods_supported": ["S256"]}
                    | {f"{name}_endpoint": f"{at}/{path}" for name, path in names.items()}
                )
            case "/keys":
                self._json({"keys": [self.server.key.as_dict(private=False)]})
            case "/authorize":
                self._choose(asked)
            case "/leave":
                self._answer(302, b"", location=asked["post_logout_redirect_uri"])
            case _:  # a browser wants an icon
                self._answer(204, b"")

    def do_POST(self) -> None:
        sent = self.rfile.read(int(self.headers["content-length"])).decode()
        form = {key: values[0] for key, values in parse_qs(sent).items()}
        name, asked = self.server.codes.pop(form["code"])
        proof = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).rstrip(b"=").decode()
        client = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        known = self.headers["authorization"] == f"Basic {client}"
        if not known or proof != asked["code_challenge"] or form["redirect_uri"] != asked["redirect_uri"]:
            self._answer(400, b"{}")
            return
        claims = {
            "iss": self.server.address, "aud": CLIENT, "iat": int(time.time()), "exp": int(time.time()) + 600,
            "nonce": asked["nonce"], **PEOPLE[name],
        }  # fmt: skip
        token = jwt.encode({"alg": "RS256", "kid": "1"}, claims, self.server.key)
        self._json({"access_token": secrets.token_hex(8), "token_type": "Bearer", "id_token": token})

    def _choose(self, asked: dict[str, str]) -> None:
        """A link a person, back to the server with a code."""
        links = []
        for name in PEOPLE:
            code = secrets.token_hex(8)
            self.server.codes[code] = (name, asked)
            links.append(
                f'<a href="{asked["redirect_uri"]}?{urlencode({"code": code, "state": asked["state"]})}">{name}</a>'
            )
        self._answer(200, " ".join(links).replace("&", "&amp;").encode(), kind="text/html")

    def _json(self, content: dict[str, Any]) -> None:
        self._answer(200, json.dumps(content).encode())

    def _answer(self, status: int, body: bytes, kind: str = "application/json", location: str = "") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        if location:
            self.send_header("location", location)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on stderr."""


@contextmanager
def provider() -> Iterator[str]:
    """Its address while the block lasts."""
    with _Provider() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.address
        server.shutdown()
