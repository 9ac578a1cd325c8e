"""Finds the keys of the embedded stack: in the environment, or in its data folder.

Without a secret key no destination could have a secret on one's own machine. Keys are made once and
kept, because nothing else opens what they have sealed.
"""

import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from shared.config.access import ENTROPY_BYTES, new_text
from shared.runtime.files.whole_file import write_whole
from shared.runtime.secret_box import SecretBox, new_key
from shared.runtime.setup_error import SetupError

VARIABLE = "HIFI_SECRET_KEYS"
OPERATOR_KEY = "HIFI_GATEWAY_OPERATOR_KEY"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def secret_keys(folder: Path, environ: Mapping[str, str]) -> str:
    """The value for HIFI_SECRET_KEYS; SetupError when it cannot be that."""
    keys = environ.get(VARIABLE) or _kept(folder / "secret-keys", new_key)
    # A wrong key is refused here, and not by three services in their logs.
    SecretBox.of(keys)
    return keys


def operator_key(folder: Path, environ: Mapping[str, str]) -> str:
    """The key with which the stack, and whoever may read its data folder, administers it."""
    return environ.get(OPERATOR_KEY) or _kept(folder / "operator-key", new_operator_key)


def new_operator_key() -> str:
    return new_text(kind="secret", key_id="operator", entropy=os.urandom(ENTROPY_BYTES))


def _kept(path: Path, make: Callable[[], str]) -> str:
    """The key in a file that only its owner may read; made at the first start."""
    if not path.exists():
        write_whole(path, f"{make()}\n".encode(), mode=0o600)
    if path.stat().st_mode & _OTHERS:
        raise SetupError(f"Others may read {path}, which must stay secret: chmod 600 {path}")
    return path.read_text().strip()
