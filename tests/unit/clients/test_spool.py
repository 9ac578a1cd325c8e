"""A spool keeps every accepted event, even if its file is cut short, damaged or full."""

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from hifi_client import SpoolError
from hifi_client.errors import SpoolFullError
from hifi_client.spooling.segment import Place
from hifi_client.spooling.spool import Spool

MB = 1_000_000


def spool(folder: Path, *, stream: str = "orders", bytes_max: int = MB) -> Spool:
    return Spool(folder, stream=stream, bytes_max=bytes_max)


def append(kept: Spool, *bodies: bytes) -> list[Place]:
    places: list[Place] = []
    kept.append(bodies, places.extend)
    return places


def rest(kept: Spool) -> list[bytes]:
    """Take every batch that is left, mark each as done, and return them."""
    found = []
    while (frame := kept.take(timeout_s=0)) is not None:
        found.append(frame.body)
        kept.done(frame.place)
    return found


def left(folder: Path, *, stream: str = "orders") -> list[bytes]:
    """Return the batches that the next owner finds."""
    with closing(spool(folder, stream=stream)) as kept:
        return rest(kept)


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.spool"))


def test_batches_leave_in_their_order_and_take_no_room_then(tmp_path: Path) -> None:
    kept = spool(tmp_path)
    append(kept, b"a", b"b")
    append(kept, b"c")
    assert not kept.is_empty()
    assert rest(kept) == [b"a", b"b", b"c"]
    assert kept.is_empty()
    kept.close()
    assert segments(tmp_path) == []


def test_what_is_not_done_is_there_for_the_next_owner(tmp_path: Path) -> None:
    kept = spool(tmp_path)
    append(kept, b"a", b"b", b"c")
    taken = [kept.take(timeout_s=0) for _ in range(3)]
    assert taken[1] is not None
    # The second batch is done before the first; the position must stay before the first.
    kept.done(taken[1].place)
    kept.close()
    kept = spool(tmp_path)
    assert rest(kept) == [b"a", b"b", b"c"]
    append(kept, b"d")
    kept.close()
    assert left(tmp_path) == [b"d"]


def test_a_write_that_was_cut_short_counts_for_nothing(tmp_path: Path) -> None:
    for length in range(1, 40):
        folder = tmp_path / str(length)
        kept = spool(folder)
        append(kept, b"first", b"a second one of 24 bytes")
        kept.close()
        (path,) = segments(folder)
        os.truncate(path, path.stat().st_size - length)
        kept = spool(folder)
        append(kept, b"third")
        assert rest(kept) == [b"first", b"third"]
        assert kept.damaged_bytes == 0
        kept.close()


def test_damage_is_kept_aside_and_what_follows_it_is_sent(tmp_path: Path) -> None:
    kept = spool(tmp_path)
    places = append(kept, b"first", b"second", b"third")
    kept.close()
    (path,) = segments(tmp_path)
    for offset in (places[1].offset + 18, places[2].offset - 1):
        data = bytearray(path.read_bytes())
        data[offset] ^= 0xFF
        path.write_bytes(data)
    kept = spool(tmp_path)
    assert rest(kept) == [b"first", b"third"]
    assert kept.damaged_bytes == 16 + len(b"second")
    kept.close()
    assert b"HiFi" in next(tmp_path.glob("*.damaged")).read_bytes()
    assert left(tmp_path) == []


def test_damage_at_the_end_is_kept_aside_once(tmp_path: Path) -> None:
    kept = spool(tmp_path)
    append(kept, b"first")
    kept.close()
    (path,) = segments(tmp_path)
    path.write_bytes(path.read_bytes() + b"\0" * 100)
    for _ in range(3):
        kept = spool(tmp_path)
        rest(kept)
        kept.close()
    assert next(tmp_path.glob("*.damaged")).stat().st_size == 100


def test_a_full_spool_takes_nothing_until_something_is_done(tmp_path: Path) -> None:
    kept = spool(tmp_path, bytes_max=10_000)
    for _ in range(15):
        append(kept, b"x" * 500)
    with pytest.raises(SpoolFullError, match="of 10,000 bytes"):
        append(kept, *[b"x" * 500] * 10)
    used = sum(each.stat().st_size for each in segments(tmp_path))
    assert used <= 10_000
    assert len(rest(kept)) == 15
    append(kept, b"x" * 500)
    kept.close()


def test_one_owner_at_a_time(tmp_path: Path) -> None:
    kept = spool(tmp_path)
    with pytest.raises(SpoolError, match=f"belongs to process {os.getpid()}"):
        spool(tmp_path)
    kept.close()
    spool(tmp_path).close()


def test_the_lock_of_a_process_that_was_killed_is_free(tmp_path: Path) -> None:
    program = (
        "import os, sys, pathlib; from hifi_client.spooling.spool import Spool;"
        "kept = Spool(pathlib.Path(sys.argv[1]), stream='orders', bytes_max=10**6);"
        "kept.append([b'promised'], lambda _: None); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path], check=False, timeout=60)
    assert left(tmp_path) == [b"promised"]


def test_events_of_another_stream_are_not_sent_to_this_one(tmp_path: Path) -> None:
    kept = spool(tmp_path, stream="payments")
    append(kept, b"a")
    kept.close()
    with pytest.raises(SpoolError, match="another stream"):
        spool(tmp_path, stream="orders")
    assert left(tmp_path, stream="payments") == [b"a"]


def test_what_was_refused_is_kept_for_a_person(tmp_path: Path) -> None:
    kept = spool(tmp_path)
    kept.set_aside([(b'{"id":"a"}', "schema_violation", "must be number")])
    kept.close()
    said = json.loads((tmp_path / "refused.ndjson").read_text())
    assert said == {"code": "schema_violation", "reason": "must be number", "event": {"id": "a"}}


def test_a_position_that_cannot_be_read_means_that_all_is_sent_again(tmp_path: Path) -> None:
    kept = spool(tmp_path)
    append(kept, b"a", b"b")
    first = kept.take(timeout_s=0)
    assert first is not None
    kept.done(first.place)
    kept.close()
    (tmp_path / "position").write_bytes(b"nonsense")
    assert left(tmp_path) == [b"a", b"b"]
