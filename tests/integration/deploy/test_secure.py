"""All of Hifi on a Kafka with access control: TLS, a user for each service, least privilege.

The tests of one module share one stack, as each start of it costs two Spark drivers.
"""

import contextlib
import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from deploy.local.children import Child
from deploy.local.ports import pick_free
from deploy.local.stack import Stack
from shared.config.destination import Destination
from shared.event import rights
from shared.event.times import MINUTE_MS, minute_of
from shared.event.topics import STREAM_PREFIX
from shared.runtime.clock import now_ms
from tests.support.deploy.cli_runs import Run, port_options, run
from tests.support.deploy.stack_fixtures import (
    PATIENCE_S,
    QUICK_INTERVALS,
    RunningHifi,
    fetch,
    stack_settings,
    wait_until,
)
from tests.support.servers.authority import Authority
from tests.support.servers.scripted_destination import Reply, Request, always, scripted_destination

pytestmark = [
    pytest.mark.integration,
    # When a client drops a TLS connection, the connection says goodbye to its broker first. A loop
    # that ends at once has no time for that: the garbage collector then closes its socket.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

# A user who may log in, and nothing else.
STRANGER = "stranger"
# A user like delivery who may not read streams, but sees that they exist.
BLIND = "blind"
# More lines than a process writes during a test.
_LINES = 500
SERVICES = ("gateway", "delivery", "retrier", "pipelines", "observe")


@dataclass
class LockedHifi(RunningHifi):
    """A stack with access control, and the actions of a person beside it."""

    tmp: Path = Path()

    @property
    def lock(self) -> Mapping[str, str]:
        """Return the operator's variables from the file, which is written for a shell."""
        words = shlex.split(self.stack.settings.operator_file.read_text())
        return dict(word.split("=", 1) for word in words if "=" in word)

    def variables(self, user: str) -> dict[str, str]:
        lock = self.stack.cluster.lock
        assert lock is not None
        return lock.variables(user)

    def command(self, *arguments: str, **changed: str) -> Run:
        """Run `hifi`, as the operator unless something is changed, against this Hifi."""
        where = {"HIFI_KAFKA": self.kafka, "HIFI_GATEWAY": self.gateway}
        env = {**self.lock, **where, "HIFI_UP_DATA": str(self.folder), **changed}
        return run(*arguments, folder=self.tmp / "runs", env=env)

    def started(self, service: str, user: str, **changed: str | None) -> "SideProcess":
        """Start one more process of a service, with a folder and ports of its own."""
        prefix = f"HIFI_{service.upper()}_"
        ports = map(str, pick_free(3))
        own = {
            f"{prefix}BOOTSTRAP_SERVERS": self.kafka,
            f"{prefix}FOLDER": str(self.tmp / f"{service}-{user}"),
            f"{prefix}METRICS_PORT": next(ports),
            "HIFI_GATEWAY_PORT": next(ports),
            "HIFI_OBSERVE_CONSOLE_PORT": next(ports),
        }
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("HIFI_")}
        log = self.tmp / f"{service}-{user}.log"
        env = {
            name: value
            for name, value in {**inherited, **own, **self.variables(user), **changed}.items()
            if value is not None
        }
        return SideProcess(Child(service, [sys.executable, "-m", service], log=log, env=env))

    @property
    def folder(self) -> Path:
        return self.stack.settings.folder

    def denied(self, *users: str) -> list[str]:
        """Return the requests that Kafka has refused to these users."""
        log = (self.folder / "kafka" / "broker-1" / "broker.log").read_text().splitlines()
        return [line for line in log for user in users if f"User:{user} is Denied" in line]


@dataclass
class SideProcess:
    """A process beside the stack."""

    child: Child

    @property
    def said(self) -> str:
        return "\n".join(self.child.tail_log(_LINES))

    def ended_with(self) -> list[str]:
        """Return the output of a process that ends because it cannot start."""
        try:
            wait_until(lambda: not self.child.alive, what=lambda: f"the process ends: {self.said}")
        finally:
            self.child.kill()
        assert self.child.exit_code == 1, self.said
        return self.said.splitlines()


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory, jars_cache: Path) -> Iterator[LockedHifi]:
    tmp = tmp_path_factory.mktemp("secure")
    settings = replace(stack_settings(tmp / "data", jars_cache), secure=True)
    stack = Stack(settings, environ={**os.environ, **QUICK_INTERVALS}, say=lambda _: None)
    sees = rights.Right("topic", STREAM_PREFIX, ("Describe",), is_prefix=True)
    others = [each for each in rights.RIGHTS["delivery"] if each.name != STREAM_PREFIX]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(rights.RIGHTS, STRANGER, ())
        patch.setitem(rights.RIGHTS, BLIND, (sees, *others))
        stack.start(lambda _: None)
        try:
            yield LockedHifi(stack, tmp=tmp)
        finally:
            stack.stop()


def test_every_event_goes_its_whole_way(locked: LockedHifi) -> None:
    def fail_first(_: int, request: Request) -> Reply:
        return Reply(503 if request.headers["hifi-attempt"] == "1" else 200)

    with scripted_destination(fail_first) as later, scripted_destination(always(400)) as never:
        locked.add(Destination(stream="way", name="later", url=later.url))
        locked.add(Destination(stream="way", name="never", url=never.url))
        # A minute that is already over gets its statement soon.
        minute_ms = minute_of(now_ms()) - 3 * MINUTE_MS
        events = [{"id": f"e{n}", "time_ms": minute_ms + 7} for n in range(5)]
        answer = locked.post("way", events)
        assert answer.status_code == 200, answer.text
        books = locked.wait_for_balance("way/never", lambda b: b.dead == 5, what="5 dead")
        assert books.unaccounted == 0
        books = locked.wait_for_balance(
            "way/later", lambda b: b.delivered == 5, what="all events are there"
        )
        assert books.waiting == books.dead == books.queued == books.unaccounted == 0
        assert len(later.accepted_ids) == 5
        # Events that the gateway resends in a transaction are allowed, too.
        never.script = always(200)
        redriven = locked.command("dead", "redrive", "--stream", "way", "--yes")
        assert redriven.wait() == 0, redriven.err
        locked.wait_for_balance(
            "way/never", lambda b: b.delivered == 5, what="all events are finally there"
        )
    ids = locked.tmp / "ids.txt"
    ids.write_text("".join(f"e{n}\n" for n in range(5)))
    data = ["--data", str(locked.folder)]
    wanted = ["--stream", "way", "--minute", str(minute_ms), "--ids", str(ids), *data]
    # The auditor's Spark starts beside the others', or after them if there are few cores.
    wait_until(
        lambda: locked.command("verify", *wanted).wait() == 0,
        what=lambda: f"the statement is there: {locked.command('verify', *wanted).err}",
        timeout_s=2 * PATIENCE_S,
        look_s=2,
    )


def test_no_service_lacks_a_right(locked: LockedHifi) -> None:
    """The broker's log has every refusal."""
    assert locked.denied(*SERVICES, rights.OPERATOR) == []


def test_the_command_finds_all_of_it_well(locked: LockedHifi) -> None:
    kafka = locked.command("status", "--json", "--kafka", locked.kafka)
    assert json.loads(kafka.out)["kafka"] is True, kafka.err
    made = locked.command("topics")
    assert (made.wait(), made.out.strip()) == (0, "no topics made."), made.err
    # The command finds the operator's key in the data folder; another user has no such folder.
    ports = port_options(locked.stack.settings)
    env = {"HIFI_UP_DATA": str(locked.folder)}
    doctor = run("doctor", "--json", *ports, folder=locked.tmp / "runs", env=env)
    findings = json.loads(doctor.out)["findings"]
    assert [each for each in findings if each["grade"] == "unsafe"] == []
    assert [each["says"] for each in findings if each["subject"] == f"kafka {locked.kafka}"] == [
        "answers"
    ]


def test_the_secrets_are_nowhere_but_in_the_lock(locked: LockedHifi) -> None:
    """The secrets are not in logs, plans, checkpoints, metrics, or the output of `ps`."""
    folder = locked.folder
    secrets = list(json.loads((folder / "kafka" / "lock" / "passwords.json").read_text()).values())
    keepers = {
        folder / "kafka" / "lock" / "passwords.json",
        folder / "kafka" / "broker-1" / "server.properties",
        locked.stack.settings.operator_file,
    }
    for keeper in keepers:
        assert keeper.stat().st_mode & 0o077 == 0, f"others may read {keeper}"
    seen = {path: path.read_bytes() for path in folder.rglob("*") if is_told(path)}
    assert {path.parent.name for path in seen} > {"logs", "broker-1"}
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            seen[process] = process.read_bytes()
    for port in (locked.stack.settings.delivery_metrics_port, locked.stack.settings.console_port):
        seen[Path(f"port {port}")] = fetch(f"http://127.0.0.1:{port}/metrics").encode()
    showing = {path for path, text in seen.items() for one in secrets if one.encode() in text}
    assert showing == keepers


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_that_is_not_let_in_says_why_in_one_sentence(
    locked: LockedHifi, service: str
) -> None:
    stranger = Authority(locked.tmp).file
    wrong: dict[str, dict[str, str | None]] = {
        "let the user": {"HIFI_KAFKA_PASSWORD": "wrong"},
        "is not trusted": {"HIFI_KAFKA_CA_FILE": str(stranger)},
        "closes connections with PLAINTEXT": dict.fromkeys(
            ("HIFI_KAFKA_PROTOCOL", "HIFI_KAFKA_USER", "HIFI_KAFKA_PASSWORD", "HIFI_KAFKA_CA_FILE")
        ),
    }
    for says, changed in wrong.items():
        (sentence,) = locked.started(service, service, **changed).ended_with()
        assert sentence.startswith(f"hifi {service}: "), sentence
        assert says in sentence
        assert locked.kafka in sentence
        assert "HIFI_KAFKA_" in sentence, "the sentence does not say what to do next"


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_that_lacks_a_right_says_which_in_one_sentence(
    locked: LockedHifi, service: str
) -> None:
    # The gateway's client logs a line of its own first.
    sentence = locked.started(service, STRANGER).ended_with()[-1]
    assert sentence.startswith(f"hifi {service}: "), sentence
    # A gateway that may write nothing does not get as far as reading.
    what = "write to any topic" if service == "gateway" else "use the topic hifi.config"
    assert f"the user {STRANGER} {what}" in sentence
    assert "docs/kafka.md" in sentence


def test_the_command_says_why_in_one_sentence(locked: LockedHifi) -> None:
    stranger = Authority(locked.tmp).file
    wrong: dict[str, dict[str, str]] = {
        "does not let the user operator log in": {"HIFI_KAFKA_PASSWORD": "wrong"},
        "is not trusted": {"HIFI_KAFKA_CA_FILE": str(stranger)},
        "HIFI_KAFKA_CA_FILE is /nowhere": {"HIFI_KAFKA_CA_FILE": "/nowhere"},
        "has none of Hifi's topics": locked.variables(STRANGER),
    }
    for says, changed in wrong.items():
        ended = locked.command("status", **changed)
        assert ended.wait() == 1, ended.out
        assert says in " ".join(ended.err.split()), ended.err
        assert "Traceback" not in ended.err


@pytest.mark.long
def test_a_lane_that_lacks_a_right_says_so_and_the_others_go_on(locked: LockedHifi) -> None:
    """Spark's own message is long, and a lane that dies at once is not restarted over and over."""
    beside = locked.started("delivery", BLIND)
    try:
        wait_until(lambda: "lane.started" in beside.said, what=lambda: f"starts: {beside.said}")
        assert locked.post("demo", [{"id": "unseen"}]).status_code == 200
        wait_until(lambda: "lane.died" in beside.said, what=lambda: f"the lane dies: {beside.said}")
        died = [json.loads(line) for line in beside.said.splitlines() if "lane.died" in line]
        assert "does not let the user blind use the topic hifi.stream." in died[0]["error"]
        assert "docs/kafka.md" in died[0]["error"]
        assert beside.child.alive
        assert len(died) < 10
    finally:
        beside.child.kill()
    assert all(child.alive for child in locked.stack.children.values())


def is_told(path: Path) -> bool:
    """Return whether a file has written content; Kafka's indexes are sparse files."""
    return path.is_file() and path.suffix not in {".index", ".timeindex", ".jsa"}
