"""Parts of a destination's page: its recent answers, and its settings."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from console.parts.markup import NOTHING, Child, Safe, fragment, tag
from console.parts.pieces import code, facts_list, section, table
from observe.lag.trouble import words_of
from shared import wording
from shared.config.credentials import change_secrets
from shared.config.destination import Destination
from shared.proof.overview import DestinationView, RefusedRequest

# Fields that the page shows elsewhere; and those it shows only as set or not set.
_NOT_LISTED = {"stream", "name", "url", "is_paused", "is_disabled", "resumed_at_ms"}
_SECRET = {"secret_headers", "auth", "client_certificate", "signing_secrets"}
_HIDDEN = "set, but never shown"


def answers_section(view: DestinationView) -> Safe:
    """Show its requests of the last minutes by status, and the newest that were not taken."""
    counts = [
        (words_of(reason), wording.plural(count, "request"))
        for reason, count in view.answers.counts.items()
    ]
    if not counts and not view.answers.refused:
        return NOTHING
    refused = NOTHING
    if view.answers.refused:
        heads = ("Ended", "Status", "Answer", "Batch", "Took", "Events")
        rows = [_row(each) for each in view.answers.refused]
        caption = "The newest requests that were not taken"
        listed_refused = table(heads, rows, caption=caption, numbers_from=4)
        refused = fragment(tag("h3", caption), listed_refused)
    listed = facts_list(counts) if counts else NOTHING
    return section("Requests", listed, refused, note="By outcome, in the last 5 min.")


def _row(refused: RefusedRequest) -> list[Child]:
    failed = refused.failed
    return [
        wording.moment(failed.at_ms),
        words_of(failed.reason),
        failed.text or wording.NONE,
        code(refused.batch_id),
        wording.duration(failed.took_ms / 1000),
        wording.count(refused.event_count),
    ]


def settings_section(configured: Destination | None) -> Safe:
    """Show a destination's settings, those set by a person first; nothing if it was removed."""
    if configured is None:
        return NOTHING
    chosen = configured.known_fields(with_defaults=False)
    # A part that is set is shown without the defaults in it.
    every = dict(_settings(configured.known_fields() | chosen))
    ordered = sorted(every, key=lambda name: (name not in chosen, name))
    facts: list[tuple[str, Child]] = [
        (name, code(every[name]) if name in chosen else tag("span", every[name], class_="quiet"))
        for name in ordered
    ]
    change = f"hifi destinations update {configured.stream} {configured.name} --set NAME=VALUE"
    return section("Settings", facts_list(facts), tag("p", "Change them: ", code(change)),
                   note="Grey values are defaults.")  # fmt: skip


def _settings(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in change_secrets(fields, lambda *_: _HIDDEN).items():
        if name in _SECRET:
            yield name, _HIDDEN if value else "none"
        elif name not in _NOT_LISTED:
            is_nothing = value is None or value in ([], {})
            yield name, "none" if is_nothing else _text(value)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
