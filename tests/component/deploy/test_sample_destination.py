"""The sample destination accepts every body and shows it as text, whatever it contains."""

import asyncio
from collections.abc import Sequence

import httpx
import pytest

from deploy.local.sample_destination import create_app
from deploy.local.services import SAMPLE_TITLE


def after(
    *bodies: bytes, headers: dict[str, str] | None = None
) -> tuple[Sequence[int], httpx.Response, str]:
    """Send bodies, and return the statuses and the answers of GET /events and GET /."""

    async def talk() -> tuple[Sequence[int], httpx.Response, str]:
        transport = httpx.ASGITransport(create_app())
        async with httpx.AsyncClient(transport=transport, base_url="http://sample") as client:
            statuses = [
                (await client.post("/", content=body, headers=headers)).status_code
                for body in bodies
            ]
            return statuses, await client.get("/events"), (await client.get("/")).text

    return asyncio.run(talk())


def test_it_counts_and_shows_what_came_newest_first() -> None:
    headers = {"webhook-id": "msg_1", "hifi-attempt": "2", "hifi-maybe-duplicate": "1"}
    statuses, events, page = after(b'[{"id":"a"},{"id":"b"}]', b'{"id":"c"}', headers=headers)
    assert statuses == [200, 200]
    assert events.json()["count"] == 3
    assert [one["event"] for one in events.json()["last"]] == [
        '{"id": "c"}',
        '{"id": "b"}',
        '{"id": "a"}',
    ]
    assert "3 <span>events arrived" in page
    assert page.index("msg_1") < page.index("may be a duplicate")
    assert f"<title>{SAMPLE_TITLE}</title>" in page


def test_an_empty_page_says_what_to_expect() -> None:
    _, events, page = after()
    assert events.json() == {"count": 0, "last": []}
    assert "Nothing has arrived yet" in page
    assert "<table>" not in page


def test_one_event_is_not_several() -> None:
    assert "1 <span>event arrived" in after(b"{}")[2]


@pytest.mark.parametrize(
    "body",
    [
        b'[{"a":"<script>alert(1)</script>"}]',
        b"<script>not JSON</script>",
        b'[{"a":"\\ud800"}]',
        b"\xff\xfe",
        b"[" * 100_000,
        b"",
    ],
)
def test_nothing_breaks_the_page(body: bytes) -> None:
    statuses, events, page = after(body, b'{"id":"next"}')
    assert statuses == [200, 200]
    assert events.json()["count"] == 2
    assert page.count("<script>") == 1, "only our own script"
    assert "next" in page


@pytest.mark.parametrize(
    ("event", "attempt", "status"),
    [
        (b'{"answer_always":400}', "1", 400),
        (b'{"answer_always":400}', "2", 400),
        (b'{"answer_once":503}', "1", 503),
        (b'{"answer_once":503}', "2", 200),
        (b'{"answer_once":99}', "1", 200),
        (b'{"answer_always":"400"}', "1", 200),
        (b'[[{"answer_always":400}]]', "1", 200),
        (b"7", "1", 200),
    ],
)
def test_an_event_can_ask_for_the_answer(event: bytes, attempt: str, status: int) -> None:
    statuses, _, _ = after(b'[{"id":"a"},' + event + b"]", headers={"hifi-attempt": attempt})
    assert statuses == [status]
