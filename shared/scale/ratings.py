"""Reads ratings: a service's measured throughput on a machine, with commit, date and limits.

A rating is a file in loadtests/ratings, written by the program or person that measured it. Plans
use only these. Members that are not listed here belong to other programs and are ignored.
"""

from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any

import msgspec

from shared.scale.scale_error import ScaleError

# Code changes every week, and so does the throughput of a machine.
AGE_DAYS_MAX = 30


class RatedMachine(msgspec.Struct, frozen=True):
    """The rated machine: the kind of processor, and the number of cores for the service alone."""

    cpu: str
    cores: int
    kernel: str = ""
    # The cloud's name of the machine type; None for a private machine.
    instance: str | None = None


class Rating(msgspec.Struct, frozen=True):
    """The events/s that a service can process on a machine while it keeps its promises (`slo`)."""

    what: str
    machine: RatedMachine
    commit: str
    # An ISO 8601 date, with or without a time.
    at: str
    slo: Any
    # Events in a request, and bytes in an event.
    batch: int
    bytes: int
    # Events/s within `slo`, and the highest measured events/s.
    rated: float
    saturated: float | None
    # The measured steps, in order.
    steps: list[Any]
    # Whether the generator or the broker used the same cores; then the figures are too low.
    shared: bool
    # The source of the figures, if it was not a rating run.
    source: str = ""

    @property
    def day(self) -> date:
        return date.fromisoformat(self.at[:10])

    @property
    def of_core(self) -> float:
        return self.rated / self.machine.cores

    def age_days(self, today: date) -> int:
        return (today - self.day).days


def read_rating(name: str, text: bytes | str) -> Rating:
    """Read the rating in a file called `name`; ScaleError says what is wrong with it."""
    try:
        rating = msgspec.json.decode(text, type=Rating)
        _ = rating.day
    except (msgspec.MsgspecError, ValueError) as error:
        raise ScaleError(
            f"{name} is not a rating: {error}. It must have the members what, machine (with cpu,"
            " cores, instance, kernel), commit, at (a date), slo, batch, bytes, rated, saturated,"
            " steps and shared."
        ) from error
    for member, value in (
        ("rated", rating.rated),
        ("machine.cores", rating.machine.cores),
        ("batch", rating.batch),
        ("bytes", rating.bytes),
    ):
        if value <= 0:
            raise ScaleError(f"{name} is not a rating: {member} is {value:g} and must be above 0.")
    return rating


def best_rating(
    ratings: Mapping[str, Rating], what: str, *, instance: str | None, batch: int
) -> str:
    """Return the best rating's name: preferably of that instance, unshared, of that batch, new.

    A shared rating is only a lower bound, so the highest of several counts, whatever its date.
    """
    fitting = [name for name, rating in ratings.items() if rating.what == what]
    if not fitting:
        known = ", ".join(sorted({rating.what for rating in ratings.values()})) or "none at all"
        raise ScaleError(f"There is no rating of the {what} ({known}): rate one, or specify one.")

    def worth(name: str) -> tuple[bool, bool, bool, date, float]:
        rating = ratings[name]
        is_same = instance is not None and rating.machine.instance == instance
        day = date.min if rating.shared else rating.day
        return is_same, not rating.shared, rating.batch == batch, day, rating.of_core

    return max(sorted(fitting), key=worth)


def warnings_of(ratings: Mapping[str, Rating], used: Iterable[str], today: date) -> list[str]:
    """Return warnings about the ratings that a plan uses."""
    warnings = []
    for name in used:
        rating = ratings[name]
        age_days = rating.age_days(today)
        if age_days > AGE_DAYS_MAX:
            warnings.append(
                f"{name} is {age_days} days old, of commit {rating.commit}: rate it again"
                f" (after {AGE_DAYS_MAX} days code and machines have changed)."
            )
        if rating.shared:
            warnings.append(
                f"{name} was measured with generator or broker on the same cores, so it is too low."
            )
    return warnings
