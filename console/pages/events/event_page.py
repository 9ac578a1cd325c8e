"""The page of one event, found by its id: every step since its POST, and on request its payload."""

from collections.abc import Sequence

import structlog
from starlette.exceptions import HTTPException
from starlette.responses import Response

from console.page_context import PageContext
from console.page_request import PageRequest
from console.pages.events.event_steps import TrailStep, due_at_ms, steps_of
from console.pages.events.find_page import find_head, find_page
from console.pages.events.resend_form import send_again_form, sent_note
from console.pages.events.sent_request import request_note, request_shown
from console.parts.json_text import json_lines
from console.parts.layout import Page, form, still_page
from console.parts.markup import NOTHING, Child, Safe, fragment, tag
from console.parts.pieces import (
    code,
    done_note,
    event_path,
    facts_list,
)
from shared import wording
from shared.proof.outcome_sets import weight
from shared.proof.receipt import Receipt, ReceiptOutcome
from shared.proof.trail import KeptRecord
from shared.retry.dead_letter import REDRIVEN_REASON
from shared.retry.schedule import RetrySchedule
from shared.runtime.kafka.lookup.event_search import FoundEvent, SearchResult

log = structlog.get_logger()

# The maximum number of characters of a payload to show; the log has the rest.
_VALUE_CHARS_MAX = 20_000
# The maximum number of batches of an event to show, newest first.
_BATCHES_MAX = 5
# The number of newest attempts whose requests are shown.
_REQUESTS_MAX = 20


def now_at(found: FoundEvent, schedule: RetrySchedule) -> list[tuple[str, str]]:
    """Return the event's state at each destination with a receipt, and what comes next."""
    last: dict[str, Receipt] = {}
    for receipt in found.trail.receipts:
        known = last.setdefault(receipt.destination_id, receipt)
        last[receipt.destination_id] = max(known, receipt, key=_weight)
    waits: dict[str, KeptRecord] = {}
    for kept in sorted(found.trail.retries, key=lambda each: each.stored_at_ms):
        waits[kept.envelope.destination_id or ""] = kept
    return [(name, _now(last[name], waits.get(name), schedule)) for name in sorted(last)]


def _now(receipt: Receipt, kept: KeptRecord | None, schedule: RetrySchedule) -> str:
    if receipt.reason == REDRIVEN_REASON:
        return "sent again from dead letters; no answer yet"
    at = wording.moment(receipt.ended_at_ms)
    if receipt.outcome is not ReceiptOutcome.WAITING:
        words = {ReceiptOutcome.DELIVERED: "delivered", ReceiptOutcome.DEAD: "given up"}
        why = f" ({receipt.reason})" if receipt.reason else ""
        return f"{words[receipt.outcome]} at {at}{why}"
    if kept is None:
        return f"waits ({receipt.reason}); the time of the next attempt could not be read"
    return f"waits ({receipt.reason}); next attempt at {wording.moment(due_at_ms(kept, schedule))}"


def _weight(receipt: Receipt) -> tuple[tuple[bool, int, bool], int]:
    return weight(receipt.outcome, receipt.redrive_count), receipt.ended_at_ms


async def event_page(asked: PageRequest) -> Page | Response:
    stream, event_id = asked.field("stream"), asked.field("id")
    if event_id and stream:
        result = None
        if stream in asked.streams:
            result = await _find(asked, stream, event_id, before_ms=asked.number("before"))
        return found_page(asked, event_id, result)
    return await find_page(asked)


async def show_payload(asked: PageRequest) -> Page:
    stream, event_id = asked.field("stream"), asked.fields.get("id", "")
    if stream not in asked.streams:
        raise HTTPException(404, "There is no such stream, or it is not yours.")
    log.info("payload.shown", key_id=asked.viewer.key_id, stream=stream, event_id=event_id)
    result = await _find(asked, stream, event_id)
    return found_page(asked, event_id, result, shows_payload=True)


async def _find(
    asked: PageRequest, stream: str, event_id: str, *, before_ms: int | None = None
) -> SearchResult:
    # The field `all` asks to read on after each destination has reported an outcome.
    ids = () if asked.field("all") else asked.context.configuration.readers_of(stream)
    find = asked.sources.events.find
    async with asked.search_turn():
        return await find(stream, event_id, before_ms=before_ms, destination_ids=ids)


def found_page(
    asked: PageRequest, event_id: str, result: SearchResult | None, *, shows_payload: bool = False
) -> Page:
    """Show the found events; without a result, only the search form."""
    stream = asked.field("stream")
    content = [*find_head(asked), done_note(sent_note(asked))]
    status = ""
    if result is not None:
        status = wording.plural(len(result.found), "event") + " found"
        content.append(_read_note(result, stream=stream, event_id=event_id))
        for event in result.found:
            payload = _payload(event) if shows_payload else _payload_button(event, asked)
            again = send_again_form(event, asked)
            content.append(_timeline(event, asked, again, payload))
    return still_page("Find an event", "/events", "event", content, status=status)


def _timeline(found: FoundEvent, asked: PageRequest, again: Safe, payload: Safe) -> Safe:
    envelope, schedule = found.envelope, asked.sources.schedule
    facts: list[tuple[str, Child]] = [
        ("Event time", wording.moment(envelope.event_time_ms)),
        ("Accepted at", wording.moment(envelope.accepted_at_ms)),
        ("Ordering key", code((envelope.key or b"").decode(errors="replace")) if envelope.key
         else "none"),
        ("Size", wording.size(len(envelope.value))),
    ]  # fmt: skip
    if envelope.traceparent:
        facts.append(("Trace", code(envelope.traceparent)))
    steps = steps_of(found, schedule)
    requests = _requests(steps, asked.context)
    return tag(
        "section",
        tag("h2", "Event ", code(envelope.event_id)),
        facts_list(facts),
        _by_destination(now_at(found, schedule)),
        again,
        request_note() if requests else NOTHING,
        tag("ol", [_step(step, steps[0].at_ms, requests.get(index, NOTHING))
                   for index, step in enumerate(steps)], class_="timeline"),
        _rest_note(found),
        batches_of(found),
        payload,
    )  # fmt: skip


def _requests(steps: Sequence[TrailStep], context: PageContext) -> dict[int, Safe]:
    """Return the newest requests, by the index of the step with each one's outcome."""
    made: dict[int, Safe] = {}
    for index in reversed(range(len(steps))):
        sent = steps[index].sent
        # The settings of a removed destination are gone.
        to = context.configured(sent.destination_id) if sent else None
        if sent and to and len(made) < _REQUESTS_MAX:
            made[index] = request_shown(sent, to)
    return made


def _rest_note(found: FoundEvent) -> Safe:
    """Say which records were not read."""
    if not found.trail.is_whole:
        return tag("p", "There may be more: not all records could be read in time.", class_="warn")
    if not found.trail.ends_there:
        return NOTHING
    path = event_path(found.envelope.stream, found.envelope.event_id) + "&all=1"
    return tag("p", "This page has not checked whether it was sent again after that. ",
               tag("a", "Check", href=path), class_="quiet")  # fmt: skip


def _by_destination(now: Sequence[tuple[str, str]]) -> Safe:
    return fragment(tag("h3", "At each destination"), facts_list(now)) if now else NOTHING


def batches_of(found: FoundEvent) -> Safe:
    """Show the events sent together with it; if there are many, only the nearest."""
    origin, stream = found.envelope.origin, found.envelope.stream
    facts: dict[str, Child] = {}
    for receipt in reversed(found.trail.receipts):
        if receipt.batch_id in facts or receipt.event_count == 1 or not receipt.batch_id:
            continue
        ids = [
            found.around[offset]
            for first, end in receipt.beside(origin)
            for offset in range(first, end)
            if offset in found.around and offset != origin.offset
        ]
        links = [(", ", tag("a", each, href=event_path(stream, each))) for each in ids]
        others = wording.plural(receipt.event_count - 1, "other event")
        more = ", ..." if 0 < len(ids) < receipt.event_count - 1 else ""
        named = [part for pair in links for part in pair][1:]
        parts = [f"{others} to {receipt.destination_id}", ": " if named else "", *named, more]
        facts[receipt.batch_id] = fragment(*parts)
        if len(facts) == _BATCHES_MAX:
            break
    if not facts:
        return NOTHING
    return fragment(tag("h3", "Sent together with"), facts_list(list(facts.items())))


def _step(step: TrailStep, first_ms: int, request: Safe) -> Safe:
    after = wording.duration((step.at_ms - first_ms) / 1000)
    facts = [tag("div", tag("dt", name), tag("dd", value)) for name, value in step.facts]
    return tag(
        "li",
        tag("div", tag("span", wording.moment(step.at_ms), class_="at"),
            tag("span", f"+{after}", class_="after"), class_="when"),
        tag("div", tag("strong", step.what), tag("span", step.stage, class_="stage"),
            tag("dl", facts) if facts else NOTHING, request, class_="what"),
        class_=step.kind,
    )  # fmt: skip


def _payload(found: FoundEvent) -> Safe:
    text = found.envelope.value.decode(errors="replace")
    cut = "" if len(text) <= _VALUE_CHARS_MAX else " (its beginning)"
    return tag(
        "figure",
        tag("figcaption", f"Payload{cut}"),
        tag("pre", tag("code", json_lines(text[:_VALUE_CHARS_MAX])), tabindex="0"),
        id="payload",
    )


def _payload_button(found: FoundEvent, asked: PageRequest) -> Safe:
    """Return a button that shows the payload to people with the permission; each use is logged."""
    if not asked.viewer.may_change:
        return tag("p", "Only keys with the scope admin can see the payload.", class_="quiet")
    envelope = found.envelope
    return form(
        "post",
        "/events/payload",
        {"csrf": asked.around.csrf, "stream": envelope.stream, "id": envelope.event_id},
        tag("button", "Show the payload", type="submit"),
        tag("span", " The console logs each use of this button.", class_="quiet"),
    )


def _read_note(result: SearchResult, *, stream: str, event_id: str) -> Safe:
    read = f"{wording.plural(result.records_read, 'record')} read"
    if result.is_from_index:
        return tag("p", "Found with the index of ids.", class_="quiet")
    if result.passed_over:
        known = wording.plural(result.passed_over, "event")
        read = f"{known} checked in the index, {read}"
    if result.index_is_behind:
        read += " (the index of ids does not cover all events yet)"
    if result.found:
        return tag("p", read + ".", class_="quiet")
    if result.back_to_ms is None:
        text = f"No event in {stream} has this id: {read}, the whole log."
        return tag("p", text, class_="none")
    further = form(
        "get",
        "/events",
        {"stream": stream, "id": event_id, "before": result.back_to_ms},
        tag("button", "Look further back", type="submit"),
    )
    text = f"Not found since {wording.moment(result.back_to_ms)}: {read}."
    return fragment(tag("p", text, class_="none"), further)
