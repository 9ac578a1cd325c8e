"""Settings for counting events by windows of time, and for taking each event once only."""

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

from shared.config.model import CONFIG, ConfigError
from shared.config.steps.computed import LISTING, computed
from shared.config.steps.expression import Columns, Expression
from shared.config.values import check
from shared.event.times import DAY_MS, HOUR_MS, MINUTE_MS

_PART = ConfigDict(**CONFIG, extra="forbid")
_UNITS_MS = {"second": 1_000, "minute": MINUTE_MS, "hour": HOUR_MS, "day": DAY_MS}
_DURATION = re.compile(r"([1-9][0-9]{0,5}) (second|minute|hour|day)s?")
# Open windows are kept, written, and read again by the process that goes on: the week of a stream's
# retention for events that are counted, and as much for late ones.
WINDOW_MS_MAX = 31 * DAY_MS
LATE_MS_MAX = WITHIN_MS_MAX = 7 * DAY_MS
GAP_MS_MAX = DAY_MS
# An event may fall into this many windows.
OVERLAPS_MAX = 60
# The most that one pipeline may keep: nobody looks at more open windows.
WINDOWS_KEPT_MAX, KEYS_KEPT_MAX = 100_000, 400_000
BY_MAX = 8
COMPUTES_MAX = 32
# The other members of a window's row.
WINDOW_START, WINDOW_END = "window_start", "window_end"


def moment_ms(text: str) -> int:
    """Read a time; 0 if it is none."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return 0
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


Duration: TypeAlias = Annotated[
    str,
    check(_DURATION.fullmatch, "{!r} is no time such as 1 minute, 90 seconds, 2 hours or 7 days"),
    Field(json_schema_extra={"pattern": f"^{_DURATION.pattern}$"}),
]
Emit = Literal["updates", "final"]


# When an event of a test happened.
Moment: TypeAlias = Annotated[str, check(moment_ms, "{!r} is no time such as 2026-01-01T10:00:00Z")]


def duration_ms(text: str) -> int:
    """The time that such a text stands for."""
    count, unit = text.rstrip("s").split()
    return int(count) * _UNITS_MS[unit]


@dataclass(frozen=True, slots=True, config=_PART)
class WindowOf:
    """The windows, the columns computed for each, and when its row is written."""

    compute: Columns
    # Tumbling; with a size, hopping: a window of that size begins this often.
    every: Duration | None = None
    size: Duration | None = None
    # Events without such a gap between them are in one window.
    session: Duration | None = None
    # An event still counts this long after it may have happened.
    late: Duration = "1 minute"
    # The columns that group events.
    by: Annotated[tuple[str, ...], Field(max_length=BY_MAX, strict=False)] = ()
    # When an event happened, if it says so itself.
    time: Expression | None = None
    emit: Emit | None = None

    @model_validator(mode="after")
    def _check_whole(self) -> "WindowOf":
        _check_times(self)
        names = [*self.by, *self.compute, WINDOW_START, WINDOW_END]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"compute: a row has one {twice!r}: name it otherwise")
        if len(self.compute) > COMPUTES_MAX:
            raise ValueError(f"compute: {COMPUTES_MAX} are the most")
        if self.session is not None:
            _check_no_lists(self.compute)
        return self

    @property
    def every_ms(self) -> int:
        """0 for sessions."""
        return duration_ms(self.every) if self.every else 0

    @property
    def size_ms(self) -> int:
        return duration_ms(self.size) if self.size else self.every_ms

    @property
    def gap_ms(self) -> int:
        """0 for windows that begin by the clock."""
        return duration_ms(self.session) if self.session else 0

    @property
    def late_ms(self) -> int:
        return duration_ms(self.late)

    @property
    def is_final(self) -> bool:
        """Whether a window is written once, when nothing can come any more."""
        return self.emit == "final" or self.session is not None


def _check_times(window: WindowOf) -> None:
    if (window.every is None) == (window.session is None):
        raise ValueError("say `every: 1 minute`, or `session: 5 minutes` for a gap")
    if window.session is not None:
        if window.size is not None:
            raise ValueError("size: a session is as long as it is")
        if window.emit == "updates":
            wrong = (
                "emit: a session may still become one with another: it is written when it is over"
            )
            raise ValueError(wrong)
        _check_most("session", window.gap_ms, GAP_MS_MAX)
    else:
        _check_most("every", window.every_ms, WINDOW_MS_MAX)
        _check_most("size", window.size_ms, WINDOW_MS_MAX)
        if window.size_ms % window.every_ms:
            raise ValueError(f"size: it is a multiple of {window.every!r}")
        if window.size_ms > OVERLAPS_MAX * window.every_ms:
            raise ValueError(f"size: an event falls into {OVERLAPS_MAX} windows at most")
    _check_most("late", window.late_ms, LATE_MS_MAX)


def _check_no_lists(compute: Mapping[str, str]) -> None:
    """Spark would make sessions of each listed value by itself, and their lists would be lost."""
    for name, text in compute.items():
        try:
            aggregate = computed(text).aggregate
        except ConfigError:
            # The judge of the document says where and why.
            continue
        if aggregate in LISTING:
            raise ValueError(
                f"compute: {name} is {aggregate}, which a session cannot keep: use `every`, or"
                " approx_count_distinct"
            )


def _check_most(setting: str, time_ms: int, most_ms: int) -> None:
    if time_ms > most_ms:
        raise ValueError(f"{setting}: {most_ms // DAY_MS} days are the most")


@dataclass(frozen=True, slots=True, config=_PART)
class WindowStep:
    """Counts events by windows of time, and writes their rows."""

    member: ClassVar[str] = "window"
    window: WindowOf

    def named(self) -> dict[str, Any]:
        """The settings that decide what is kept: a step with others cannot go on with that."""
        of = self.window
        return {
            "every": of.every_ms,
            "size": of.size_ms,
            "gap": of.gap_ms,
            "late": of.late_ms,
            "by": list(of.by),
            "compute": dict(of.compute),
            "time": of.time,
            "final": of.is_final,
        }


@dataclass(frozen=True, slots=True, config=_PART)
class OnceOf:
    """The key that makes events the same, and for how long it is remembered."""

    key: Expression
    within: Duration

    @model_validator(mode="after")
    def _check_whole(self) -> "OnceOf":
        _check_most("within", self.within_ms, WITHIN_MS_MAX)
        return self

    @property
    def within_ms(self) -> int:
        return duration_ms(self.within)


@dataclass(frozen=True, slots=True, config=_PART)
class Dedupe:
    """Keeps the first event of each key; those that come again within a time are filtered."""

    member: ClassVar[str] = "dedupe"
    dedupe: OnceOf

    def named(self) -> dict[str, Any]:
        return {"key": self.dedupe.key, "within": self.dedupe.within_ms}


Keeping: TypeAlias = WindowStep | Dedupe


def shape_of(step: Keeping | None) -> str:
    """A hash that tells what is kept for a step from what is kept for another; empty: nothing."""
    if step is None:
        return ""
    named = json.dumps({step.member: step.named()}, sort_keys=True)
    return hashlib.sha256(named.encode()).hexdigest()[:16]
