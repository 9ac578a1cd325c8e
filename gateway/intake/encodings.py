"""Decompresses a body piece by piece, with limits on its size and its ratio.

A decompression bomb is refused after one piece too many, before it fills the memory.
"""

import zlib
from collections.abc import Callable, Iterator

import brotli
from backports import zstd

from gateway.problems import Problem

# A piece takes 0.2 ms and this much memory; the limits are checked between pieces.
_PIECE_BYTES = 131_072
# Bytes of the body that the decoder gets at once: few, as it copies those that it does not use.
_WINDOW_BYTES = 16_384
# `cat *.gz` makes one member from each file; a body with more members than this is an attack.
_MEMBERS_MAX = 1_000
# RFC 8878 asks decoders to support this; with more, a frame of 20 bytes could take 2 GB.
_ZSTD_WINDOW_LOG_MAX = 23
_ZSTD_OPTIONS: dict[int, int] = {zstd.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG_MAX}
# Below this size no ratio is suspicious: a small body of blanks compresses a thousandfold.
_RATIO_FREE_BYTES = 1_048_576

ENCODINGS = ("gzip", "zstd", "br", "identity")


def opened(
    encoding: str,
    wire: bytes,
    *,
    bytes_max: int,
    ratio_max: int,
    hold: Callable[[int], None],
) -> bytes:
    """Return the body without its encoding; call `hold` with its new size whenever it grows."""
    if encoding == "identity":
        return wire
    pieces: list[bytes] = []
    byte_count = 0
    try:
        for piece in _PIECES[encoding](wire):
            pieces.append(piece)
            byte_count += len(piece)
            if byte_count > bytes_max:
                raise _too_large("decompressed_bytes_max", bytes_max)
            if byte_count > _RATIO_FREE_BYTES and byte_count > ratio_max * len(wire):
                raise _too_large("ratio_max", ratio_max)
            hold(byte_count)
    except (zlib.error, zstd.ZstdError, brotli.error, EOFError) as error:
        raise Problem(
            "invalid_encoding",
            f"The body is not valid {encoding}: {error}.",
        ) from error
    return b"".join(pieces)


def _gzip(wire: bytes) -> Iterator[bytes]:
    at, members = 0, 0
    decoder = zlib.decompressobj(wbits=31)
    given = b""
    while True:
        if not given:
            given = wire[at : at + _WINDOW_BYTES]
            at += len(given)
        piece = decoder.decompress(given, _PIECE_BYTES)
        if piece:
            yield piece
        if not decoder.eof:
            if not piece and not given:
                raise EOFError("it ends too early")
            given = decoder.unconsumed_tail
            continue
        members += 1
        if members > _MEMBERS_MAX:
            raise EOFError(f"it has more than {_MEMBERS_MAX} members")
        # A member is followed by another one, by nothing, or by zeros that pad a block.
        given = decoder.unused_data.lstrip(b"\0")
        while not given and at < len(wire):
            given = wire[at : at + _WINDOW_BYTES].lstrip(b"\0")
            at += _WINDOW_BYTES
        if not given:
            return
        decoder = zlib.decompressobj(wbits=31)


def _zstd(wire: bytes) -> Iterator[bytes]:
    at, members = 0, 0
    decoder = zstd.ZstdDecompressor(options=_ZSTD_OPTIONS)
    while True:
        given = b""
        if decoder.needs_input:
            given = wire[at : at + _WINDOW_BYTES]
            at += len(given)
            if not given:
                raise EOFError("it ends too early")
        piece = decoder.decompress(given, _PIECE_BYTES)
        if piece:
            yield piece
        if decoder.eof:
            members += 1
            at -= len(decoder.unused_data)
            if at >= len(wire):
                return
            if members > _MEMBERS_MAX:
                raise EOFError(f"it has more than {_MEMBERS_MAX} frames")
            decoder = zstd.ZstdDecompressor(options=_ZSTD_OPTIONS)


def _brotli(wire: bytes) -> Iterator[bytes]:
    at = 0
    decoder = brotli.Decompressor()
    while not decoder.is_finished():
        given = b""
        if decoder.can_accept_more_data():
            given = wire[at : at + _WINDOW_BYTES]
            at += len(given)
            if not given:
                raise EOFError("it ends too early")
        piece = decoder.process(given, output_buffer_limit=_PIECE_BYTES)
        if piece:
            yield piece
    if at < len(wire):
        raise EOFError("there are bytes after its end")


_PIECES: dict[str, Callable[[bytes], Iterator[bytes]]] = {
    "gzip": _gzip,
    "zstd": _zstd,
    "br": _brotli,
}


def _too_large(limit: str, value: int) -> Problem:
    detail = (
        f"A decompressed body may have {value} bytes at most; send the events in several requests."
        if limit == "decompressed_bytes_max"
        else f"The body grows to more than {value} times its size when it is decompressed."
    )
    return Problem("decompressed_too_large", detail, members={"limit": limit, "limit_value": value})
