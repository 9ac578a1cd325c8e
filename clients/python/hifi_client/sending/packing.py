"""Compresses bodies with gzip or zstd, if requested and worthwhile."""

import gzip
import importlib
from collections.abc import Callable
from typing import TypeAlias

from hifi_client.errors import SetupError

Pack: TypeAlias = Callable[[bytes], bytes]
# The gateway refuses a ratio above 100 as a bomb (HIFI_GATEWAY_RATIO_MAX); from 90 on, a body is
# sent uncompressed.
_RATIO_MAX = 90
# A smaller body fits into one packet anyway.
_BYTES_MIN = 1_000
_GZIP_LEVEL = 1


def packer(compression: str | None) -> Pack | None:
    """Return the function that compresses a body; None without compression."""
    match compression:
        case None:
            return None
        case "gzip":
            return lambda body: gzip.compress(body, _GZIP_LEVEL, mtime=0)
        case "zstd":
            return _zstd()
        case _:
            raise SetupError(f"compression must be 'gzip', 'zstd' or None, not {compression!r}.")


def packed(body: bytes, pack: Pack | None) -> tuple[bytes, bool]:
    """Return the body to send, and whether it is compressed."""
    if pack is None or len(body) < _BYTES_MIN:
        return body, False
    small = pack(body)
    return (small, True) if len(small) * _RATIO_MAX > len(body) > len(small) else (body, False)


def _zstd() -> Pack:
    for name in ("compression.zstd", "backports.zstd"):
        try:
            compress: Pack = importlib.import_module(name).compress
        except ImportError:
            continue
        return compress
    raise SetupError(
        "compression='zstd' needs Python 3.14, or pip install 'hifi-streams-client[zstd]'."
    )
