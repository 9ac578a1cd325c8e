"""Acknowledged events are in the log, "not stored" ones are not: leaders move during a pause."""

import asyncio
import random
import socket
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from deploy.local.cluster import Cluster
from gateway.intake.events import Event
from gateway.intake.record_encoding import pack_headers
from gateway.publish.publisher import KafkaPublisher
from gateway.server import serve
from gateway.settings import Settings
from shared.config.configuration import Stream
from shared.event.topic_safety import Copies
from shared.event.topics import fixed_specs, stream_spec, stream_topic
from shared.runtime.kafka.topic_admin import topic_admin
from tests.support.gateway.acknowledged import (
    AFTER_APPEND,
    UNTRUTHS,
    Sender,
    SenderAnswers,
    Wire,
    body_of,
    ids_in_log,
)
from tests.support.kafka.broker_faults import frozen, restart, stop_broker, wait_in_sync
from tests.support.kafka.config_records import write_config

pytestmark = pytest.mark.integration

PARTITIONS = 12
NOT_LEADER = f"6{AFTER_APPEND}"
MOVES, EVENTS_MIN = 60, 200_000
SINGLE_SENDERS, BATCH_SENDERS = 14, 10
NONE_UNTRUE = dict.fromkeys(UNTRUTHS, 0)


async def make_stream(servers: str, name: str) -> str:
    """Create a stream with three copies, of which two must have an event."""
    async with topic_admin(servers) as admin:
        spec = stream_spec(name, partition_count=PARTITIONS)
        await admin.create_missing([*fixed_specs(["30s"]), spec], Copies())
    await write_config(servers, [Stream(name, partition_count=PARTITIONS)])
    return stream_topic(name)


def pause(cluster: Cluster, broker_id: int, for_s: float) -> None:
    with frozen(cluster, broker_id):
        time.sleep(for_s)


class Resignations:
    """The leader appends A and resigns before its paused follower has A; then B is sent."""

    def __init__(self, cluster: Cluster, told: SenderAnswers) -> None:
        self.cluster, self.told = cluster, told
        self.publisher = KafkaPublisher(
            cluster.bootstrap_servers,
            ack_deadline_s=10,
            queue_deadline_s=1.5,
            batch_bytes_max=100_000,
        )

    async def play(self) -> Counter[str]:
        servers = self.cluster.bootstrap_servers
        self.topic = await make_stream(servers, "resigned")
        await self.publisher.start(deadline_s=30)
        try:
            for leader in self.cluster.broker_ids[:2]:
                await asyncio.gather(*self._one_each(f"warm{leader}"))
                await self._resign(leader)
        finally:
            await self.publisher.stop()
        return await ids_in_log(servers, self.topic)

    async def _resign(self, leader: int) -> None:
        follower = self.cluster.broker_ids[-1]
        pausing = asyncio.create_task(asyncio.to_thread(pause, self.cluster, follower, 3))
        await asyncio.sleep(0.1)
        first = self._one_each(f"a{leader}")
        await asyncio.sleep(0.4)
        await asyncio.to_thread(stop_broker, self.cluster, leader)
        await pausing
        second = self._one_each(f"b{leader}")
        await asyncio.gather(*first, *second)
        await asyncio.to_thread(restart, self.cluster, leader)
        await asyncio.to_thread(wait_in_sync, self.cluster)

    def _one_each(self, name: str) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self._send(name, n)) for n in range(PARTITIONS)]

    async def _send(self, name: str, partition: int) -> None:
        event_id = f"{name}x{partition}"
        value = body_of([event_id])[1:-1]
        event = Event(event_id, None, value, pack_headers(()), partition=partition)
        for report in await self.publisher.publish(self.topic, [event]):
            self.told.tell(event_id, report.fate)


def test_a_leader_that_resigns_with_a_paused_follower_makes_no_yes_or_no_untrue(
    kafka_three: Cluster,
) -> None:
    told, wire = SenderAnswers(), Wire()
    with wire.watched():
        in_log = asyncio.run(Resignations(kafka_three, told).play())
    found = told.counted(in_log, wire)
    sys.stdout.write(f"{dict(found)}, answers {dict(wire.answers)}\n")
    assert wire.answers[NOT_LEADER], "the fault did not happen"
    assert {each: found[each] for each in UNTRUTHS} == NONE_UNTRUE
    assert len(told.fates) == 6 * PARTITIONS


async def _send_while_leaders_move(
    cluster: Cluster, told: SenderAnswers, tables: Path
) -> Counter[str]:
    servers, rng = cluster.bootstrap_servers, random.Random(7)
    topic = await make_stream(servers, "moved")
    front = socket.create_server(("127.0.0.1", 0))
    port = front.getsockname()[1]
    settings = Settings(
        bootstrap_servers=servers,
        # The gateway closes the socket that it gets.
        listen_fd=front.detach(),
        metrics_port=0,
        auth="off",
        ack_deadline_s=4,
        queue_deadline_s=1,
        tables_folder=tables,
    )
    over, stop = asyncio.Event(), asyncio.Event()
    serving = asyncio.create_task(serve(settings, stop=over))
    senders = [Sender(f"s{n}", 1, told, rng, 0.03) for n in range(SINGLE_SENDERS)]
    senders += [Sender(f"b{n}", 20, told, rng, 0.2) for n in range(BATCH_SENDERS)]
    async with asyncio.TaskGroup() as group:
        for sender in senders:
            group.create_task(sender.run(port, "moved", stop))
        for nth in range(MOVES):
            await asyncio.to_thread(_move_leaders, cluster, rng)
            sys.stderr.write(f"move {nth + 1}: {len(told.fates):,} events\n")
        async with asyncio.timeout(600):
            while len(told.fates) < EVENTS_MIN:  # noqa: ASYNC110 - it sets no event
                await asyncio.sleep(1)
        stop.set()
    over.set()
    await serving
    await asyncio.to_thread(wait_in_sync, cluster)
    return await ids_in_log(servers, topic)


def _move_leaders(cluster: Cluster, rng: random.Random) -> None:
    """Stop and restart one broker in order, while another one is paused."""
    leaving, follower = rng.sample(cluster.broker_ids, 2)
    with frozen(cluster, follower):
        begun_s, for_s = time.monotonic(), rng.uniform(0.5, 7)
        time.sleep(rng.uniform(0.1, 0.4))
        stop_broker(cluster, leaving)
        time.sleep(max(0.0, begun_s + for_s - time.monotonic()))
    restart(cluster, leaving)
    wait_in_sync(cluster)


@pytest.mark.long
@pytest.mark.timeout(2_400)
def test_acknowledged_is_in_the_log_after_sixty_leader_moves(
    kafka_three: Cluster, tmp_path: Path
) -> None:
    told, wire = SenderAnswers(), Wire()
    with wire.watched():
        in_log = asyncio.run(_send_while_leaders_move(kafka_three, told, tmp_path))
    found = told.counted(in_log, wire)
    sys.stdout.write(
        f"{len(told.fates):,} events, {MOVES} moves: {dict(found)}, answers {dict(wire.answers)}\n"
    )
    assert wire.answers[NOT_LEADER], "no leader resigned with a batch that it had appended"
    assert {each: found[each] for each in UNTRUTHS} == NONE_UNTRUE
