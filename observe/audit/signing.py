"""Signs statements with one ed25519 key: that of the settings, or one kept in observe's folder.

Only the signing process reads the private key. The public key is in a file beside it, and in every
statement. Verifiers should not take the public key from the statement that they verify.
"""

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from shared.proof.statement import SignedStatement, Statement
from shared.runtime.files.whole_file import write_whole
from shared.runtime.setup_error import SetupError

_PRIVATE, PUBLIC = "statement.key", "statement.pub"


class Signer:
    """Signs statements with the given key, or with the folder's, which is generated if missing.

    With the same given key, any machine can continue where another has stopped.
    """

    def __init__(self, folder: Path, *, key: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._key = _read(key) if key else _kept_key(folder / _PRIVATE)
        self.public_key = self._key.public_key().public_bytes_raw().hex()
        write_whole(folder / PUBLIC, f"{self.public_key}\n".encode())

    def sign(self, statement: Statement) -> SignedStatement:
        return SignedStatement(statement, self.public_key, self._key.sign(statement.to_bytes()))


def _kept_key(path: Path) -> Ed25519PrivateKey:
    """Return the key in a file; generate it at the first start."""
    if not path.exists():
        raw = Ed25519PrivateKey.generate().private_bytes_raw()
        # Anybody who can read it can sign statements in our name.
        write_whole(path, raw.hex().encode(), mode=0o600)
    try:
        return _read(path.read_text())
    except ValueError as error:
        raise SetupError(
            f"The file {path} has no valid ed25519 key. Restore it from a backup, or move it away:"
            " then a new key is generated (old statements still verify with the old public key)."
        ) from error


def _read(text: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(text))
