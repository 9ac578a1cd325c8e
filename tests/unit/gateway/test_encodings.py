"""Compressed bodies are unpacked exactly, and no bomb goes off."""

import gzip
import zlib
from collections.abc import Callable

import brotli
import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from gateway.intake.encodings import opened
from gateway.problems import Problem

PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": zstd.compress,
    "br": brotli.compress,
}


def unpack(
    encoding: str, wire: bytes, *, bytes_max: int = 20_000_000, ratio_max: int = 100
) -> bytes:
    return opened(encoding, wire, bytes_max=bytes_max, ratio_max=ratio_max, hold=lambda _: None)


def refusal(encoding: str, wire: bytes, *, bytes_max: int = 20_000_000) -> str:
    with pytest.raises(Problem) as caught:
        unpack(encoding, wire, bytes_max=bytes_max)
    return caught.value.code


@pytest.mark.parametrize("encoding", PACK)
@given(body=st.binary(max_size=5_000))
def test_what_went_in_comes_out(encoding: str, body: bytes) -> None:
    assert unpack(encoding, PACK[encoding](body)) == body


def test_identity_is_the_same_object() -> None:
    body = b"[]"
    assert unpack("identity", body) is body


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
@pytest.mark.parametrize("size", [0, 1, 300_000])
def test_several_members_are_one_body(encoding: str, size: int) -> None:
    parts = [b"a" * size, b"", b"b" * 7, bytes(range(256)) * 300]
    assert unpack(encoding, b"".join(map(PACK[encoding], parts))) == b"".join(parts)


def test_zeros_may_pad_a_gzip_file() -> None:
    assert unpack("gzip", gzip.compress(b"x") + bytes(20_000) + gzip.compress(b"y")) == b"xy"
    assert unpack("gzip", gzip.compress(b"x") + bytes(40_000)) == b"x"


@pytest.mark.parametrize("encoding", PACK)
@given(data=st.data())
def test_a_truncated_body_is_400(encoding: str, data: st.DataObject) -> None:
    wire = PACK[encoding](b"some text " * 100)
    cut = data.draw(st.integers(0, len(wire) - 1))
    assert refusal(encoding, wire[:cut]) == "invalid_encoding"


@pytest.mark.parametrize("encoding", PACK)
@given(wire=st.binary(min_size=1, max_size=300))
def test_anything_else_is_400_or_a_body(encoding: str, wire: bytes) -> None:
    try:
        unpack(encoding, wire)
    except Problem as problem:
        assert problem.code == "invalid_encoding"  # noqa: PT017 - a lucky stream is fine


@pytest.mark.parametrize("encoding", ["gzip", "br"])
def test_what_follows_the_end_is_400(encoding: str) -> None:
    assert refusal(encoding, PACK[encoding](b"x") + b"more") == "invalid_encoding"


@pytest.mark.parametrize("encoding", PACK)
def test_a_body_over_the_cap_is_413_and_is_not_unpacked_whole(encoding: str) -> None:
    grown: list[int] = []
    wire = PACK[encoding](b"\n" * 10_000_000)
    with pytest.raises(Problem) as caught:
        opened(encoding, wire, bytes_max=300_000, ratio_max=10**9, hold=grown.append)
    assert caught.value.code == "decompressed_too_large"
    assert caught.value.members["limit"] == "decompressed_bytes_max"
    assert max(grown, default=0) <= 300_000


@pytest.mark.parametrize("encoding", PACK)
def test_a_bomb_is_known_by_its_ratio(encoding: str) -> None:
    wire = PACK[encoding](b"[" * 10_000_000)
    with pytest.raises(Problem) as caught:
        unpack(encoding, wire)
    assert caught.value.members["limit"] == "ratio_max"


def test_a_zstd_frame_cannot_ask_for_a_huge_window() -> None:
    options: dict[int, int] = {
        zstd.CompressionParameter.window_log: 27,
        zstd.CompressionParameter.checksum_flag: 0,
    }
    packer = zstd.ZstdCompressor(options=options)
    wire = packer.compress(b"x" * 1_000_000) + packer.compress(b"y") + packer.flush()
    assert refusal("zstd", wire) == "invalid_encoding"


def test_a_thousand_empty_members_and_one_are_too_many() -> None:
    empty = gzip.compress(b"")
    assert unpack("gzip", empty * 999 + gzip.compress(b"x")) == b"x"
    assert refusal("gzip", empty * 1_001) == "invalid_encoding"


def test_raw_deflate_is_not_gzip() -> None:
    assert refusal("gzip", zlib.compress(b"x")) == "invalid_encoding"
