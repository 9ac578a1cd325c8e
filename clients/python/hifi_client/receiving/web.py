"""Serves a receiver at a path of any web framework, as an ASGI or a WSGI application."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from http import HTTPStatus
from typing import Any, TypeAlias

from hifi_client.errors import DeliveryError
from hifi_client.receiving.receiver import BODY_BYTES_MAX, Receiver, Reply, Take, refusal, status_of

Message: TypeAlias = MutableMapping[str, Any]
_TOO_LARGE = DeliveryError(413, f"The body has more than {BODY_BYTES_MAX:,} bytes.")
_NOT_POST = DeliveryError(405, "Deliveries are POST requests.")


class AsgiReceiver:
    """An ASGI application.

    In FastAPI: `app.add_route("/hifi", AsgiReceiver(receiver, take), methods=["POST"])`.

    `take` may be a coroutine function; other functions are called in a thread.
    """

    def __init__(self, receiver: Receiver, take: Take) -> None:
        self._receiver, self._take = receiver, take
        self._is_async = inspect.iscoroutinefunction(take)

    async def __call__(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        parts, size, is_whole = [], 0, False
        while not is_whole and size <= BODY_BYTES_MAX:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            is_whole = not message.get("more_body", False)
        if scope["method"] != "POST":
            reply = refusal(_NOT_POST)
        elif not is_whole:
            reply = refusal(_TOO_LARGE)
        else:
            reply = await self._answer(headers, b"".join(parts))
        raw = [(name.encode(), value.encode()) for name, value in reply.headers.items()]
        raw.append((b"content-length", str(len(reply.body)).encode()))
        await send({"type": "http.response.start", "status": reply.status, "headers": raw})
        await send({"type": "http.response.body", "body": reply.body})

    async def _answer(self, headers: dict[str, str], body: bytes) -> Reply:
        if not self._is_async:
            return await asyncio.to_thread(self._receiver.answer, headers, body, self._take)
        try:
            delivery = self._receiver.open(headers, body)
        except DeliveryError as error:
            return refusal(error)
        failed: dict[int, int] = {}
        for nth, event in enumerate(delivery.events):
            try:
                await self._take(event)  # type: ignore[misc]  # it is a coroutine function
            except Exception as error:  # noqa: BLE001 - after any error, the event is not taken
                failed[nth] = status_of(error)
        return delivery.reply(failed)


class WsgiReceiver:
    """A WSGI application, to mount under a path."""

    def __init__(self, receiver: Receiver, take: Take) -> None:
        self._receiver, self._take = receiver, take

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., object]
    ) -> Iterable[bytes]:
        headers = {
            name.removeprefix("HTTP_").replace("_", "-"): str(value)
            for name, value in environ.items()
            if name.startswith("HTTP_") or name in {"CONTENT_TYPE", "CONTENT_LENGTH"}
        }
        length = int(environ.get("CONTENT_LENGTH") or 0)
        if environ["REQUEST_METHOD"] != "POST":
            reply = refusal(_NOT_POST)
        elif length > BODY_BYTES_MAX:
            reply = refusal(_TOO_LARGE)
        else:
            reply = self._receiver.answer(headers, environ["wsgi.input"].read(length), self._take)
        status = f"{reply.status} {HTTPStatus(reply.status).phrase}"
        length_header = ("content-length", str(len(reply.body)))
        start_response(status, [*reply.headers.items(), length_header])
        return [reply.body]
