"""An event is a line of JSON with an id; anything else is refused at once."""

import json
import os
from datetime import date

import pytest

from hifi_client import NotAnEventError
from hifi_client.sending.events import EVENT_BYTES_MAX, id_of, line_of, unbroken


def test_an_event_without_an_id_gets_one_that_nobody_else_has() -> None:
    ids = [line_of({"price": 5})[0] for _ in range(1_000)]
    assert len(set(ids)) == 1_000
    name, line = line_of({"price": 5})
    assert json.loads(line) == {"id": name, "price": 5}


def test_a_child_of_this_process_makes_other_ids() -> None:
    read, write = os.pipe()
    line_of({})
    if (child := os.fork()) == 0:
        os.write(write, line_of({})[0].encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read) as file:
        assert file.read().partition("-")[0] != line_of({})[0].partition("-")[0]


def test_an_id_of_the_senders_own_is_kept() -> None:
    assert line_of({"id": "a", "n": 1}) == ("a", b'{"id":"a","n":1}')
    assert line_of({"id": "a"}, event_id="b") == ("b", b'{"id":"b"}')
    assert line_of({"id": "a"}, key="k")[1] == b'{"id":"a","partitionkey":"k"}'


@pytest.mark.parametrize("text", ['{"id":"a",  "n":1.0}', b'{"id":"a",  "n":1.0}'])
def test_text_keeps_its_bytes(text: str | bytes) -> None:
    assert line_of(text) == ("a", b'{"id":"a",  "n":1.0}')


def test_line_breaks_between_tokens_become_blanks() -> None:
    name, line = line_of('{\n "id": "a",\r\n "n": "\\n"}')
    assert (name, json.loads(line)) == ("a", {"id": "a", "n": "\n"})
    assert b"\n" not in line
    assert id_of(line) == "a"


@pytest.mark.parametrize(
    "event",
    [
        "[1]",
        "nonsense",
        '{"n": NaN}',
        '{"n": 1} {"n": 2}',
        "",
        b'{"n": "\xff"}',
        "[" * 100_000,
        {"n": float("nan")},
        {"n": object()},
        {"n": "\ud800"},
        {"id": 7},
        {"text": "x" * EVENT_BYTES_MAX},
    ],
)
def test_what_is_no_event_is_refused_in_a_sentence(event: dict[str, object] | str) -> None:
    with pytest.raises(NotAnEventError, match=r"^[A-Z].*[.:]"):
        line_of(event)


def test_what_writes_json_may_be_somebody_elses() -> None:
    spread = unbroken(lambda members: json.dumps(members, indent=1, default=str))
    name, line = line_of({"id": "a", "of": date(2026, 1, 2)}, encode=spread)
    assert (name, json.loads(line)) == ("a", {"id": "a", "of": "2026-01-02"})
    assert b"\n" not in line
    with pytest.raises(NotAnEventError, match="cannot be written as JSON"):
        line_of({"n": 1}, encode=unbroken(lambda members: members["nothing"]))
