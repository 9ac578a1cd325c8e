"""The code in the Python client's README works as printed, except for addresses and secrets."""

import asyncio
import base64
import json
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from standardwebhooks import Webhook

import hifi_client
from shared.event.topics import stream_topic
from tests.support.gateway.client_gateways import STREAM, WAIT_S
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import RunningGateway

README = Path(hifi_client.__file__).parents[1] / "README.md"
SECRET = f"whsec_{base64.b64encode(b'a' * 24).decode()}"
# Texts of the README that readers replace with their own.
SHOWN = {"url": "http://127.0.0.1:8080", "spool": "data/hifi-spool", "secret": "whsec_..."}


def block(nth: int, **instead: str) -> dict[str, Any]:
    """Run a block of code with some of its texts replaced, and return its variables."""
    code = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)[nth]
    for old, new in instead.items():
        assert SHOWN[old] in code
        code = code.replace(SHOWN[old], new)
    left: dict[str, Any] = {}
    exec(code, left)
    return left


def test_the_lines_that_send(
    publisher: FakePublisher, gateway: RunningGateway, tmp_path: Path
) -> None:
    left = block(0, url=gateway.url, spool=str(tmp_path))
    assert left["hifi"].flush(WAIT_S)
    left["hifi"].close()
    (event,) = publisher.stored(stream_topic(STREAM))
    assert json.loads(event.value)["price"] == 5


def test_the_lines_that_receive(capsys: pytest.CaptureFixture[str]) -> None:
    left = block(1, secret=SECRET)
    body, at = '[{"id":"e-1","type":"sale"}]', datetime.fromtimestamp(int(time.time()), tz=UTC)
    headers = {
        "content-type": "application/json",
        "webhook-id": "msg_1",
        "webhook-timestamp": str(int(at.timestamp())),
        "hifi-stream": "orders",
    }
    signed = headers | {"webhook-signature": Webhook(SECRET).sign("msg_1", at, body)}

    async def statuses() -> list[int]:
        transport = httpx.ASGITransport(left["app"])
        async with httpx.AsyncClient(transport=transport, base_url="http://receiver") as server:
            answers = [
                await server.post("/hifi", content=body, headers=each) for each in (headers, signed)
            ]
        return [answer.status_code for answer in answers]

    assert asyncio.run(statuses()) == [401, 200]
    assert "e-1" in capsys.readouterr().out
