"""Finds the keys of the embedded stack: in the environment, or in its data folder.

Without a secret key no destination of the stack could have a secret. Keys are made once and kept,
because only they open the secrets that they have sealed.
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
_KEYS_FILE = "secret-keys"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def secret_keys(folder: Path, environ: Mapping[str, str]) -> str:
    """Return the value of HIFI_SECRET_KEYS; SetupError if it is not valid."""
    keys = environ.get(VARIABLE) or _kept(folder / _KEYS_FILE, new_key)
    # Refuse a wrong key here; otherwise several services would refuse it in their logs.
    SecretBox.of(keys)
    return keys


def known_secret_keys(folder: Path, environ: Mapping[str, str]) -> str:
    """Return the value of HIFI_SECRET_KEYS; empty if there is none yet."""
    if environ.get(VARIABLE) or (folder / _KEYS_FILE).exists():
        return secret_keys(folder, environ)
    return ""


def operator_key(folder: Path, environ: Mapping[str, str]) -> str:
    """Return the administrator's key, for the stack and for anyone who may read its data folder."""
    return environ.get(OPERATOR_KEY) or _kept(folder / "operator-key", new_operator_key)


def new_operator_key() -> str:
    return new_text(kind="secret", key_id="operator", entropy=os.urandom(ENTROPY_BYTES))


def _kept(path: Path, make: Callable[[], str]) -> str:
    """Return the key in a file that only its owner may read; make it at the first start."""
    if not path.exists():
        write_whole(path, f"{make()}\n".encode(), mode=0o600)
    if path.stat().st_mode & _OTHERS:
        raise SetupError(f"Other users may read {path}, which must stay secret: chmod 600 {path}")
    return path.read_text().strip()
