"""Makes one HTTP exchange and returns its result as an Attempt.

Every network error becomes a value here, and so does a bug of our own (`internal`), as other
destinations share the task. Redirects are never followed, only a destination's own settings name a
proxy (the environment does not), an answer is read up to a cap, and one deadline covers the whole
exchange, however slowly the answer arrives.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import structlog

from delivery.http.connection import ExchangeError, Reply, ReplyLimits
from delivery.http.outgoing_request import IsLate
from delivery.http.partial_reply import report_bytes_max
from delivery.http.request_builder import RequestBuilder, SenderContext
from shared.config.destination import Destination
from shared.proof.last_answer import ANSWER_BYTES_MAX, told_headers
from shared.retry.attempt import Attempt, Failure, NoResponse, Response, directive_of
from shared.retry.retry_after import as_length
from shared.runtime.resolver import Resolver
from shared.runtime.secret_box import SecretBox

log = structlog.get_logger()

# With a client certificate a builder takes some 1 MB in OpenSSL; a worker may need thousands.
BUILDERS_MAX = 512


class Sender:
    """Connections that live as long as the worker process, and a builder for each destination."""

    def __init__(
        self,
        *,
        box: SecretBox,
        allows_private: bool = False,
        resolver: Resolver | None = None,
    ) -> None:
        self._context = SenderContext(
            box=box,
            resolver=resolver or Resolver(),
            allows_private=allows_private,
        )
        self._builders: dict[str, RequestBuilder] = {}

    async def post(
        self,
        destination: Destination,
        body: bytes,
        headers: Mapping[str, str],
        *,
        event_count: int = 1,
        tenant: str = "",
        is_late: IsLate = lambda: False,
    ) -> Attempt:
        """POST once; never raises for anything that the destination or the network does."""
        until_s = asyncio.get_running_loop().time() + destination.timeout_s
        room = self._context.room
        limits = ReplyLimits(until_s, report_bytes_max(event_count), room, tenant)
        try:
            builder = self._builder(destination)
            reply, is_resent = await builder.post(body, headers, limits, is_late=is_late)
        except ExchangeError as error:
            return NoResponse(error.failure, error.detail[:ANSWER_BYTES_MAX])
        except Exception as error:
            # A bug of ours that one destination triggers must not end a task that others share.
            log.exception("delivery.exchange_failed", destination=destination.id)
            return NoResponse(Failure.INTERNAL, type(error).__name__)
        return _attempt_of(reply, is_resent=is_resent)

    async def end_task(self) -> None:
        """Close old idle connections, as nobody watches them until the next task."""
        self._context.idle.close_old()
        # A transport closes its socket in the loop's next round.
        await asyncio.sleep(0)

    async def close(self) -> None:
        for builder in self._builders.values():
            builder.close()
        self._builders.clear()
        await self.end_task()

    def _builder(self, destination: Destination) -> RequestBuilder:
        # The last entry is the one used last.
        builder = self._builders.pop(destination.id, None)
        if builder is not None and builder.destination is not destination:
            # Each task brings its own copy of the settings.
            if builder.destination == destination:
                builder.destination = destination
            else:
                builder.close()
                builder = None
        if builder is None:
            builder = RequestBuilder(destination, self._context)
            if len(self._builders) >= BUILDERS_MAX:
                self._builders.pop(next(iter(self._builders))).close()
        self._builders[destination.id] = builder
        return builder


def _attempt_of(reply: Reply, *, is_resent: bool) -> Attempt:
    """Turn an answer into the attempt that it ends."""
    directive = directive_of(reply.headers.get("webhook-delivery", ""))
    if reply.is_success and reply.is_early:
        # The destination cannot have taken a request that it had not received whole.
        return NoResponse(Failure.RESPONSE_UNREADABLE, f"{reply.status} before all was sent")
    if reply.may_report:
        # The destination may have taken a part of the batch, and only a whole report says which.
        if not reply.is_whole:
            return NoResponse(Failure.RESPONSE_UNREADABLE, "a report that was cut")
        if reply.coding:
            why = f"a report in the coding {reply.coding:.40}, which was not asked for"
            return NoResponse(Failure.RESPONSE_UNREADABLE, why)
        return Response(
            reply.status,
            report=reply.body,
            is_report=reply.is_report,
            is_json=reply.is_json,
            is_resent=is_resent,
            directive=directive,
        )
    answered = Response(
        reply.status,
        as_length(reply.headers.get("retry-after"), reply.headers.get("date")),
        is_resent=is_resent,
        directive=directive,
    )
    if reply.is_success:
        return answered
    detail = reply.body[:ANSWER_BYTES_MAX].decode(errors="replace")
    return replace(answered, detail=detail, headers=told_headers(reply.headers))
