"""Takes in a request's events: judges them, stores them, and answers.

Who, where, what format, how much: all from the headers, before a byte of the body is read. Then
the body, then every event; only when all of them are judged is the first one sent to Kafka.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from time import monotonic, time_ns
from typing import Any

import msgspec
from starlette.types import Receive

from gateway.answers import (
    Answer,
    answer,
    count_outcomes,
    dry_answer,
    problem_answer,
    strict_refusal,
)
from gateway.callers import Caller, Callers, ConfigSource
from gateway.fleet.claims import Claims, KeyClaim
from gateway.fleet.quota import Quotas
from gateway.idempotency import id_base
from gateway.intake import admission, cloud_events
from gateway.intake.admission import Format
from gateway.intake.byte_budget import ByteBudget
from gateway.intake.event_finder import EventLimits, find_events
from gateway.intake.events import Context, Parsed, key_finder, read_events
from gateway.intake.plain_events import read_plain
from gateway.intake.request_body import Body, BodyLimits
from gateway.intake.schemas import SchemaChecks, SchemaError
from gateway.problems import Problem
from gateway.publish.ledger import AckLedger, Request
from gateway.publish.publisher import Publisher
from gateway.publish.report import Fate, Report
from gateway.publish.spool import Spool
from gateway.request_options import RequestOptions, read_options
from gateway.settings import Settings
from shared.config.access import Tenant
from shared.config.configuration import Stream
from shared.event.topics import stream_topic
from shared.metric_names import (
    GATEWAY_ACK_SECONDS,
    GATEWAY_BODY_BYTES,
    GATEWAY_EVENTS,
    GATEWAY_IN_FLIGHT_BYTES,
)
from shared.runtime.metrics import Metrics

# More than a deployment has streams; the counters of a forgotten one are looked up again.
_STREAMS_REMEMBERED = 10_000
_find_key = lru_cache(maxsize=1_000)(key_finder)
_REPLAYED = ((b"idempotency-replayed", b"true"),)
# Not a set: an enum's hash is a call.
_CLOUD_EVENTS = (Format.CLOUD_EVENT, Format.CLOUD_EVENTS)


class Arrival(msgspec.Struct, frozen=True):
    """A request whose body is still to be read."""

    stream: str
    headers: Mapping[bytes, str]
    query_string: bytes
    state: Mapping[str, Any]
    receive: Receive
    request_id: str


class Ingest:
    """Takes events in."""

    def __init__(
        self,
        *,
        settings: Settings,
        publisher: Publisher,
        config: ConfigSource,
        callers: Callers,
        metrics: Metrics,
        schemas: SchemaChecks,
        claims: Claims,
        quotas: Quotas,
        ledger: AckLedger | None = None,
        spool: Spool | None = None,
    ) -> None:
        self._publisher = publisher
        self._schemas = schemas
        self._ledger = ledger
        self._spool = spool
        self._config = config
        self._callers = callers
        remember = lru_cache(maxsize=_STREAMS_REMEMBERED)
        self._events_of: Any = remember(metrics.counter(GATEWAY_EVENTS).labels)
        self._bytes_of: Any = remember(metrics.counter(GATEWAY_BODY_BYTES).labels)
        self._seconds_of: Any = remember(metrics.histogram(GATEWAY_ACK_SECONDS).labels)
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
        metrics.gauge(GATEWAY_IN_FLIGHT_BYTES).set_function(
            lambda: self._byte_budget.byte_count + publisher.overdue_bytes
        )

    async def take(self, arrival: Arrival) -> Answer:
        """POST .../events. Raises Problem for what is refused as a whole."""
        now_ms, headers = time_ns() // 1_000_000, arrival.headers
        caller = self._callers.of_request(headers, state=arrival.state, now_ms=now_ms)
        return await self._serve(arrival, caller, now_ms, self._read_head, self._body_limits)

    def _read_head(self, arrival: Arrival, caller: Caller, now_ms: int) -> "_Ingestion":
        body_format = admission.read_format(arrival.headers)
        options = read_options(arrival.headers, arrival.query_string)
        stream = caller.stream(arrival.stream, self._config.configuration)
        return _Ingestion(arrival, caller, stream, body_format, options, now_ms)

    async def take_beacon(self, arrival: Arrival, *, key: str) -> Answer:
        """POST .../beacon: what a page sends while it closes, as a type that needs no preflight."""
        now_ms = time_ns() // 1_000_000
        if self._callers.is_on:
            caller = self._callers.of_key(key, now_ms=now_ms)
            if caller.origins is None:
                raise Problem("scope_missing", "A beacon takes only keys made for browsers.")
        else:
            caller = self._callers.of_request(arrival.headers, state={}, now_ms=now_ms)
        read_head, limits = self._read_beacon_head, self._beacon_limits
        return (await self._serve(arrival, caller, now_ms, read_head, limits)).minimal()

    def _read_beacon_head(self, arrival: Arrival, caller: Caller, now_ms: int) -> "_Ingestion":
        media_type = arrival.headers.get(b"content-type", "").split(";")[0].strip(" \t").lower()
        if media_type not in {"text/plain", "application/json"}:
            raise Problem("unsupported_media_type", "A beacon is JSON, as text/plain or as JSON.")
        stream = caller.stream(arrival.stream, self._config.configuration)
        return _Ingestion(arrival, caller, stream, Format.JSON, RequestOptions(), now_ms)

    async def _serve(
        self,
        arrival: Arrival,
        caller: Caller,
        now_ms: int,
        read_head: Callable[[Arrival, Caller, int], "_Ingestion"],
        limits: BodyLimits,
    ) -> Answer:
        """What becomes of a request, with what is left of its tenant's quota then."""
        tenant = self._config.configuration.tenants.get(caller.tenant)
        try:
            caller.check("write", origin=arrival.headers.get(b"origin"))
            given = await self._read_and_store(read_head(arrival, caller, now_ms), tenant, limits)
        except Problem as problem:
            problem.headers += self._quotas.headers(tenant, now_s=monotonic())
            raise
        return given.with_headers(self._quotas.headers(tenant, now_s=monotonic()))

    async def _read_and_store(
        self, ingestion: "_Ingestion", tenant: Tenant | None, limits: BodyLimits
    ) -> Answer:
        arrival, caller, options = ingestion.arrival, ingestion.caller, ingestion.options
        headers = arrival.headers
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
            self._bytes_of(ingestion.stream.name).inc(len(wire))
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
        given = given.with_headers(options.applied)
        return given.minimal() if options.is_minimal else given

    async def _once(self, ingestion: "_Ingestion", raw: bytes) -> Answer:
        """Serve a request with an Idempotency-Key, or repeat the answer it had."""
        tenant, key = ingestion.caller.tenant, ingestion.options.idempotency_key
        scope = f"{tenant}\0{ingestion.stream.name}\0{key}"
        ordering_key = ingestion.options.ordering_key or b""
        content = ingestion.body_format.value.encode(), ordering_key, raw
        claimed = await self._claims.begin(scope, content, tenant=tenant)
        if isinstance(claimed, Answer):
            return claimed.with_headers(_REPLAYED)
        ingestion.claim = claimed
        given: Answer | None = None
        try:
            given = await self._judge_and_store(ingestion, raw, id_base(scope))
        except Problem as problem:
            given = problem_answer(problem, ingestion.arrival.request_id)
            raise
        finally:
            await self._claims.end(claimed, given)
        return given

    async def _judge_and_store(self, ingestion: "_Ingestion", raw: bytes, base: str) -> Answer:
        options = ingestion.options
        parsed = self._judge(ingestion, raw, base)
        ingestion.event_count = len(parsed.events) + len(parsed.rejections)
        if ingestion.stream.json_schema and parsed.events:
            await self._keep_fitting(parsed, ingestion)
        if options.is_strict and parsed.rejections:
            self._count(
                ingestion, {"rejected": len(parsed.rejections), "aborted": len(parsed.events)}
            )
            raise strict_refusal(parsed)
        request_id = ingestion.arrival.request_id
        if options.is_dry_run:
            return dry_answer(
                parsed, partition_count=ingestion.stream.partition_count, request_id=request_id
            )
        reports = await self._publish(ingestion, parsed)
        counts = count_outcomes(parsed, reports)
        self._count(ingestion, counts)
        given = answer(
            parsed, reports, counts=counts, request_id=request_id, lists_all=options.lists_all
        )
        if isinstance(given, Problem):
            raise given
        return given

    def _judge(self, ingestion: "_Ingestion", raw: bytes, base: str) -> Parsed:
        """Every event of the body, or why not."""
        headers, stream = ingestion.arrival.headers, ingestion.stream
        spans = find_events(raw, ingestion.body_format, self._limits)
        context = Context(
            id_base=base,
            accepted_at_ms=ingestion.now_ms,
            key=ingestion.options.ordering_key,
            traceparent=admission.traceparent(headers.get(b"traceparent")),
            find_key=_find_key(stream.key_pointer) if stream.key_pointer else None,
            are_cloud_events=ingestion.body_format in _CLOUD_EVENTS,
        )
        # Most bodies are plain, and are read in columns; None says that this one is not.
        parsed = read_plain(spans, raw, context=context, limits=self._limits)
        if parsed is None:
            parsed = read_events(spans, context=context, limits=self._limits)
        return parsed

    async def _keep_fitting(self, parsed: Parsed, ingestion: "_Ingestion") -> None:
        schema, tenant = ingestion.stream.json_schema, ingestion.caller.tenant
        try:
            await self._schemas.keep_fitting(parsed, schema, tenant=tenant)
        except SchemaError as error:
            detail = f"The schema of the stream cannot be used: {error}"
        except OSError as error:
            detail = f"Events cannot be checked against the schema of the stream: {error!r}"
        else:
            return
        raise Problem("not_stored", detail, headers=((b"retry-after", b"10"),))

    async def _publish(self, ingestion: "_Ingestion", parsed: Parsed) -> list[Report]:
        if not parsed.events:
            return []
        begun_s = monotonic()
        stream, topic = ingestion.stream.name, stream_topic(ingestion.stream.name)
        claim = ingestion.claim
        if claim is None:
            reports = await self._publisher.publish(topic, parsed.events)
        else:
            reports = await self._claims.publish(claim, topic, parsed.events)
        took_s = monotonic() - begun_s
        self._seconds_of(stream).observe(took_s)
        if self._spool is not None and ingestion.options.is_async:
            # What is not stored will be on the disk.
            request = _request(ingestion, reports, Fate.NOT_STORED)
            reports = await self._spool.keep(topic, parsed.events, reports, request)
        if self._ledger is not None:
            new = reports if claim is None else [r for r in reports if not r.is_earlier]
            self._ledger.note(
                topic,
                parsed.events,
                new,
                request=_request(ingestion, new, Fate.SPOOLED),
                now_ms=time_ns() // 1_000_000,
            )
        return list(reports)

    def _count(self, ingestion: "_Ingestion", counts: Mapping[str, int]) -> None:
        for word, count in counts.items():
            counter = self._events_of(ingestion.stream.name, word)
            if count:
                counter.inc(count)


class _Ingestion(msgspec.Struct):
    """What the head of a request says, and how many events its body has."""

    arrival: Arrival
    caller: Caller
    stream: Stream
    body_format: Format
    options: RequestOptions
    now_ms: int
    event_count: int = 0
    # Of a request with an Idempotency-Key.
    claim: KeyClaim | None = None


def _request(ingestion: _Ingestion, reports: Sequence[Report], or_fate: Fate) -> Request:
    """The request as the ledger names it; it counts what is stored, or of the other fate."""
    stored = Fate.STORED
    count = sum([len(r.positions) for r in reports if r.fate is stored or r.fate is or_fate])
    return Request(ingestion.arrival.request_id, ingestion.now_ms, count)
