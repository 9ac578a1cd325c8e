"""The texts of `hifi status` and `hifi doctor`, and their form without a terminal."""

import asyncio
import json
import struct
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from deploy.cli.books import NoBooksError, observed_books
from deploy.cli.doctor import doctor
from deploy.cli.overview import verdict_text
from deploy.cli.printing import print_table
from deploy.cli.status import _as_json, _print, status
from deploy.local.ports import pick_free
from observe.books_page import BOOKS_PATH, BooksPage, BooksRow
from shared.proof.balance import Balance
from shared.proof.overview import StreamVerdict
from shared.proof.restored import RestoredView
from shared.runtime.clock import now_ms
from shared.runtime.health import Health
from shared.runtime.kafka.settings import kafka_access
from shared.runtime.kafka.topic_admin import ApiVersionsResponse, finalized_features
from shared.runtime.metrics import Metrics
from shared.runtime.setup_error import KafkaUnavailableError, OperatorError
from tests.support.deploy.javas import empty_wheel

doctor_app, status_app = typer.Typer(), typer.Typer()
doctor_app.command()(doctor)
status_app.command()(status)


def balance(
    *, acked: int = 9, waiting: int = 0, dead: int = 0, queued: int = 0, unaccounted: int = 0
) -> Balance:
    delivered = acked - waiting - dead - queued - unaccounted
    return Balance(acked, delivered, waiting, dead, queued, unaccounted)


def test_status_has_the_words_of_the_console_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reason = "0 of 9 delivered in 5 min; 503 since 11:44: no \x1b[2Jhealthy upstream"
    rows = [
        BooksRow("orders", "crm", balance(waiting=9), StreamVerdict.FAILING, reason),
        BooksRow("orders", "shop", balance(), StreamVerdict.OK),
        BooksRow("spare", None, balance(queued=9)),
        BooksRow(
            "orders", "pipeline:visits", balance(), StreamVerdict.OK, kept=12, kept_bytes=4_096
        ),
    ]
    restored = {"orders": RestoredView(7_000, "spring\x1b", 1_000)}
    page = BooksPage("127.0.0.1:9092", now_ms(), "", rows, restored=restored)

    def books(_: str, __: int) -> tuple[BooksPage, str]:
        return page, ""

    monkeypatch.setattr("deploy.cli.books.read", books)
    env = free_ports(tmp_path) | {"HIFI_KAFKA": "127.0.0.1:9092"}
    printed = CliRunner().invoke(status_app, env=env).stdout
    lines = [line.split() for line in printed.splitlines()]
    assert ["orders", "crm", "FAILING", "9", "0", "0", "9", "0", "0"] in lines
    assert ["spare", "-", "-", "9", "0", "9", "0", "0", "0"] in lines
    assert "orders/crm: 0 of 9 delivered in 5 min; 503 since 11:44: no \\x1b[2Jhealthy" in printed
    assert "orders: 7,000 events of these put back by restores, last by spring\\x1b at" in printed
    assert "pipeline:visits keeps 12 open windows or known keys, 4.1 kB of memory" in printed
    assert "shop keeps" not in printed
    answer = json.loads(CliRunner().invoke(status_app, ["--json"], env=env).stdout)
    assert answer["restored"]["orders"]["count"] == 7_000
    told = answer["books"]
    assert [row["verdict"] for row in told] == ["FAILING", "OK", None, "OK"]
    assert [row["kept"] for row in told] == [None, None, None, 12]
    assert told[0]["reason"] == reason


def test_a_service_that_cannot_work_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def books(_: str, __: int) -> tuple[BooksPage, str]:
        return BooksPage("127.0.0.1:9092", now_ms(), "", []), ""

    monkeypatch.setattr("deploy.cli.books.read", books)
    env = free_ports(tmp_path) | {"HIFI_KAFKA": "127.0.0.1:9092"}
    well, waiting = Health(), Health()
    for health in (well, waiting):
        health.start()
    waiting.needs(lambda: "no news of hifi.config for 15 s")
    Metrics().serve(
        host="127.0.0.1", port=int(env["HIFI_UP_GATEWAY_METRICS_PORT"]), probes=well.probes
    )
    Metrics().serve(
        host="127.0.0.1", port=int(env["HIFI_UP_DELIVERY_METRICS_PORT"]), probes=waiting.probes
    )
    lines = CliRunner().invoke(status_app, env=env).stdout.splitlines()
    told = {words[0]: words[1:] for words in (line.split(maxsplit=2) for line in lines) if words}
    assert told["gateway"] == ["up"]
    assert told["delivery"] == ["down", "no news of hifi.config for 15 s"]
    assert told["retrier"] == ["down", "it does not answer"]


@pytest.mark.parametrize("word", [verdict.value for verdict in StreamVerdict])
def test_every_verdict_has_a_colour(word: str) -> None:
    assert verdict_text(f" {word} ").style


def test_a_table_in_a_file_is_aligned_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "count"), [("[red]a", "1"), ("b", "1,000")], numbers=1)
    assert capsys.readouterr().out == "name    count\n[red]a      1\nb       1,000\n"


def free_ports(tmp_path: Path) -> dict[str, str]:
    services = ("GATEWAY", "DELIVERY", "RETRIER", "PIPELINES", "OBSERVE")
    names = ("KAFKA", "GATEWAY", "SAMPLE", "CONSOLE", *(f"{one}_METRICS" for one in services))
    ports = pick_free(len(names))
    return {"HIFI_UP_DATA": str(tmp_path / "data"), "HIFI_KAFKA": ""} | {
        f"HIFI_UP_{name}_PORT": str(port) for name, port in zip(names, ports, strict=True)
    }


def test_what_the_audit_could_not_read_stands_below_the_books(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = "records of the last day could not be read, so they prove nothing: 3 receipt"
    page = BooksPage("k:1", now_ms(), "", [BooksRow("orders", "shop", balance())], said)
    assert BooksPage.from_json(page.to_json()) == page
    _print({}, page, "", kafka="k:1")
    assert f"audit: {said}" in " ".join(capsys.readouterr().out.split())
    assert _as_json({}, page, "")["audit"] == said


def test_status_without_kafka_still_tells_of_the_services(tmp_path: Path) -> None:
    env = free_ports(tmp_path) | {"HIFI_KAFKA": "127.0.0.1:1"}
    result = CliRunner().invoke(status_app, ["--json"], env=env)
    assert isinstance(result.exception, KafkaUnavailableError)
    assert result.exception.exit_code == 7
    assert json.loads(result.stdout) == {
        "kafka": False,
        "services": {
            "gateway": False,
            "delivery": False,
            "retrier": False,
            "pipelines": False,
            "observe": False,
            "sample": False,
        },
        "books": [],
    }
    assert "No Kafka broker answers at 127.0.0.1:1" in str(result.exception)


@pytest.mark.parametrize(
    ("kafka", "age_ms", "problem", "why"),
    [
        ("127.0.0.1:9092", 0, "", ""),
        ("10.0.0.1:9092", 0, "", "reads another Kafka, 127.0.0.1:9092,127.0.0.1:9093"),
        ("127.0.0.1:9093", 0, "nothing has been read yet", "cannot tell: nothing has been read"),
        ("127.0.0.1:9093", 60_000, "", "books are 60 s old"),
    ],
)
def test_observes_books_are_taken_where_they_can_be_relied_on(
    kafka: str, age_ms: int, problem: str, why: str
) -> None:
    rows = [BooksRow("orders", "shop", balance())]
    brokers = "127.0.0.1:9092,127.0.0.1:9093"
    page = BooksPage(brokers, now_ms() - age_ms, problem, rows)
    (port,) = pick_free(1)
    Metrics().serve(host="127.0.0.1", port=port, pages={BOOKS_PATH: page.to_json})
    if not why:
        assert observed_books(kafka, port=port) == page
        return
    with pytest.raises(NoBooksError, match=why):
        observed_books(kafka, port=port)


def test_observe_that_is_away_or_older_has_no_books() -> None:
    (away, old) = pick_free(2)
    Metrics().serve(host="127.0.0.1", port=old)
    for port in (away, old):
        with pytest.raises(NoBooksError, match="does not answer"):
            observed_books("127.0.0.1:9092", port=port)


def examine(tmp_path: Path, *arguments: str, **env: str) -> tuple[int, dict[str, dict[str, str]]]:
    result = CliRunner().invoke(doctor_app, ["--json", *arguments], env=free_ports(tmp_path) | env)
    assert not isinstance(result.exception, OperatorError)
    answer = json.loads(result.stdout)
    assert answer["safe"] is (result.exit_code == 0)
    return result.exit_code, {one["subject"]: one for one in answer["findings"]}


def test_no_kafka_is_a_note_when_nobody_asked_for_one(tmp_path: Path, jars_cache: Path) -> None:
    code, findings = examine(tmp_path, HIFI_CACHE=str(jars_cache))
    assert code == 0, findings
    assert (findings["kafka"]["grade"], findings["kafka"]["mend"]) == (
        "note",
        "`hifi up` starts one",
    )
    assert findings["broker jars"]["grade"] == findings["spark jars"]["grade"] == "good"
    assert findings["java"]["grade"] == "good"


def test_a_kafka_that_was_asked_for_must_answer(tmp_path: Path, jars_cache: Path) -> None:
    code, findings = examine(tmp_path, "--kafka", "127.0.0.1:1", HIFI_CACHE=str(jars_cache))
    assert code == 1
    assert findings["kafka 127.0.0.1:1"]["grade"] == "unsafe"
    assert not any(subject.startswith("port") for subject in findings)


def test_a_password_that_is_readable_on_the_network_is_a_note(
    tmp_path: Path, jars_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    login = {"PROTOCOL": "SASL_PLAINTEXT", "MECHANISM": "PLAIN", "USER": "u", "PASSWORD": "p"}
    for name, value in login.items():
        monkeypatch.setenv(f"HIFI_KAFKA_{name}", value)
    kafka_access.cache_clear()
    try:
        _, findings = examine(tmp_path, "--kafka", "127.0.0.1:1", HIFI_CACHE=str(jars_cache))
    finally:
        kafka_access.cache_clear()
    assert findings["login to kafka"] == {
        "subject": "login to kafka",
        "grade": "note",
        "says": "PLAIN without TLS: everybody on the network can read the password",
        "mend": "set HIFI_KAFKA_PROTOCOL to SASL_SSL",
    }


def test_a_java_that_is_passed_over_is_named(tmp_path: Path, jars_cache: Path) -> None:
    _, findings = examine(tmp_path, HIFI_CACHE=str(jars_cache), JAVA_HOME=str(tmp_path))
    assert findings["java"]["grade"] == "good"
    assert f"; not used: JAVA_HOME is {tmp_path}, but " in findings["java"]["says"]


def test_a_user_without_a_name_cannot_start_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jars_cache: Path
) -> None:
    _, findings = examine(tmp_path, HIFI_CACHE=str(jars_cache))
    assert findings["user"]["grade"] == "good"
    monkeypatch.setattr("os.getuid", lambda: 4_000_017)
    code, findings = examine(tmp_path, HIFI_CACHE=str(jars_cache))
    assert (code, findings["user"]["grade"]) == (1, "unsafe")
    assert "hifi:x:4000017:0::" in findings["user"]["mend"]


def test_java_and_jars_that_are_wrong_are_findings_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(empty_wheel(tmp_path)))
    monkeypatch.setenv("PATH", "")
    folder = tmp_path / "cache" / "jars" / "spark"
    folder.mkdir(parents=True)
    (folder / "kafka-clients-3.9.2.jar").write_bytes(b"not a jar")
    code, findings = examine(tmp_path, HIFI_CACHE=str(tmp_path / "cache"), JAVA_HOME=str(tmp_path))
    assert code == 1
    assert findings["java"]["grade"] == "unsafe"
    assert "apt-get install" in findings["java"]["mend"]
    assert findings["spark jars"]["grade"] == "unsafe"
    assert findings["spark jars"]["mend"].startswith("`rm ")
    assert findings["broker jars"]["grade"] == "note"


def test_a_stranger_on_a_port_is_unsafe_and_one_on_kafkas_too(
    tmp_path: Path, jars_cache: Path
) -> None:
    async def look() -> tuple[int, dict[str, dict[str, str]], int]:
        async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()

        server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        taken = {"HIFI_UP_SAMPLE_PORT": str(port), "HIFI_CACHE": str(jars_cache)}
        async with server:
            return *await asyncio.to_thread(lambda: examine(tmp_path, **taken)), port

    code, findings, port = asyncio.run(look())
    assert code == 1
    assert findings[f"port {port}"]["grade"] == "unsafe"
    assert "--sample-port" in findings[f"port {port}"]["mend"]


def answer_of(features: dict[str, int], *, error_code: int = 0) -> bytes:
    """Encode a broker's ApiVersions 3 answer with one kind of request and two tags."""
    text = b"".join(
        bytes([len(name) + 1]) + name.encode() + struct.pack(">hh", level, 0) + b"\0"
        for name, level in features.items()
    )
    finalized = bytes([len(features) + 1]) + text
    body = struct.pack(">h", error_code) + b"\x02" + struct.pack(">hhh", 18, 0, 4) + b"\0"
    body += struct.pack(">i", 0) + b"\x02"
    body += b"\x01\x08" + struct.pack(">q", 7)
    return body + b"\x02" + bytes([len(finalized)]) + finalized


def test_finalized_features_are_read_from_a_brokers_answer() -> None:
    features = {"eligible.leader.replicas.version": 1, "metadata.version": 30}
    assert finalized_features(ApiVersionsResponse.decode(answer_of(features))) == features
    assert finalized_features(ApiVersionsResponse.decode(answer_of({}))) == {}
    refused = ApiVersionsResponse.decode(answer_of(features, error_code=35))
    assert finalized_features(refused) is None
