"""A process keeps Kafka's name for it in its folder, for the next process with that folder."""

import asyncio
from pathlib import Path

import pytest

from shared.runtime.kafka.leases import standing as module
from shared.runtime.kafka.leases.member import LeaseMember, Standing
from shared.runtime.kafka.leases.standing import keep_standing, kept_standing
from tests.support.kafka.lease_members import NotedWork

GROUP = "hifi.leases.delivery"
FIRST, SECOND = Standing(GROUP, "a-1", 3), Standing(GROUP, "a-1", 4)


class Member(LeaseMember):
    """A member that has joined, and notes for whom it leaves the group."""

    def __init__(self) -> None:
        super().__init__("kafka:1", GROUP, NotedWork("a", []))
        self.left: list[Standing] = []

    def joins_as(self, standing: Standing) -> None:
        self._standing = standing
        self.is_told = True

    async def _leave(self, standing: Standing) -> None:
        self.left.append(standing)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_S", 0.0)


async def until_kept(path: Path, standing: Standing) -> None:
    async with asyncio.timeout(30):
        while kept_standing(path) != standing:  # noqa: ASYNC110 - a file sets no event
            await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    "content", [None, b"", b"{", b"[]", b'["g","m"]', b'["g","m","3"]', b"\xff"]
)
def test_a_folder_that_nobody_had_or_that_tells_nothing_is_no_reason_to_stop(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "lease.json"
    if content is not None:
        path.write_bytes(content)
    assert kept_standing(path) is None


def test_each_new_standing_is_kept_and_none_that_the_group_has_not_given(tmp_path: Path) -> None:
    path = tmp_path / "lease.json"

    async def scenario() -> None:
        member = Member()
        keeping = asyncio.create_task(keep_standing(path, member))
        for _ in range(9):
            await asyncio.sleep(0)
        assert not path.exists(), "it has no name yet"
        for standing in (FIRST, SECOND):
            member.joins_as(standing)
            await until_kept(path, standing)
        keeping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await keeping

    asyncio.run(scenario())
    assert kept_standing(path) == SECOND


def test_a_disk_that_takes_nothing_ends_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next process waits for a session, as if this one had lost its folder."""
    refused = asyncio.Event()

    def no_room(*_: object) -> None:
        refused.set()
        raise OSError("no room")

    async def scenario() -> None:
        member = Member()
        member.joins_as(FIRST)
        with monkeypatch.context() as full:
            full.setattr(module, "write_whole", no_room)
            keeping = asyncio.create_task(keep_standing(tmp_path / "lease.json", member))
            async with asyncio.timeout(30):
                while not refused.is_set():  # noqa: ASYNC110 - set in another thread
                    await asyncio.sleep(0.001)
        member.joins_as(SECOND)
        await until_kept(tmp_path / "lease.json", SECOND)
        keeping.cancel()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("former", "left"),
    [(FIRST, [FIRST]), (None, []), (FIRST._replace(group="hifi.leases.observe"), [])],
)
def test_who_had_the_folder_before_is_said_goodbye_for_in_our_group_alone(
    former: Standing | None, left: list[Standing]
) -> None:
    member = Member()
    asyncio.run(member.leave_for(former))
    assert member.left == left


def test_who_never_joined_has_nobody_to_say_goodbye_for() -> None:
    member = LeaseMember("kafka:1", GROUP, NotedWork("a", []))
    # Otherwise the member would ask a broker that does not exist.
    asyncio.run(member._leave(member.standing))
    assert member.standing.member_id == ""
