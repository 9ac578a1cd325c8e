"""Gives tests a sender, a key to seal secrets with, and a resolver that answers as it is told."""

import asyncio
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any

from delivery.http.sender import Sender
from shared.config.addresses import Address
from shared.config.destination import Destination
from shared.retry.attempt import Attempt, Failed, Failure
from shared.runtime.clock import now_ms
from shared.runtime.resolver import Resolve
from shared.runtime.secret_box import SecretBox, new_key

BOX = SecretBox([new_key()])


def a_destination(url: str, **settings: Any) -> Destination:
    return Destination(stream="demo", name="to", url=url, **settings)


def seal(secret: str) -> str:
    return BOX.seal(secret, owner="demo/to")


def answering(*addresses: str) -> Resolve:
    async def resolve(_: str) -> Sequence[Address]:
        return [ip_address(address) for address in addresses]

    return resolve


def send(
    to: Destination,
    body: bytes = b"[1]",
    *,
    times: int = 1,
    box: SecretBox = BOX,
    allows_private: bool = True,
    resolve: Resolve | None = None,
) -> list[Attempt]:
    async def in_turn() -> list[Attempt]:
        sender = Sender(allows_private=allows_private, box=box, resolve=resolve)
        headers = {"webhook-id": "msg_1", "webhook-timestamp": str(now_ms() // 1000)}
        try:
            return [await sender.post(to, body, headers) for _ in range(times)]
        finally:
            await sender.close()

    return asyncio.run(in_turn())


def failure(attempts: list[Attempt]) -> Failure:
    (attempt,) = attempts
    assert isinstance(attempt, Failed), attempt
    return attempt.failure
