"""Handles a request's events: checks them, stores them, and answers.

The headers alone decide the caller, stream, format and size, before a byte of the body is read.
Then the body and its events are read. No event goes to Kafka before all of them are checked.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from time import monotonic, time_ns
from typing import TYPE_CHECKING

from gateway.answers import (
    Answer,
    answer,
    count_outcomes,
    dry_answer,
    problem_answer,
    strict_refusal,
    unforeseen,
)
from gateway.callers import Caller, Callers, ConfigSource
from gateway.fleet.claims import Claims
from gateway.fleet.idempotency import id_base
from gateway.fleet.quota import Quotas
from gateway.ingest.ingestion import Arrival, Ingestion, WholeRequest, ledger_request
from gateway.ingest.tally import Tally
from gateway.ingest.whole_head import WholeHead
from gateway.intake import admission, cloud_events
from gateway.intake.admission import Format
from gateway.intake.byte_budget import ByteBudget
from gateway.intake.event_finder import EventLimits, find_events
from gateway.intake.events import Context, ParsedBody, key_finder, read_events
from gateway.intake.plain_events import read_plain
from gateway.intake.request_body import Body, BodyLimits
from gateway.intake.schemas import SchemaChecks
from gateway.intake.shards import shard_finder
from gateway.problems import Problem
from gateway.publish.ledger import AckLedger
from gateway.publish.publisher import PostingPublisher
from gateway.publish.report import Report
from gateway.request_options import RequestOptions, read_options
from gateway.settings import Settings
from shared.config.access import Tenant
from shared.event.topics import stream_topic
from shared.metric_names import GATEWAY_IN_FLIGHT_BYTES
from shared.runtime.metrics import Metrics

if TYPE_CHECKING:
    from gateway.intake.request_spans import RequestSpans

_find_key = lru_cache(maxsize=1_000)(key_finder)
_REPLAYED = ((b"idempotency-replayed", b"true"),)
# Not a set, because an enum's hash is a call.
_CLOUD_EVENTS = (Format.CLOUD_EVENT, Format.CLOUD_EVENTS)


class Ingest:
    """Serves requests with events."""

    def __init__(
        self,
        *,
        settings: Settings,
        publisher: PostingPublisher,
        config: ConfigSource,
        callers: Callers,
        metrics: Metrics,
        schemas: SchemaChecks,
        claims: Claims,
        quotas: Quotas,
        ledger: AckLedger | None = None,
    ) -> None:
        # Set only where requests are traced.
        self.spans: RequestSpans | None = None
        self._publisher = publisher
        self._schemas = schemas
        self._ledger = ledger
        self._config = config
        self._callers = callers
        self._tally = Tally(metrics, publisher.meanwhile)
        self._limits = EventLimits(
            events_max=settings.events_max,
            event_bytes_max=settings.event_bytes_max,
            json_depth_max=settings.json_depth_max,
        )
        self._body_limits = BodyLimits.of(settings, settings.body_bytes_max)
        self._beacon_limits = BodyLimits.of(settings, settings.beacon_bytes_max)
        share = settings.tenant_in_flight_share if callers.is_on else 1.0
        self._byte_budget = ByteBudget(
            settings.in_flight_bytes_max,
            tenant_bytes_max=int(share * settings.in_flight_bytes_max),
        )
        self._quotas = quotas
        self._claims = claims
        self._tasks: set[asyncio.Task[None]] = set()
        metrics.gauge(GATEWAY_IN_FLIGHT_BYTES).set_function(
            lambda: self._byte_budget.byte_count + publisher.overdue_bytes
        )

    async def take(self, arrival: Arrival) -> Answer:
        """Serve POST .../events; raise Problem if the whole request is refused."""
        now_ms, headers = time_ns() // 1_000_000, arrival.headers
        caller = self._callers.of_request(headers, state=arrival.state, now_ms=now_ms)
        return await self._serve(arrival, caller, now_ms, self._read_head, self._body_limits)

    def _read_head(self, arrival: Arrival, caller: Caller, now_ms: int) -> Ingestion:
        body_format = admission.read_format(arrival.headers)
        options = read_options(arrival.headers, arrival.query_string)
        stream = caller.stream(arrival.stream, self._config.configuration)
        trace = admission.traceparent(arrival.headers.get(b"traceparent"))
        return Ingestion(arrival.request_id, caller, stream, body_format, options, trace, now_ms)

    async def take_beacon(self, arrival: Arrival, *, key: str) -> Answer:
        """Serve POST .../beacon: events of a closing page, in a type that needs no preflight."""
        now_ms = time_ns() // 1_000_000
        if self._callers.is_on:
            caller = self._callers.of_key(key, now_ms=now_ms)
            if caller.origins is None:
                raise Problem("scope_missing", "A beacon needs a browser key.")
        else:
            caller = self._callers.of_request(arrival.headers, state={}, now_ms=now_ms)
        read_head, limits = self._read_beacon_head, self._beacon_limits
        return (await self._serve(arrival, caller, now_ms, read_head, limits)).minimal()

    def _read_beacon_head(self, arrival: Arrival, caller: Caller, now_ms: int) -> Ingestion:
        media_type = arrival.headers.get(b"content-type", "").split(";")[0].strip(" \t").lower()
        if media_type not in {"text/plain", "application/json"}:
            raise Problem("unsupported_media_type", "Send a beacon as text/plain or as JSON.")
        stream = caller.stream(arrival.stream, self._config.configuration)
        trace = admission.traceparent(arrival.headers.get(b"traceparent"))
        options = RequestOptions()
        return Ingestion(arrival.request_id, caller, stream, Format.JSON, options, trace, now_ms)

    async def _serve(
        self,
        arrival: Arrival,
        caller: Caller,
        now_ms: int,
        read_head: Callable[[Arrival, Caller, int], Ingestion],
        limits: BodyLimits,
    ) -> Answer:
        """Return the answer to a request, with headers about its tenant's quota."""
        tenant = self._config.configuration.tenants.get(caller.tenant)
        try:
            caller.check("write", origin=arrival.headers.get(b"origin"))
            ingestion = read_head(arrival, caller, now_ms)
            if self.spans is None:
                given = await self._read_and_store(arrival, ingestion, tenant, limits)
            else:
                work = self._read_and_store(arrival, ingestion, tenant, limits)
                given = await ingestion.traced(self.spans, work)
        except Problem as problem:
            problem.headers += self._quotas.headers(tenant, now_s=monotonic())
            raise
        return given.with_headers(self._quotas.headers(tenant, now_s=monotonic()))

    async def _read_and_store(
        self,
        arrival: Arrival,
        ingestion: Ingestion,
        tenant: Tenant | None,
        limits: BodyLimits,
    ) -> Answer:
        headers, caller, options = arrival.headers, ingestion.caller, ingestion.options
        encoding = admission.read_encoding(headers.get(b"content-encoding"))
        self._quotas.admit(tenant, now_s=monotonic())
        body = Body(
            arrival.receive,
            byte_budget=self._byte_budget,
            tenant=caller.tenant,
            overdue_bytes=self._publisher.overdue_bytes,
            limits=limits,
        )
        try:
            cycle_ref = arrival.state.get("cycle")
            is_whole = cycle_ref is not None and not cycle_ref().more_body
            wire = await body.read(
                headers.get(b"content-length"), is_whole=is_whole, waits=b"expect" in headers
            )
            self._tally.body(ingestion.stream.name, len(wire))
            signature = headers.get(b"hifi-signature")
            caller.check_signature(signature, body=wire, now_ms=ingestion.now_ms)
            raw = body.decompress(encoding, wire)
            if ingestion.body_format is Format.CLOUD_EVENT_BINARY:
                raw = cloud_events.from_headers(headers, raw)
                ingestion.body_format = Format.CLOUD_EVENT
            if options.idempotency_key is None or options.is_dry_run:
                given = await self._judge_and_store(ingestion, raw, arrival.request_id)
            else:
                given = await self._once(ingestion, raw)
        finally:
            body.release()
            events, byte_count = ingestion.event_count, body.byte_count
            self._quotas.use(tenant, events=events, byte_count=byte_count, now_s=monotonic())
        return _as_wished(given, options)

    def post(
        self, head: WholeHead, body: bytes, request_id: str, tell: Callable[[Answer], None]
    ) -> bool:
        """Take a request that arrived in one piece, without a task; call `tell` with its answer.

        Return False to leave it to `take`, which reports faults, and can wait for more than Kafka.
        """
        now_ms = time_ns() // 1_000_000
        try:
            writer = head.writer = self._callers.writer(
                head.headers, head.stream, now_ms=now_ms, known=head.writer
            )
        except Problem:
            return False
        if writer.stream.json_schema or len(body) > self._body_limits.body_bytes_max:
            return False
        whose = writer.caller, writer.stream, head.body_format, head.options, head.traceparent
        ingestion = Ingestion(request_id, *whose, now_ms)
        if self.spans is not None:
            ingestion.trace(self.spans)
        posted = WholeRequest(ingestion, writer.tenant, len(body), monotonic(), tell)
        try:
            self._post(posted, body, head.headers.get(b"hifi-signature"))
        except Problem as problem:
            self._end(posted, problem_answer(problem, request_id))
        except Exception as error:  # noqa: BLE001 - reported as internal_error
            self._end(posted, unforeseen(request_id, error))
        return True

    def _post(self, posted: WholeRequest, body: bytes, signature: str | None) -> None:
        ingestion, tenant = posted.ingestion, posted.ingestion.caller.tenant
        self._quotas.admit(posted.tenant, now_s=posted.begun_s)
        overdue_bytes = self._publisher.overdue_bytes
        self._byte_budget.enter(posted.byte_count, tenant=tenant, overdue_bytes=overdue_bytes)
        posted.is_in_flight = True
        self._tally.body(ingestion.stream.name, posted.byte_count)
        ingestion.caller.check_signature(signature, body=body, now_ms=ingestion.now_ms)
        parsed = posted.parsed = self._judge(ingestion, body, ingestion.request_id)
        self._check_all(ingestion, parsed)
        tell, topic = partial(self._told, posted), stream_topic(ingestion.stream.name)
        if not parsed.events:
            tell(())
        elif not self._publisher.post(topic, parsed.events, tell):
            task = asyncio.create_task(self._publish_and_tell(topic, posted, tell))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _publish_and_tell(
        self, topic: str, posted: WholeRequest, told: Callable[[Sequence[Report]], None]
    ) -> None:
        events = posted.parsed.events
        try:
            reports = await self._publisher.publish(topic, events)
        except Exception as error:  # noqa: BLE001 - reported as internal_error
            self._end(posted, unforeseen(posted.ingestion.request_id, error))
        else:
            told(reports)

    def _told(self, posted: WholeRequest, reports: Sequence[Report]) -> None:
        """Answer a posted request once Kafka has reported on its events."""
        ingestion, parsed = posted.ingestion, posted.parsed
        try:
            if reports:
                name = ingestion.stream.name
                self._tally.acknowledged(name, monotonic() - posted.begun_s)
                ingestion.note_reports(reports)
                self._note(ingestion, stream_topic(name), parsed, reports)
            given = _as_wished(self._conclude(ingestion, parsed, reports), ingestion.options)
        except Problem as problem:
            given = problem_answer(problem, ingestion.request_id)
        except Exception as error:  # noqa: BLE001 - reported as internal_error
            given = unforeseen(ingestion.request_id, error)
        self._end(posted, given)

    def _end(self, posted: WholeRequest, given: Answer) -> None:
        ingestion, tenant, now_s = posted.ingestion, posted.tenant, monotonic()
        if ingestion.span is not None:
            ingestion.span.end(given.status, event_count=ingestion.event_count)
        if posted.is_in_flight:
            posted.is_in_flight = False
            self._byte_budget.leave(posted.byte_count, tenant=ingestion.caller.tenant)
            events, byte_count = ingestion.event_count, posted.byte_count
            self._quotas.use(tenant, events=events, byte_count=byte_count, now_s=now_s)
        posted.tell(given.with_headers(self._quotas.headers(tenant, now_s=now_s)))

    async def _once(self, ingestion: Ingestion, raw: bytes) -> Answer:
        """Serve a request with an Idempotency-Key, or repeat its earlier answer."""
        tenant, key = ingestion.caller.tenant, ingestion.options.idempotency_key
        scope = f"{tenant}\0{ingestion.stream.name}\0{key}"
        ordering_key = ingestion.options.ordering_key or b""
        content = [ingestion.body_format.value.encode(), ordering_key, raw]
        if ingestion.options.is_strict:
            # Its answer differs where one event is invalid.
            content.append(b"strict")
        claimed = await self._claims.begin(scope, content, tenant=tenant)
        if isinstance(claimed, Answer):
            return claimed.with_headers(_REPLAYED)
        ingestion.claim = claimed
        given: Answer | None = None
        try:
            given = await self._judge_and_store(ingestion, raw, id_base(scope))
        except Problem as problem:
            given = problem_answer(problem, ingestion.request_id)
            raise
        finally:
            await self._claims.end(claimed, given)
        return given

    async def _judge_and_store(self, ingestion: Ingestion, raw: bytes, base: str) -> Answer:
        parsed = self._judge(ingestion, raw, base)
        if ingestion.stream.json_schema and parsed.events:
            schema, tenant = ingestion.stream.json_schema, ingestion.caller.tenant
            await self._schemas.keep_fitting(parsed, schema, tenant=tenant)
        self._check_all(ingestion, parsed)
        if ingestion.options.is_dry_run:
            return dry_answer(
                parsed,
                partition_count=ingestion.stream.partition_count,
                request_id=ingestion.request_id,
            )
        return self._conclude(ingestion, parsed, await self._publish(ingestion, parsed))

    def _check_all(self, ingestion: Ingestion, parsed: ParsedBody) -> None:
        """Refuse all of a request's events because of an invalid one, if the caller asks for it."""
        if ingestion.options.is_strict and parsed.rejections:
            counts = {"rejected": len(parsed.rejections), "aborted": len(parsed.events)}
            self._tally.outcomes(ingestion.stream.name, counts)
            raise strict_refusal(parsed)

    def _conclude(
        self, ingestion: Ingestion, parsed: ParsedBody, reports: Sequence[Report]
    ) -> Answer:
        """Return the answer to a request once Kafka has reported on its events."""
        counts = count_outcomes(parsed, reports)
        self._tally.outcomes(ingestion.stream.name, counts)
        given = answer(
            parsed,
            reports,
            counts=counts,
            request_id=ingestion.request_id,
            lists_all=ingestion.options.lists_all,
        )
        if isinstance(given, Problem):
            raise given
        return given

    def _judge(self, ingestion: Ingestion, raw: bytes, base: str) -> ParsedBody:
        """Check every event of the body."""
        stream = ingestion.stream
        spans = find_events(raw, ingestion.body_format, self._limits)
        context = Context(
            id_base=base,
            accepted_at_ms=ingestion.now_ms,
            key=ingestion.options.ordering_key,
            traceparent=ingestion.traceparent,
            find_key=_find_key(stream.key_pointer) if stream.key_pointer else None,
            shards=shard_finder(stream.partitioning) if stream.partitioning else None,
            are_cloud_events=ingestion.body_format in _CLOUD_EVENTS,
        )
        # Most bodies are plain, and are read by columns; for others this returns None.
        parsed = read_plain(spans, raw, context=context, limits=self._limits)
        if parsed is None:
            parsed = read_events(spans, context=context, limits=self._limits)
        ingestion.event_count = len(parsed.events) + len(parsed.rejections)
        if ingestion.span is not None:
            ingestion.span.storing()
        return parsed

    async def _publish(self, ingestion: Ingestion, parsed: ParsedBody) -> list[Report]:
        if not parsed.events:
            return []
        begun_s, topic, claim = monotonic(), stream_topic(ingestion.stream.name), ingestion.claim
        if claim is None:
            reports = await self._publisher.publish(topic, parsed.events)
        else:
            reports = await self._claims.publish(claim, topic, parsed.events)
        self._tally.acknowledged(ingestion.stream.name, monotonic() - begun_s)
        ingestion.note_reports(reports)
        new = reports if claim is None else [r for r in reports if not r.is_earlier]
        self._note(ingestion, topic, parsed, new)
        return list(reports)

    def _note(
        self, ingestion: Ingestion, topic: str, parsed: ParsedBody, reports: Sequence[Report]
    ) -> None:
        if self._ledger is not None:
            self._ledger.note(
                topic,
                parsed.events,
                reports,
                request=ledger_request(ingestion, reports),
                now_ms=time_ns() // 1_000_000,
            )


def _as_wished(given: Answer, options: RequestOptions) -> Answer:
    """Return the answer in the form that the caller prefers, with the applied preferences."""
    given = given.with_headers(options.applied)
    return given.minimal() if options.is_minimal else given
