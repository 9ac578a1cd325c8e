"""Errors for the operator of Hifi: one sentence with the problem, its place, and the next step."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


# The exit code of a command that succeeded only for some of its objects.
PARTLY_DONE = 5


class OperatorError(Exception):
    """Something outside the code is wrong; commands print the text and use the exit code."""

    exit_code = 1


class SetupError(OperatorError):
    """Something must be fixed before a start: a setting, a port, a file, Java, a topic."""


class UsageError(OperatorError):
    """A command cannot do its work: a wrong argument, a file that cannot be read."""

    exit_code = 2


class NotFoundError(UsageError):
    """There is no object of that name."""

    exit_code = 6


class NoAnswerError(UsageError):
    """No gateway or console answers at the address; it may answer a moment later."""

    exit_code = 7


class KafkaUnavailableError(OperatorError):
    """Kafka does not answer, or fails a request; it may succeed a moment later."""

    exit_code = 7


class KafkaRefusedError(KafkaUnavailableError):
    """Kafka refuses the login or a request: a person must fix it."""

    exit_code = 1


def wrong_variable(error: "ValidationError", *, prefix: str) -> str:
    """Return a sentence about the first environment variable that a settings class refuses."""
    first = error.errors()[0]
    name = "_".join(map(str, first["loc"])).upper()
    # Settings that all services share have no prefix of a service.
    named = name if name.startswith("HIFI_") else prefix + name
    return f"{named} is {first['input']!r}: {first['msg']}."
