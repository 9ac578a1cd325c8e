"""Gives tests a sender, a key to seal secrets with, and a resolver with given answers."""

import asyncio
from ipaddress import ip_address
from typing import Any

from delivery.http.sender import Sender
from shared.config.destination import Destination
from shared.retry.attempt import Attempt, Failure, NoResponse
from shared.runtime.clock import now_ms
from shared.runtime.resolver import LookUp, Resolver
from shared.runtime.secret_box import SecretBox, new_key

BOX = SecretBox([new_key()])


def a_destination(url: str, **settings: Any) -> Destination:
    return Destination(stream="demo", name="to", url=url, **settings)


def seal(secret: str) -> str:
    return BOX.seal(secret, owner="demo/to")


def answering(*addresses: str) -> LookUp:
    return lambda _: [ip_address(address) for address in addresses]


def send(
    to: Destination,
    body: bytes = b"[1]",
    *,
    times: int = 1,
    box: SecretBox = BOX,
    allows_private: bool = True,
    look_up: LookUp | None = None,
) -> list[Attempt]:
    async def in_turn() -> list[Attempt]:
        resolver = Resolver(look_up) if look_up else None
        sender = Sender(allows_private=allows_private, box=box, resolver=resolver)
        headers = {"webhook-id": "msg_1", "webhook-timestamp": str(now_ms() // 1000)}
        try:
            return [await sender.post(to, body, headers) for _ in range(times)]
        finally:
            await sender.close()

    return asyncio.run(in_turn())


def failure(attempts: list[Attempt]) -> Failure:
    (attempt,) = attempts
    assert isinstance(attempt, NoResponse), attempt
    return attempt.failure
