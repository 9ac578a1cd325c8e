"""`hifi verify`, `reconcile` and `tail` need only the URL of a gateway and a key, and no Kafka."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from deploy.cli.commands import app
from deploy.local.cluster import Cluster
from gateway.settings import Settings
from observe.audit.signing import PUBLIC, Signer
from shared.config.configuration import Configuration, RemovedStream, Stream
from shared.event.derived import RESTORED
from shared.event.envelope import event_headers
from shared.event.record import RecordOut
from shared.event.times import MINUTE_MS, minute_of
from shared.event.topics import ACKED, STATEMENTS, fixed_specs, stream_spec, stream_topic
from shared.proof.acked import WILD, AckedRow, AckedSlice
from shared.proof.merkle import merkle_root
from shared.proof.statement import NO_PREVIOUS, SignedStatement, Statement
from shared.runtime.clock import now_ms
from shared.runtime.control_client import RefusedError
from shared.runtime.kafka.topic_admin import topic_admin
from shared.runtime.setup_error import NoAnswerError, NotFoundError, OperatorError
from tests.integration.gateway.test_stream_events import a_key
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, RunningGateway, running_gateway
from tests.support.kafka.kafka_log import write_rows

pytestmark = pytest.mark.integration

STREAM, GONE = "laidbeside", "laidbesidegone"
MINUTE = minute_of(now_ms()) - 10 * MINUTE_MS
# The ledger lacks some of these, and the log others; neither has anything of a last minute.
ALL = tuple(f"e{n}" for n in range(10_000))
NAMED, STORED = ALL[:9_900], ALL[3:]
LATER, OLD, WILDS = ("later-1", "later-2"), ("old-1", "old-2"), ("wild-1",)
READER, READS = a_key("reader", "read", "admin")
SENDER, SENDS = a_key("sender", "write")
STRANGER, ELSEWHERE = a_key("stranger", "read", tenant="others")


def events(
    stream: str, ids: Sequence[str], minute_ms: int, *headers: tuple[str, bytes]
) -> list[RecordOut]:
    accepted_ms = now_ms() if minute_ms == WILD else minute_ms + 9
    return [
        RecordOut(
            stream_topic(stream),
            None,
            b"{}",
            (
                *event_headers(
                    event_id=each, event_time_ms=minute_ms + 7, accepted_at_ms=accepted_ms
                ),
                *headers,
            ),
        )
        for each in ids
    ]


def rows(stream: str, ids: Sequence[str], minute_ms: int) -> list[RecordOut]:
    """Return the ledger's rows about these ids, some in each."""
    parts = [ids[at : at + 900] for at in range(0, len(ids), 900)]
    told = [
        AckedRow(
            stream_topic(stream), 0, (AckedSlice(0, ((len(part), minute_ms),), minute_ms),), part
        )
        for part in map(tuple, parts)
    ]
    return [RecordOut(ACKED, stream.encode(), row.to_bytes(), ()) for row in told]


def statements(signer: Signer, stream: str, *said: tuple[int, Sequence[str]]) -> list[RecordOut]:
    """Return a chain of statements."""
    made, previous = [], NO_PREVIOUS
    for minute_ms, ids in said:
        count, root = len(ids), merkle_root(ids).hex()
        statement = Statement(
            stream, minute_ms, 1, count, count, root, {}, MINUTE + 3 * MINUTE_MS, previous
        )
        made.append(signer.sign(statement))
        previous = statement.digest
    return [_stated(each) for each in made]


def _stated(signed: SignedStatement) -> RecordOut:
    said = signed.statement
    return RecordOut(STATEMENTS, f"{said.stream}:{said.minute_ms}".encode(), signed.to_json(), ())


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    return Signer(Path(tmp_path_factory.mktemp("signer")) / "observe")


@pytest.fixture(scope="module")
def public_key(signer: Signer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write and return the public key, all that somebody elsewhere has."""
    path = Path(tmp_path_factory.mktemp("elsewhere")) / PUBLIC
    path.write_text(signer.public_key)
    return path


@pytest.fixture(scope="module")
def gateway(kafka: Cluster, signer: Signer) -> Iterator[RunningGateway]:
    async def fill() -> None:
        async with topic_admin(kafka.bootstrap_servers) as admin:
            specs = [it for it in fixed_specs([]) if it.name in {ACKED, STATEMENTS}]
            await admin.create_missing([*specs, stream_spec(STREAM), stream_spec(GONE)])
        written = [
            *rows(STREAM, NAMED, MINUTE),
            # An unreadable row, and a row of a stream whose name begins like this one's.
            RecordOut(ACKED, STREAM.encode(), b"{", ()),
            *rows(GONE, ("gone-1",), MINUTE),
            *events(STREAM, STORED, MINUTE),
            *events(STREAM, LATER, MINUTE + MINUTE_MS),
            *events(STREAM, WILDS, WILD),
            *events(STREAM, ("e5",), MINUTE, (RESTORED, b"spring")),
            *events(GONE, ("gone-1",), MINUTE),
            *statements(
                signer,
                STREAM,
                (MINUTE, ALL),
                (MINUTE + MINUTE_MS, LATER),
                (MINUTE - MINUTE_MS, OLD),
                (WILD, WILDS),
            ),
            *statements(signer, GONE, (MINUTE, ("gone-1",))),
        ]
        await write_rows(kafka.bootstrap_servers, written)

    asyncio.run(fill())
    gone = RemovedStream(GONE, "default", 4, now_ms())
    config = FixedConfig(
        Configuration(
            streams={STREAM: Stream(STREAM)},
            removed_streams={GONE: gone},
            keys={each.id: each for each in (READER, SENDER, STRANGER)},
        )
    )
    settings = Settings(auth="keys", bootstrap_servers=kafka.bootstrap_servers)
    with running_gateway(FakePublisher([]), config, settings) as running:
        yield running


def hifi(gateway: RunningGateway, *arguments: str, key: str = READS, given: str = "") -> Result:
    """Run `hifi` as on a machine that reaches only the gateway."""
    environ = {"HIFI_GATEWAY": gateway.url, "HIFI_API_KEY": key, "HIFI_KAFKA": "127.0.0.1:1"}
    return CliRunner().invoke(app, list(arguments), env=environ, input=given)


def verify(
    gateway: RunningGateway,
    public_key: Path,
    ids: Sequence[str],
    *,
    minute_ms: int = MINUTE,
    stream: str = STREAM,
    key: str = READS,
) -> Result:
    about = ["--stream", stream, f"--minute={minute_ms}", "--ids", "-"]
    proof = ["--public-key", str(public_key)]
    return hifi(gateway, "verify", *about, *proof, key=key, given="\n".join(ids))


def told(ended: Result) -> tuple[int, list[str]]:
    return ended.exit_code, ended.stdout.split()


def refused(ended: Result) -> OperatorError:
    """Return the error that `hifi` prints as a sentence before it exits with its code."""
    assert isinstance(ended.exception, OperatorError), ended.output
    return ended.exception


def test_a_list_of_ten_thousand_is_laid_beside_what_was_signed(
    gateway: RunningGateway, public_key: Path
) -> None:
    complete = verify(gateway, public_key, ALL)
    assert told(complete) == (0, ["complete"]), complete.output
    assert f"{STREAM}, " in complete.stderr
    assert "10,000 events acknowledged, 10,000 ids" in complete.stderr
    # One id that only the ledger has, one that only the log has, one that both have.
    missing = {"e0", "e5000", "e9999"}
    ended = verify(gateway, public_key, [each for each in (*ALL, *LATER) if each not in missing])
    assert told(ended) == (3, sorted(missing)), ended.output
    assert "Not of this minute: 2 ids in the list." in ended.stderr
    later = verify(gateway, public_key, LATER[1:], minute_ms=MINUTE + MINUTE_MS)
    assert told(later) == (3, ["later-1"])
    assert told(verify(gateway, public_key, ALL, minute_ms=WILD)) == (3, list(WILDS))


def test_a_whole_list_is_verified_though_hifi_names_nothing_any_more(
    gateway: RunningGateway, public_key: Path
) -> None:
    """A minute is verified a year later, when ledger and log have been deleted."""
    assert told(verify(gateway, public_key, OLD, minute_ms=MINUTE - MINUTE_MS))[0] == 0
    for mine in (OLD[:1], (*OLD, "e1")):
        left = verify(gateway, public_key, mine, minute_ms=MINUTE - MINUTE_MS)
        assert left.exit_code == 4
        assert "your list is not exactly the signed one" in " ".join(left.stderr.split())


def test_what_was_signed_of_a_removed_stream_can_be_verified(
    gateway: RunningGateway, public_key: Path
) -> None:
    assert told(verify(gateway, public_key, ("x",), stream=GONE)) == (3, ["gone-1"])


def test_who_may_not_read_the_stream_is_told_so(gateway: RunningGateway, public_key: Path) -> None:
    sent = json.dumps({"id": "e1"})
    for key, kind, code, says in (
        (ELSEWHERE, NotFoundError, 6, "404 unknown_stream"),
        ("nobody", RefusedError, 1, "401 unauthenticated"),
        (SENDS, RefusedError, 1, "403 scope_missing"),
    ):
        for ended in (
            verify(gateway, public_key, ALL, key=key),
            hifi(gateway, "reconcile", "--stream", STREAM, "--events", "-", key=key, given=sent),
            hifi(gateway, "tail", STREAM, key=key),
        ):
            error = refused(ended)
            assert (error.exit_code, says in str(error)) == (code, True), error
            if kind is RefusedError:
                assert "Set a key with --api-key or HIFI_API_KEY" in str(error)
    missing = verify(gateway, public_key, ALL, minute_ms=MINUTE + 60 * MINUTE_MS)
    assert (refused(missing).exit_code, missing.stdout) == (6, "")
    away = hifi(gateway, "tail", STREAM, "--gateway", "http://127.0.0.1:1")
    assert isinstance(away.exception, NoAnswerError)


def test_what_is_missing_of_ten_thousand_sent_is_named(
    gateway: RunningGateway, tmp_path: Path
) -> None:
    sent = tmp_path / "sent.ndjson"
    ids = [*ALL[3:], "forgotten", "later-1"]
    sent.write_text("\n".join(json.dumps({"id": each}) for each in ids))
    asked = ["reconcile", "--stream", STREAM, "--events", str(sent)]
    ended = hifi(gateway, *asked)
    assert told(ended) == (3, ["forgotten"]), ended.output
    said = ended.stderr.splitlines()
    assert said[0] == "9,999 ids in the file, 9,998 of them in Hifi, 1 missing"
    assert said[1] == "A restore has put back 1 of those in Hifi."
    # All were stored before that time.
    assert len(told(hifi(gateway, *asked, "--from", "2100-01-01T00:00Z"))[1]) == len(ids)


def test_a_page_of_ids_is_bounded_and_says_where_it_goes_on(gateway: RunningGateway) -> None:
    def page(**query: Any) -> dict[str, Any]:
        answer = httpx.get(
            f"{gateway.url}/v1/streams/{STREAM}/ids",
            params=query,
            headers={"authorization": f"Bearer {READS}"},
            timeout=30,
        )
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    first = page()
    rest = page(after=first["newer"])
    assert (len(first["ids"]), first["is_complete"], rest["is_complete"]) == (10_000, False, True)
    stored = [*STORED, *LATER, *WILDS, "e5"]
    assert sorted(first["ids"] + rest["ids"]) == sorted(stored)
    assert first["restored"] + rest["restored"] == ["e5"]
    assert page(after=rest["newer"])["ids"] == []
    # The ids are in several Kafka partitions, whose order is not defined.
    assert sorted(page(minute_ms=MINUTE + MINUTE_MS)["ids"]) == sorted(LATER)
    assert sorted(page(acked="true")["ids"]) == sorted(NAMED)
    assert page(acked="true", minute_ms=MINUTE + MINUTE_MS)["ids"] == []


def test_tail_is_another_word_for_events_tail(gateway: RunningGateway) -> None:
    shown = hifi(gateway, "tail", STREAM, "--from", "1h", "--count", "2", "--output", "name")
    assert (shown.exit_code, len(set(shown.stdout.split()) & set(ALL))) == (0, 2), shown.output
    assert "tail " not in CliRunner().invoke(app, ["--help"]).stdout.replace("resend, tail.", "")
