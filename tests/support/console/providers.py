"""Gives tests OpenID providers: a real one as a process, and one that answers as a test wants."""

import json
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from observe.settings import ConsoleSettings
from tests.support.suite.programs import npm_package, program

_PACKAGE = "tests/packages/oidc"
CLIENT, SECRET = "console", "a secret: with % and +"


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def console_settings(issuer: str, port: int, folder: Path, **more: Any) -> ConsoleSettings:
    """Return settings of a console whose issuer's accounts have a company and groups."""
    (folder / "secret").write_text(f"{SECRET}\n")
    given: dict[str, Any] = {
        "port": port,
        "gateway": "",
        "url": f"http://127.0.0.1:{port}",
        "oidc_issuer": issuer,
        "oidc_client_id": CLIENT,
        "oidc_client_secret_file": folder / "secret",
        "oidc_name": "Example",
        "oidc_scope": "hifi",
        "oidc_tenant_claim": "company",
        "oidc_scope_claim": "groups",
        "oidc_read_value": "hifi-read",
        "oidc_admin_value": "hifi-admin",
    }
    return ConsoleSettings(**(given | more))


@contextmanager
def real_provider(redirect_uri: str) -> Iterator[str]:
    """Run `oidc-provider` on this machine; yield its issuer."""
    folder = npm_package(_PACKAGE, "oidc-provider").parents[1]
    argv = [program("node"), str(folder / "provider.js"), redirect_uri]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield f"http://localhost:{int(process.stdout.readline())}"
        finally:
            process.kill()


@dataclass
class LyingProvider:
    """A provider that makes a test's claims about itself, its keys and the person."""

    about: dict[str, Any] = field(default_factory=dict)
    claims: dict[str, Any] = field(default_factory=dict)
    # Sent instead of a token with these claims.
    answer: tuple[int, bytes] | None = None
    token: str = ""
    signer: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)
    kid: str = "k1"
    keys: list[Mapping[str, Any]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    forms: list[dict[str, list[str]]] = field(default_factory=list)
    port: int = 0

    @property
    def issuer(self) -> str:
        return f"http://localhost:{self.port}"

    def be_honest(self, **claims: Any) -> None:
        """Behave as a provider should; with other claims if they are given."""
        self.answer, self.token, self.kid = None, "", "k1"
        self.signer = Ed25519PrivateKey.generate()
        self.keys = [self.public()]
        self.about = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/auth?by=us",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
        }
        self.claims = {
            "iss": self.issuer,
            "aud": CLIENT,
            "sub": "ann",
            "iat": int(time.time()),
            "exp": int(time.time()) + 600,
            "company": "default",
            "groups": ["hifi-read"],
        } | claims
        self.asked.clear()
        self.forms.clear()

    def public(self) -> dict[str, Any]:
        key: dict[str, Any] = json.loads(
            jwt.algorithms.OKPAlgorithm.to_jwk(self.signer.public_key())
        )
        return key | {"kid": self.kid, "alg": "EdDSA", "use": "sig"}

    def signed(self) -> str:
        return jwt.encode(self.claims, self.signer, algorithm="EdDSA", headers={"kid": self.kid})

    def answer_to(self, path: str, body: bytes) -> tuple[int, bytes]:
        self.asked.append(path)
        if path == "/.well-known/openid-configuration":
            return 200, json.dumps(self.about).encode()
        if path == "/keys":
            return 200, json.dumps({"keys": self.keys}).encode()
        self.forms.append(parse_qs(body.decode()))
        token = {"id_token": self.token or self.signed(), "token_type": "Bearer"}
        return self.answer or (200, json.dumps(token).encode())


@contextmanager
def lying_provider() -> Iterator[LyingProvider]:
    provider = LyingProvider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("content-length", 0))
            status, content = provider.answer_to(urlsplit(self.path).path, self.rfile.read(length))
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET  # noqa: N815 - as the base class has it

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        provider.port = server.server_address[1]
        provider.be_honest()
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield provider
        finally:
            server.shutdown()
            thread.join()
