"""Reads ratings: what a service did on a machine, at which commit, when, and within which limits.

A rating is a file in loadtests/ratings, written by the program or person that measured; plans use
nothing else. Members that are not listed here are somebody else's, and passed by.
"""

from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any

import msgspec

from shared.scale.scale_error import ScaleError

# Code changes by the week, and with it what a machine can do.
AGE_DAYS_MAX = 30


class RatedMachine(msgspec.Struct, frozen=True):
    """The rated machine: the cores that the service had for itself, and their kind."""

    cpu: str
    cores: int
    kernel: str = ""
    # The cloud's name for it. None for a machine of somebody's own.
    instance: str | None = None


class Rating(msgspec.Struct, frozen=True):
    """How many events/s a service takes on a machine while it keeps its promises (`slo`)."""

    what: str
    machine: RatedMachine
    commit: str
    # An ISO 8601 date, with a time or without.
    at: str
    slo: Any
    # Events in a request, and bytes of an event.
    batch: int
    bytes: int
    # Events/s: within `slo`, and the most that was got at all.
    rated: float
    saturated: float | None
    # The steps that were tried, one by one.
    steps: list[Any]
    # Whether generator or broker sat on the same cores: then it is too low.
    shared: bool
    # Where the figure is written down, if it was not written by the rating itself.
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
    """The rating of a file called `name`; ScaleError says what is wrong with it."""
    try:
        rating = msgspec.json.decode(text, type=Rating)
        _ = rating.day
    except (msgspec.MsgspecError, ValueError) as error:
        raise ScaleError(
            f"{name} is no rating: {error}. It must have what, machine (cpu, cores, instance,"
            " kernel), commit, at (a date), slo, batch, bytes, rated, saturated, steps, shared."
        ) from error
    for member, value in (
        ("rated", rating.rated),
        ("machine.cores", rating.machine.cores),
        ("batch", rating.batch),
        ("bytes", rating.bytes),
    ):
        if value <= 0:
            raise ScaleError(f"{name} is no rating: {member} is {value:g} and must be above 0.")
    return rating


def best_rating(
    ratings: Mapping[str, Rating], what: str, *, instance: str | None, batch: int
) -> str:
    """The name of the rating to plan with: of that instance, not shared, of that batch, the newest.

    A shared rating is a lower bound: of several, the highest counts, whatever its date.
    """
    fitting = [name for name, rating in ratings.items() if rating.what == what]
    if not fitting:
        known = ", ".join(sorted({rating.what for rating in ratings.values()})) or "none at all"
        raise ScaleError(f"There is no rating of the {what} ({known}): rate one, or give it.")

    def worth(name: str) -> tuple[bool, bool, bool, date, float]:
        rating = ratings[name]
        is_same = instance is not None and rating.machine.instance == instance
        day = date.min if rating.shared else rating.day
        return is_same, not rating.shared, rating.batch == batch, day, rating.of_core

    return max(sorted(fitting), key=worth)


def warnings_of(ratings: Mapping[str, Rating], used: Iterable[str], today: date) -> list[str]:
    """Warnings about the ratings that a plan rests on."""
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
                f"{name} was measured with generator or broker on the same cores: it is too low."
            )
    return warnings
