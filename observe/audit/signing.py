"""Signs statements with one ed25519 key: that of the settings, or one kept in observe's folder.

Only the process that signs reads the private key. The public key is beside it, and in every
statement. Verifiers should get it from elsewhere than from the statement.
"""

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from shared.proof.statement import SignedStatement, Statement
from shared.runtime.files.whole_file import write_whole
from shared.runtime.setup_error import SetupError

_PRIVATE, PUBLIC = "statement.key", "statement.pub"


class Signer:
    """Signs statements with the given key, or with the folder's, which is made if missing.

    With the same given key, any machine continues where another has stopped.
    """

    def __init__(self, folder: Path, *, key: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._key = _read(key) if key else _kept_key(folder / _PRIVATE)
        self.public_key = self._key.public_key().public_bytes_raw().hex()
        write_whole(folder / PUBLIC, f"{self.public_key}\n".encode())

    def sign(self, statement: Statement) -> SignedStatement:
        return SignedStatement(statement, self.public_key, self._key.sign(statement.to_bytes()))


def _kept_key(path: Path) -> Ed25519PrivateKey:
    """The key of a file; made at the first start."""
    if not path.exists():
        raw = Ed25519PrivateKey.generate().private_bytes_raw()
        # Anybody who can read it can make statements in our name.
        write_whole(path, raw.hex().encode(), mode=0o600)
    try:
        return _read(path.read_text())
    except ValueError as error:
        raise SetupError(
            f"The file {path} holds no ed25519 key: restore it from a backup, or move it away"
            " and a new key is made (old statements then verify with the old public key)."
        ) from error


def _read(text: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(text))
