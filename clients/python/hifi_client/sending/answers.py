"""Reads a gateway's answer for each event of a request.

Pure: status, headers and body in, one frozen value out. It follows the gateway's contract
(docs/api.md), and accepts a success only from a gateway: a proxy's 200 does not count.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any

from hifi_client.sending.fates import Fate

# Longer than any gateway asks for, so that a date in the far future does not stop a sender.
RETRY_AFTER_S_MAX = 300.0
# Nothing of the request was stored. With any other status, events may have been stored, unless the
# answer says otherwise.
_NOTHING_STORED = frozenset({408, 409, 425, 429, 503})
# One event may be at fault, or the size of the batch.
_OF_THE_BATCH = frozenset({400, 413, 422})
# Every request gets the same answer until somebody changes a setting.
_OF_THE_SETUP = frozenset({401, 403, 404, 405, 410, 421})


@dataclass(frozen=True, slots=True)
class Verdict:
    """The fate of one event that was not accepted, and its reason."""

    fate: Fate
    code: str = ""
    reason: str = ""
    pointer: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """The results of one request's events, by their places in it.

    Events that are neither in `final` nor in `again` were accepted, unless `is_to_be_halved`.
    """

    final: Mapping[int, Verdict] = field(default_factory=dict)
    again: tuple[int, ...] = ()
    # Whether some events of `again` may be stored already.
    may_be_stored: bool = False
    # No event was taken; smaller requests may succeed.
    is_to_be_halved: bool = False
    # No request will succeed until somebody changes a setting.
    is_setup: bool = False
    wait_s: float | None = None
    # A sentence about the problem, if any.
    problem: str = ""
    code: str = ""


ALL_ACCEPTED = Reading()


def read_answer(  # noqa: PLR0911 - one for each kind of answer
    status: int, headers: Mapping[str, str], body: bytes, count: int
) -> Reading:
    """Read an answer about `count` events; header names are in lower case."""
    said = _members(body)
    if status == 204 and not body:  # noqa: PLR2004
        return ALL_ACCEPTED
    if status == 200 and said.get("accepted") == count and not said.get("rejected"):  # noqa: PLR2004
        return ALL_ACCEPTED
    code, wait_s = str(said.get("code", "")), _wait_s(headers)
    sentence = _sentence(status, headers, said)
    if (listed := _listed(said, count, wait_s=wait_s, problem=sentence)) is not None:
        return listed
    every = tuple(range(count))
    if status in _OF_THE_SETUP or 300 <= status < 400:  # noqa: PLR2004
        return Reading(
            again=every, is_setup=True, problem=sentence, code=code or f"status_{status}"
        )
    if status in _OF_THE_BATCH and code != "idempotency_key_reused":
        return Reading(is_to_be_halved=True, problem=sentence, code=code or f"status_{status}")
    if 400 <= status < 500 and status not in _NOTHING_STORED:  # noqa: PLR2004
        verdict = Verdict(Fate.REJECTED, code or f"status_{status}", sentence)
        return Reading(final=dict.fromkeys(every, verdict), problem=sentence, code=code)
    # This includes a success from another server, such as a proxy while the gateway is down.
    return Reading(
        again=every,
        may_be_stored=status not in _NOTHING_STORED,
        wait_s=wait_s,
        problem=sentence,
        code=code or f"status_{status}",
    )


def _listed(
    said: Mapping[str, Any], count: int, *, wait_s: float | None, problem: str
) -> Reading | None:
    """Read the entries of events that were not accepted; None unless they match the request."""
    results, accepted = said.get("results"), said.get("accepted")
    if not isinstance(results, list) or not isinstance(accepted, int):
        return None
    final: dict[int, Verdict] = {}
    again: list[int] = []
    may_be_stored, taken = False, 0
    for entry in results:
        index = entry.get("index") if isinstance(entry, dict) else None
        if not isinstance(index, int) or not 0 <= index < count:
            return None
        if entry.get("status") == "accepted":
            taken += 1
        elif entry.get("status") == "rejected":
            texts = (str(entry.get(name) or "") for name in ("code", "detail", "pointer"))
            final[index] = Verdict(Fate.REJECTED, *texts)
        else:
            again.append(index)
            may_be_stored |= entry.get("status") != "retry"
    if len(final) + len(again) != len(results) - taken:
        return None
    if accepted + len(final) + len(again) != count:
        return None
    return Reading(
        final,
        tuple(again),
        may_be_stored=may_be_stored,
        wait_s=wait_s,
        problem=problem if again else "",
        code=str(said.get("code", "")),
    )


def _sentence(  # noqa: PLR0911 - one for each kind of answer
    status: int, headers: Mapping[str, str], said: Mapping[str, Any]
) -> str:
    """Return a sentence about the answer for people."""
    code = said.get("code")
    where = f"{status} {code}" if code else str(status)
    detail = str(said.get("detail") or said.get("title") or "").rstrip(".")
    match status:
        case 401:
            return f"The gateway does not know this key ({where}): {detail or 'give another'}."
        case 403:
            return f"The key may not do this ({where}): {detail or 'use another key'}."
        case 404 if code == "unknown_stream":
            return f"The stream does not exist ({where}): {detail}; `hifi streams put` makes it."
        case _ if 300 <= status < 400:  # noqa: PLR2004
            elsewhere = headers.get("location", "somewhere else")
            return f"The address redirects ({where}): use the address of {elsewhere}."
        case _ if code:
            return f"The gateway says {where}: {detail}."
        case _ if "request_id" in said:
            return f"Not all events were accepted ({where})."
        case _ if status >= 500 or status in _NOTHING_STORED:  # noqa: PLR2004
            return f"The server before the gateway answers {where}: the gateway may be down."
        case _:
            return f"The server is not a Hifi gateway ({where}): check the address."


def _members(body: bytes) -> dict[str, Any]:
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _wait_s(headers: Mapping[str, str]) -> float | None:
    """Return `Retry-After` in seconds; compare a date with the answer's own, as clocks differ."""
    text = headers.get("retry-after", "").strip()
    if not text:
        return None
    try:
        if text.isdigit():
            wait_s = float(text)
        else:
            until, now = parsedate_to_datetime(text), parsedate_to_datetime(headers["date"])
            wait_s = (until - now).total_seconds()
    except (KeyError, TypeError, ValueError):
        return None
    return min(max(wait_s, 0.0), RETRY_AFTER_S_MAX)
