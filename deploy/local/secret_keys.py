"""Finds the secret keys of the embedded stack: in the environment, or in its data folder.

Without keys no destination could have a secret on one's own machine. They are made once and kept,
because nothing else opens what they have sealed.
"""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from shared.runtime.secret_box import SecretBox, new_key
from shared.runtime.setup_error import SetupError

VARIABLE = "HIFI_SECRET_KEYS"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def secret_keys(folder: Path, environ: Mapping[str, str]) -> str:
    """What HIFI_SECRET_KEYS should be; SetupError when it cannot be that."""
    given = environ.get(VARIABLE)
    keys = given or _of_file(folder / "secret-keys")
    # A wrong key is refused here, and not by three services in their logs.
    SecretBox.of(keys)
    return keys


def _of_file(path: Path) -> str:
    """The keys in a file that only its owner may read; made at the first start."""
    try:
        made = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        if path.stat().st_mode & _OTHERS:
            raise SetupError(
                f"Others may read {path}, which holds the keys of all secrets: chmod 600 {path}"
            ) from None
        return path.read_text().strip()
    with os.fdopen(made, "w") as file:
        file.write(new_key() + "\n")
        file.flush()
        os.fsync(file.fileno())
    return path.read_text().strip()
