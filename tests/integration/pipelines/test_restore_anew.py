"""A restore needs the store, and nothing of the Kafka that the events came from."""

import asyncio
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from deploy.cli.archive import restore
from deploy.cli.archive.places import StoreError
from deploy.cli.commands import app
from deploy.local.cluster import Cluster
from deploy.local.stack import Stack
from pipelines.jobs.tee import TeeTask, tee
from shared.event.envelope import event_headers
from shared.event.record import KafkaPartition, RecordOut
from shared.event.topics import restores_spec, stream_spec, stream_topic
from shared.proof.archived import ArchiveId
from shared.runtime.kafka.topic_admin import topic_admin
from tests.support.deploy.stack_fixtures import QUICK_INTERVALS, RunningHifi, stack_settings
from tests.support.kafka.kafka_log import write_rows
from tests.support.pipelines.archive_made import bucket_of, sink_of
from tests.support.pipelines.archive_runs import bucket_of as bucket_in
from tests.support.pipelines.archive_runs import (
    folder_of,
    log_of,
    objects_of,
    restored,
    wait_until_kept,
)
from tests.support.pipelines.pipeline_runs import document, make_streams, post_all, put

pytestmark = pytest.mark.integration

_COUNT, _PARTITIONS = 3_000, 3
_AT_MS = 1_767_225_600_000


def test_what_was_kept_comes_back_into_a_kafka_that_knows_nothing_of_it(
    tmp_path: Path,
    jars_cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder, sink = tmp_path / "kafka", sink_of(tmp_path / "kept")
    topic, archive = stream_topic(sink.id.stream), sink.id
    rows = [
        RecordOut(
            topic,
            f"k{nth % 7}".encode() if nth % 3 else None,
            b"\x00\xff" * (nth % 40) + b"%d" % nth,
            (
                *event_headers(event_id=f"é{nth}", event_time_ms=_AT_MS, accepted_at_ms=_AT_MS + 1),
                *((("more", b""),) * (nth % 2)),
            ),
        )
        for nth in range(_COUNT)
    ]
    with Cluster(folder=folder, cache=jars_cache) as cluster:
        servers = cluster.bootstrap_servers
        asyncio.run(_make_stream(servers, archive.stream))
        asyncio.run(write_rows(servers, rows, partition_of=lambda nth, _: nth % _PARTITIONS))
        before = log_of(servers, archive.stream)
        ranges = {KafkaPartition(topic, at): (0, len(kept)) for at, kept in before.items()}
        (end,) = tee([TeeTask(servers, sink, ranges)])
        assert (end.made.passed, end.away) == (_COUNT, "")
    shutil.rmtree(folder)
    with Cluster(folder=folder, cache=jars_cache) as cluster:
        servers = cluster.bootstrap_servers
        asyncio.run(_make_stream(servers, archive.stream))
        bucket = bucket_of(tmp_path / "kept")
        assert restored(servers, bucket, archive, archive.stream, restore_id="anew").done == _COUNT
        assert log_of(servers, archive.stream) == before
        # A restore into another stream starts at the beginning, even with the same name.
        asyncio.run(_make_stream(servers, "beside"))
        assert restored(servers, bucket, archive, "beside", restore_id="anew").done == _COUNT
        assert log_of(servers, "beside") == before
        _check_that_it_is_cut_and_goes_on(servers, tmp_path, archive.stream, monkeypatch, caplog)
        # A failure in the middle is reported in one sentence.
        objects = tmp_path / "kept" / archive.objects
        shutil.rmtree(objects)
        objects.touch()
        ended = _restore(servers, tmp_path, archive.stream)
        assert isinstance(ended.exception, StoreError)
        assert str(ended.exception).startswith("the store here: ")


def _check_that_it_is_cut_and_goes_on(
    servers: str,
    data: Path,
    stream: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    @contextmanager
    def ctrl_c(tell: Callable[[int, None], None], *_: int) -> Iterator[None]:
        tell(signal.SIGINT, None)
        yield

    (data / "stores.toml").write_text(f'[here]\nurl = "file://{data}/kept"\n')
    (data / "store-folders").write_text(str(data))
    asyncio.run(_make_stream(servers, "cut"))
    with monkeypatch.context() as patched:
        patched.setattr(restore, "on_signals", ctrl_c)
        cut = _restore(servers, data, stream, "--to-stream", "cut")
    assert (cut.exit_code, cut.output.count("Stopped after 2,000 events;")) == (130, 1), cut.output
    assert not [record for record in caplog.records if record.name == "asyncio"]
    ended = _restore(servers, data, stream, "--to-stream", "cut")
    assert ended.output.endswith(f"Done: {_COUNT:,} of {_COUNT:,} are restored.\n")
    assert log_of(servers, "cut") == log_of(servers, stream)


def _restore(servers: str, data: Path, stream: str, *more: str) -> Result:
    told = ["restore", "--stream", stream, "--data", str(data), "--kafka", servers]
    return CliRunner().invoke(app, [*told, *more])


async def _make_stream(servers: str, name: str) -> None:
    async with topic_admin(servers) as admin:
        await admin.create_missing([stream_spec(name), restores_spec()])


@contextmanager
def _running(folder: Path, cache: Path) -> Iterator[RunningHifi]:
    stack = Stack(
        stack_settings(folder, cache), environ={**os.environ, **QUICK_INTERVALS}, say=lambda _: None
    )
    stack.start(lambda _: None)
    try:
        yield RunningHifi(stack)
    finally:
        stack.stop()


@pytest.mark.long
def test_a_hifi_without_its_kafka_gets_its_stream_back(tmp_path: Path, jars_cache: Path) -> None:
    archive = ArchiveId("default", "lost", "lost-archive")
    with _running(tmp_path, jars_cache) as hifi:
        put(hifi.kafka, document(archive.name, archive.stream, to=[{"archive": "archive"}]))
        post_all(hifi, archive.stream, [{"n": n} for n in range(_COUNT)])
        wait_until_kept(bucket_in(folder_of(hifi)), archive, _COUNT)
        before = log_of(hifi.kafka, archive.stream)
    shutil.rmtree(tmp_path / "kafka")
    with _running(tmp_path, jars_cache) as hifi:
        assert sum(each.count for each in objects_of(bucket_in(folder_of(hifi)), archive)) == _COUNT
        asyncio.run(make_streams(hifi.kafka, [archive.stream]))
        told = ["restore", "--stream", archive.stream, "--data", str(tmp_path)]
        ended = CliRunner().invoke(app, [*told, "--kafka", hifi.kafka])
        assert ended.exit_code == 0, ended.output
        assert log_of(hifi.kafka, archive.stream) == before
