"""Classifies errors of a database: a bad row, a wrong setting, or a database in trouble.

A bad row becomes a dead letter, and the others are written. Somebody can correct a wrong setting,
so nothing is given up meanwhile. Other trouble passes by itself, so the job waits for that. Pure.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

# The table of positions, in the target's schema. If our user may not create it, an admin must.
POSITIONS = "hifi_positions"
# The maximum length of a server's message, which goes into a header and a state.
WORDS_MAX = 300


class Fault(Enum):
    ROW = "row"
    SETTING = "setting"
    AWAY = "away"
    # The statement was cancelled because it took too long.
    SLOW = "slow"


class DatabaseError(Exception):
    """Nothing was written; the text says why, for people."""


class RowsRefusedError(DatabaseError):
    """The database works, but refuses some of these rows."""


class SettingError(DatabaseError):
    """Somebody has to change a setting: the text says which."""


class AwayError(DatabaseError):
    """The database does not answer, or is full, locked or read-only: it may recover later."""


class SlowError(AwayError):
    """The database was too slow for this request; a smaller one may succeed."""


class PositionMovedError(DatabaseError):
    """Another task has moved the position: this one may no longer write its rows."""


# The first two characters of an SQLSTATE are its class (Postgres, appendix A).
_OF_A_ROW = frozenset({"09", "21", "22", "23", "27", "38", "39", "44", "54", "P0"})
_OF_A_SETTING = frozenset({"0A", "28", "3D", "3F", "42"})
_QUERY_CANCELLED = "57014"


def fault_of(sqlstate: str | None) -> Fault:
    """Classify an error; one without a code comes from the connection."""
    if sqlstate is None:
        return Fault.AWAY
    if sqlstate == _QUERY_CANCELLED:
        return Fault.SLOW
    kind = sqlstate[:2]
    if kind in _OF_A_ROW:
        return Fault.ROW
    return Fault.SETTING if kind in _OF_A_SETTING else Fault.AWAY


@dataclass(frozen=True, slots=True)
class Spot:
    """The place of an error, in the names that people gave it."""

    host: str
    database: str
    user: str
    table: str


_Sentence = Callable[[Spot, str], str]
_SENTENCES: Mapping[str, _Sentence] = {
    "28P01": lambda at, _: f"the password of {at.user} is wrong at {at.host}: set the right one",
    "28000": lambda at, words: (
        f"{at.host} does not let {at.user} in ({words}): check its user and pg_hba.conf"
    ),
    "3D000": lambda at, _: (
        f"there is no database {at.database} at {at.host}: create it, or name another"
    ),
    "3F000": lambda at, _: (
        f"the schema of table {at.table} does not exist: create it, or name another table"
    ),
    "42P01": lambda at, words: (
        f"there is no table {at.table} in {at.database} at {at.host}: create it, or name another"
        if at.table in words or not words
        else f"{at.host} says: {words}"
    ),
    "42501": lambda at, words: (
        f"{at.user} lacks a right at {at.host} ({words}): GRANT SELECT, INSERT, UPDATE, DELETE on"
        f" {at.table} and {POSITIONS}, and TEMPORARY on the database"
    ),
}


def sentence(sqlstate: str | None, words: str, at: Spot) -> str:
    """Say what is wrong and what to do, in plain words."""
    made = _SENTENCES.get(sqlstate or "")
    text = shortened(words)
    if made is not None:
        return made(at, text)
    match fault_of(sqlstate):
        case Fault.SETTING:
            return f"{at.host} refuses to write to {at.table}: {text} ({sqlstate})"
        case Fault.SLOW:
            return f"{at.host} takes too long to write to {at.table}: {text}"
        case _:
            code = f" ({sqlstate})" if sqlstate else ""
            return f"{at.host} is not available now: {text or 'it does not answer'}{code}"


def shortened(words: str) -> str:
    """Put words on one line of limited length."""
    return " ".join(words.split())[:WORDS_MAX]
