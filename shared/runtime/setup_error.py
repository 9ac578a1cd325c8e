"""Errors for the person who runs Hifi: one sentence that says what, where, and what to do next."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


# The exit code of a command that succeeded with some things, and not with others.
PARTLY_DONE = 5


class OperatorError(Exception):
    """Something outside the code is wrong; commands print its text, and end with its exit code."""

    exit_code = 1


class SetupError(OperatorError):
    """Something must be mended before a start: a setting, a port, a file, Java, a topic."""


class UsageError(OperatorError):
    """A command cannot do its work: a wrong argument, a file that cannot be read."""

    exit_code = 2


class NotFoundError(UsageError):
    """There is nothing of that name."""

    exit_code = 6


class NoAnswerError(UsageError):
    """Nothing answers at the address of a gateway or a console; it may a moment later."""

    exit_code = 7


class KafkaUnavailableError(OperatorError):
    """Kafka does not answer, or fails a request; it may succeed a moment later."""

    exit_code = 7


class KafkaRefusedError(KafkaUnavailableError):
    """Kafka does not let us in, or refuses a request: a person must mend it."""

    exit_code = 1


def wrong_variable(error: "ValidationError", *, prefix: str) -> str:
    """The first variable of the environment that a settings class refuses, as a sentence."""
    first = error.errors()[0]
    name = "_".join(map(str, first["loc"])).upper()
    # Settings that all services share are called the same for each.
    named = name if name.startswith("HIFI_") else prefix + name
    return f"{named} is {first['input']!r}: {first['msg']}."
