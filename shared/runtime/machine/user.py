"""Checks that this process's user has a name, without which Spark does not start."""

import os
import pwd

from shared.runtime.setup_error import SetupError


def user_name() -> str:
    """Return the user's name; SetupError if the user database has none."""
    number = os.getuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        raise SetupError(
            f"The user {number} has no name, and Spark does not start without one: add a line such"
            f" as `hifi:x:{number}:0::/tmp:/usr/sbin/nologin` to /etc/passwd, or choose a user that"
            " has one."
        ) from None
