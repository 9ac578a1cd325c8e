"""Errors for the person who runs Hifi: one sentence that says what, where, and what to do next."""


class OperatorError(Exception):
    """Something outside the code is wrong; commands print its text and end with exit code 1."""


class SetupError(OperatorError):
    """Something must be mended before a start: a setting, a port, a file, Java, a topic."""


class UsageError(OperatorError):
    """A command cannot do what it was told: a wrong argument, an unknown name or address."""


class KafkaUnavailableError(OperatorError):
    """Kafka does not answer, or does not do what it is asked to; it may a moment later."""
