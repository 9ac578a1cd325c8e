"""Decides how a mistake in the set-up reaches a person: one sentence, and a non-zero exit."""


class SetupError(Exception):
    """Something outside the code is wrong; its text says what, where, and what to do next."""
