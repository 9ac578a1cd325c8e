"""An AWS machine on loopback: its metadata service, and the few services that machines call.

It checks what AWS checks: a token for metadata, and a signature that fits the request.
"""

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote

from deploy.aws.machine.calls import signed_headers
from shared.runtime.clock import now_ms

CREDENTIALS = {"AccessKeyId": "AKID", "SecretAccessKey": "shh", "Token": "session"}
TOKEN = "imds-token"


@dataclass
class FakeAws:
    """The answers of a fake AWS, and the requests to it."""

    brokers: str = "127.0.0.1:9092"
    config: dict[str, Any] = field(default_factory=dict)
    secrets: dict[str, Mapping[str, str]] = field(default_factory=dict)
    # Under meta-data/; other paths are 404.
    metadata: dict[str, str] = field(default_factory=dict)
    in_service: int = 1
    calls: list[dict[str, str]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    host: str = "127.0.0.1"
    port: int = 0

    @property
    def address(self) -> str:
        return f"http://{self.host}:{self.port}"

    def notice(self) -> None:
        """Announce that the machine will be taken away in two minutes."""
        self.metadata["spot/instance-action"] = '{"action": "terminate"}'

    def called(self, action: str) -> list[dict[str, str]]:
        return [call for call in self.calls if call["Action"] == action]

    def answer_metadata(self, path: str) -> str | None:
        known = {
            "user-data": json.dumps(self.config) if self.config else None,
            "meta-data/instance-id": "i-1",
            "meta-data/iam/security-credentials/": "role",
            "meta-data/iam/security-credentials/role": json.dumps(CREDENTIALS),
        }
        return known.get(path) or self.metadata.get(path.removeprefix("meta-data/"))

    def answer_call(self, service: str, path: str, body: bytes) -> tuple[int, str]:
        match service:
            case "kafka":
                assert unquote(path).startswith(f"/v1/clusters/{self.config['cluster']}/")
                return 200, json.dumps({"bootstrapBrokerStringSaslScram": self.brokers})
            case "secretsmanager":
                name = json.loads(body)["SecretId"]
                if name not in self.secrets:
                    return 400, '{"__type": "ResourceNotFoundException"}'
                return 200, json.dumps({"SecretString": json.dumps(self.secrets[name])})
            case _:
                self.calls.append(dict(parse_qsl(body.decode())))
                row = "<LifecycleState>InService</LifecycleState>"
                return 200, f"<r>{row * self.in_service}</r>"


class _AwsHandler(BaseHTTPRequestHandler):
    aws: FakeAws
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        if self.path != "/latest/api/token":
            return self._say(404, "")
        return self._say(200, TOKEN)

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path.startswith("/latest/"):
            return self._metadata()
        _, service, path = self.path.split("/", 2)
        if not self._is_signed(service, body):
            self.aws.refused.append(self.path)
            return self._say(403, "SignatureDoesNotMatch")
        return self._say(*self.aws.answer_call(service, f"/{path}", body))

    def _metadata(self) -> None:
        if self.headers.get("X-aws-ec2-metadata-token") != TOKEN:
            return self._say(401, "")
        text = self.aws.answer_metadata(self.path.removeprefix("/latest/"))
        return self._say(404, "") if text is None else self._say(200, text)

    def _is_signed(self, service: str, body: bytes) -> bool:
        """Return whether signing the same request with the same key gives the same signature."""
        given = self.headers["authorization"]
        names = given.partition("SignedHeaders=")[2].partition(",")[0].split(";")
        at = self.headers["x-amz-date"]
        moment = datetime.strptime(at, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        made = signed_headers(
            CREDENTIALS,
            service,
            "us-east-1",
            method=self.command,
            url=f"http://{self.headers['host']}{self.path}",
            body=body,
            headers={
                name: self.headers[name]
                for name in names
                if name.startswith(("content", "x-amz-t"))
            },
            at_ms=round(moment.timestamp() * 1_000),
        )
        is_new = abs(now_ms() / 1_000 - moment.timestamp()) < 300
        return is_new and made["authorization"] == given

    def _say(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Write no log, as nobody reads it."""


@contextlib.contextmanager
def fake_aws(host: str = "127.0.0.1", port: int = 0) -> Iterator[FakeAws]:
    aws = FakeAws(host=host)
    handler = type("_AskedOfThis", (_AwsHandler,), {"aws": aws})
    server = ThreadingHTTPServer((host, port), handler)
    server.daemon_threads = True
    aws.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield aws
    finally:
        server.shutdown()
        thread.join(timeout=10)
        server.server_close()


def machine_config(aws: FakeAws, **services: Mapping[str, Any]) -> dict[str, Any]:
    """Return user data as the template writes it, with the services on loopback."""
    return {
        "region": "us-east-1",
        "endpoint": f"{aws.address}/{{service}}",
        "cluster": "arn:aws:kafka:us-east-1:111122223333:cluster/hifi-prod-kafka/1",
        "group": "hifi-prod-gateway",
        "stack": "hifi-prod-fleet",
        "resource": "GatewayGroup",
        "services": services,
    }
