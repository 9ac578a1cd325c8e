"""Settings of windows, which count events by time, and of dedupe, which filters repeated events."""

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
# Open windows are stored, and read again by the process that continues. Late events may be as old
# as a stream's retention, a week.
WINDOW_MS_MAX = 31 * DAY_MS
LATE_MS_MAX = WITHIN_MS_MAX = 7 * DAY_MS
GAP_MS_MAX = DAY_MS
# The maximum number of windows that one event can be in.
OVERLAPS_MAX = 60
# The maximum number of open windows or known keys of one pipeline: nobody looks at more windows.
WINDOWS_KEPT_MAX, KEYS_KEPT_MAX = 100_000, 400_000
BY_MAX = 8
COMPUTES_MAX = 32
# The other members of a window's row.
WINDOW_START, WINDOW_END = "window_start", "window_end"


def moment_ms(text: str) -> int:
    """Parse a time; return 0 if the text is not a time."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return 0
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


Duration: TypeAlias = Annotated[
    str,
    check(_DURATION.fullmatch, "{!r} is not a time such as 1 minute, 90 seconds or 7 days"),
    Field(json_schema_extra={"pattern": f"^{_DURATION.pattern}$"}),
]
Emit = Literal["updates", "final"]


# The time of an event in a test.
Moment: TypeAlias = Annotated[
    str, check(moment_ms, "{!r} is not a time such as 2026-01-01T10:00:00Z")
]


def duration_ms(text: str) -> int:
    """Return the milliseconds of a duration."""
    count, unit = text.rstrip("s").split()
    return int(count) * _UNITS_MS[unit]


@dataclass(frozen=True, slots=True, config=_PART)
class WindowOf:
    """The windows, their computed columns, and when their rows are written."""

    compute: Columns
    # A window begins this often. With a size, windows of that size overlap (hopping).
    every: Duration | None = None
    size: Duration | None = None
    # A window ends at a gap of this length without events.
    session: Duration | None = None
    # Events are still counted this long after they may have happened.
    late: Duration = "1 minute"
    # The columns that group events.
    by: Annotated[tuple[str, ...], Field(max_length=BY_MAX, strict=False)] = ()
    # The event's own time, if it has one.
    time: Expression | None = None
    emit: Emit | None = None

    @model_validator(mode="after")
    def _check_whole(self) -> "WindowOf":
        _check_times(self)
        names = [*self.by, *self.compute, WINDOW_START, WINDOW_END]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"compute: a row has only one {twice!r}: use another name")
        if len(self.compute) > COMPUTES_MAX:
            raise ValueError(f"compute: at most {COMPUTES_MAX} columns")
        if self.session is not None:
            _check_no_lists(self.compute)
        return self

    @property
    def every_ms(self) -> int:
        """The time from one window's beginning to the next; 0 for sessions."""
        return duration_ms(self.every) if self.every else 0

    @property
    def size_ms(self) -> int:
        return duration_ms(self.size) if self.size else self.every_ms

    @property
    def gap_ms(self) -> int:
        """The gap that ends a session; 0 for windows that begin by the clock."""
        return duration_ms(self.session) if self.session else 0

    @property
    def late_ms(self) -> int:
        return duration_ms(self.late)

    @property
    def is_final(self) -> bool:
        """Whether a window is written only once, when no more events can be in it."""
        return self.emit == "final" or self.session is not None


def _check_times(window: WindowOf) -> None:
    if (window.every is None) == (window.session is None):
        raise ValueError("set either `every: 1 minute`, or `session: 5 minutes` for a gap")
    if window.session is not None:
        if window.size is not None:
            raise ValueError("size: a session has no fixed size")
        if window.emit == "updates":
            wrong = "emit: a session may still merge with another, so it is written when it is over"
            raise ValueError(wrong)
        _check_most("session", window.gap_ms, GAP_MS_MAX)
    else:
        _check_most("every", window.every_ms, WINDOW_MS_MAX)
        _check_most("size", window.size_ms, WINDOW_MS_MAX)
        if window.size_ms % window.every_ms:
            raise ValueError(f"size: it must be a multiple of {window.every!r}")
        if window.size_ms > OVERLAPS_MAX * window.every_ms:
            raise ValueError(f"size: an event can be in {OVERLAPS_MAX} windows at most")
    _check_most("late", window.late_ms, LATE_MS_MAX)


def _check_no_lists(compute: Mapping[str, str]) -> None:
    """Refuse aggregates with lists in sessions: Spark would lose the lists."""
    for name, text in compute.items():
        try:
            aggregate = computed(text).aggregate
        except ConfigError:
            # The check of the document reports it.
            continue
        if aggregate in LISTING:
            raise ValueError(
                f"compute: {name} is {aggregate}, which a session cannot keep: use `every`, or"
                " approx_count_distinct"
            )


def _check_most(setting: str, time_ms: int, most_ms: int) -> None:
    if time_ms > most_ms:
        raise ValueError(f"{setting}: at most {most_ms // DAY_MS} days")


@dataclass(frozen=True, slots=True, config=_PART)
class WindowStep:
    """Counts events by windows of time, and writes their rows."""

    member: ClassVar[str] = "window"
    window: WindowOf

    def named(self) -> dict[str, Any]:
        """Return the settings that decide what is kept: a step with others cannot continue it."""
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
    """The key that identifies repeated events, and how long it is remembered."""

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
    """Keeps the first event of each key; filters repeats within a time."""

    member: ClassVar[str] = "dedupe"
    dedupe: OnceOf

    def named(self) -> dict[str, Any]:
        return {"key": self.dedupe.key, "within": self.dedupe.within_ms}


Keeping: TypeAlias = WindowStep | Dedupe


def shape_of(step: Keeping | None) -> str:
    """Return a hash of what a step keeps, to distinguish it from other steps; empty for none."""
    if step is None:
        return ""
    named = json.dumps({step.member: step.named()}, sort_keys=True)
    return hashlib.sha256(named.encode()).hexdigest()[:16]
