"""Finds unsafe settings of a machine, a cluster and its topics, and says how to fix them.

Callers collect the facts from files, ports and Kafka; the code here judges them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from shared.event.times import DAY_MS
from shared.event.topics import SEGMENT_MS, TopicSpec

Grade = Literal["good", "note", "unsafe"]
Holder = Literal["nobody", "hifi", "somebody"]

IN_SYNC_MIN = "min.insync.replicas"
# With fewer copies, any failure causes a loss or a pause.
_REPLICAS_SAFE = 3
# Settings that may be higher than wanted (-1 is Kafka's "unlimited"), and those that may be lower.
_AT_LEAST = frozenset({"retention.ms", "max.message.bytes"})
_AT_MOST = frozenset({"segment.ms"})
# The version in pyproject.toml: tomllib, TaskGroup and asyncio.timeout came with it.
PYTHON_SAFE = (3, 11)
_GB = 10**9
# Sixteen of the embedded Kafka's 64 MB segments; it stops for good when the disk is full.
DISK_BYTES_MIN = _GB
# A day of 100 events/s of 500 bytes.
DISK_BYTES_EASY = 5 * _GB
# All of `hifi up` takes 2.5 GB with 300,000 events in the log, and other programs need some, too.
MEMORY_BYTES_EASY = 4 * _GB


@dataclass(frozen=True, slots=True)
class Copies:
    """The configured number of copies of each record, and other settings of a whole cluster.

    With three copies, two of which must have an event before it counts as stored, one zone may fail
    without a loss or a pause. The number is never guessed from the running brokers.
    """

    replicas: int = 3
    in_sync_min: int = 2
    # When a topic with a retention begins a new segment. Without it, the topic's own setting
    # counts, or Kafka's.
    segment_ms: int | None = None
    # Topic settings that this Kafka does not allow to change, as with some managed ones.
    left_out: frozenset[str] = frozenset()

    def settings_of(self, spec: TopicSpec) -> dict[str, str]:
        """Return the topic settings that Hifi chooses, besides the number of copies."""
        settings = dict(spec.settings)
        if self.segment_ms is not None and "retention.ms" in settings:
            settings["segment.ms"] = str(self.segment_ms)
        return {key: value for key, value in settings.items() if key not in self.left_out}

    def creation_settings_of(self, spec: TopicSpec) -> dict[str, str]:
        """Return the settings for a new topic: those of `settings_of`, and the in-sync minimum."""
        needed = {IN_SYNC_MIN: str(self.in_sync_min)}
        return self.settings_of(spec) | (needed if IN_SYNC_MIN not in self.left_out else {})

    def falls_short(self, state: "TopicState") -> bool:
        """Whether a topic has too few copies, or acknowledges records before enough have them."""
        return state.replicas_min < self.replicas or state.needed < self.in_sync_min


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic's actual settings and copies."""

    name: str
    partition_count: int
    replicas_min: int
    in_sync_min: int
    settings: Mapping[str, str]

    @property
    def needed(self) -> int:
        """The number of replicas that must have a record before it counts as stored."""
        return int(self.settings.get(IN_SYNC_MIN, "1"))


@dataclass(frozen=True, slots=True)
class TopicFinding:
    """The finding about one subject. `mend` says what to do; it is empty if nothing is needed."""

    subject: str
    grade: Grade
    says: str
    mend: str = ""


# The grade and description of a fault in a topic, and how to fix it.
_Wrong: TypeAlias = tuple[Grade, str, str]


def is_safe(findings: Sequence[TopicFinding]) -> bool:
    """Whether no finding is unsafe; notes are allowed."""
    return all(finding.grade != "unsafe" for finding in findings)


def examine_python(version: tuple[int, ...], *, path: str) -> TopicFinding:
    says = f"{'.'.join(map(str, version))} ({path})"
    if version[:2] >= PYTHON_SAFE:
        return TopicFinding("python", "good", says)
    mend = "install Python 3.11 or newer and run `make PYTHON=/path/to/it setup`"
    return TopicFinding("python", "unsafe", f"{says} is too old", mend)


def examine_machine(*, cores: int, memory_bytes: int) -> TopicFinding:
    """Check whether all of `hifi up` fits; in a container, its quota counts."""
    processors = "1 processor" if cores == 1 else f"{cores} processors"
    says = f"{processors}, {memory_bytes / _GB:,.1f} GB of memory"
    if memory_bytes >= MEMORY_BYTES_EASY:
        return TopicFinding("machine", "good", says)
    mend = "give this machine or container more memory, or lower the heaps (`hifi up --help`)"
    return TopicFinding("machine", "note", f"{says}: `hifi up` may need 3 GB", mend)


def examine_jars(jar_set: str, *, total: int, missing_bytes: Sequence[int]) -> TopicFinding:
    """Report missing jars as a note: the next start fetches them."""
    subject = f"{jar_set} jars"
    if not missing_bytes:
        says = f"{total} of {total}, each with the digest in the lock file"
        return TopicFinding(subject, "good", says)
    says = f"{total - len(missing_bytes)} of {total} are in the cache"
    mend = f"`hifi up` fetches the rest by itself ({sum(missing_bytes) / 1e6:.0f} MB)"
    return TopicFinding(subject, "note", says, mend)


def examine_login(mechanism: str | None, *, is_encrypted: bool) -> TopicFinding:
    """Check whether others on the network can read what a login sends; None is no login."""
    subject = "login to kafka"
    sent = {"PLAIN": "password", "OAUTHBEARER": "token"}.get(mechanism or "")
    if sent is None or is_encrypted:
        return TopicFinding(subject, "good", mechanism or "none, or by certificate")
    says = f"{mechanism} without TLS: everybody on the network can read the {sent}"
    return TopicFinding(subject, "note", says, "set HIFI_KAFKA_PROTOCOL to SASL_SSL")


def examine_port(port: int, *, option: str, holder: Holder) -> TopicFinding:
    subject = f"port {port}"
    if holder == "nobody":
        return TopicFinding(subject, "good", f"free for {option}")
    if holder == "hifi":
        return TopicFinding(subject, "good", f"held by Hifi itself, which is up ({option})")
    says = f"needed for {option}, but another program listens there: `hifi up` cannot start"
    mend = f"stop it (`lsof -i :{port}` names it), or choose another port with {option}"
    return TopicFinding(subject, "unsafe", says, mend)


def examine_disk(folder: str, *, free_bytes: int) -> TopicFinding:
    says = f"{free_bytes / _GB:,.1f} GB are free in {folder}"
    mend = "free some space, or choose another folder with --data"
    if free_bytes < DISK_BYTES_MIN:
        return TopicFinding("disk", "unsafe", f"only {says}: Kafka stops when a disk is full", mend)
    if free_bytes < DISK_BYTES_EASY:
        return TopicFinding("disk", "note", f"{says}: enough to try it out", mend)
    return TopicFinding("disk", "good", says)


def examine_cluster(copies: Copies, *, broker_count: int) -> TopicFinding:
    """Check whether the cluster as a whole keeps events when it loses a machine."""
    brokers = f"{broker_count} broker{'' if broker_count == 1 else 's'}"
    if broker_count < copies.replicas:
        says = f"{brokers} answer{'s' if broker_count == 1 else ''}, for {copies.replicas} copies"
        mend = "start those that are down; HIFI_KAFKA_REPLICAS sets the number of copies"
        return TopicFinding("brokers", "unsafe", says, mend)
    if copies.replicas >= _REPLICAS_SAFE:
        return TopicFinding("brokers", "good", brokers)
    times = "once" if copies.replicas == 1 else f"{copies.replicas} times"
    says = f"{brokers}: an event is stored {times}, as set by HIFI_KAFKA_REPLICAS"
    mend = "for more than trying it out, run three brokers in three zones (here: --brokers 3)"
    return TopicFinding("brokers", "note", says, mend)


def examine_elr(level: int | None) -> TopicFinding:
    """Check eligible leader replicas: brokers known to have all events when none is in sync."""
    subject = "eligible leader replicas"
    if level is None:
        return TopicFinding(subject, "note", "these brokers do not say whether they are on")
    if level > 0:
        return TopicFinding(subject, "good", "on: no broker leads that lacks an acknowledged event")
    says = "off: after an unclean stop of all replicas, a broker that lacks events may lead"
    mend = "kafka-features.sh upgrade --feature eligible.leader.replicas.version=1"
    return TopicFinding(subject, "note", says, mend)


def examine_topic(
    spec: TopicSpec, state: TopicState | None, *, copies: Copies
) -> list[TopicFinding]:
    """Return the faults of one topic, or one finding that the topic is good."""
    if state is None:
        return [TopicFinding(spec.name, "unsafe", "does not exist", "create it, or run `hifi up`")]
    wrong = [
        *_examine_settings(copies.settings_of(spec), state),
        *_examine_losses(spec, state),
        *_examine_partitions(spec, state),
        *_examine_copies(state, copies),
    ]
    if not wrong:
        return [TopicFinding(state.name, "good", _in_a_line(state))]
    return [TopicFinding(state.name, grade, says, mend) for grade, says, mend in wrong]


def examine_marks(dead: TopicState, marks: TopicState) -> Iterator[TopicFinding]:
    """Check that redrive marks outlive their dead letters, which could otherwise be sent twice."""
    kept_ms, marked_ms = (int(each.settings.get("retention.ms", "-1")) for each in (dead, marks))
    wanted_ms = kept_ms + int(dead.settings.get("segment.ms", SEGMENT_MS)) + DAY_MS
    if marked_ms != -1 and (kept_ms == -1 or marked_ms < wanted_ms):
        wanted = str(-1 if kept_ms == -1 else wanted_ms)
        says = f"retention.ms is {marked_ms}: {dead.name} keeps letters longer than their marks"
        yield TopicFinding(marks.name, "unsafe", says, _alter(marks.name, "retention.ms", wanted))


def _in_a_line(state: TopicState) -> str:
    settings = state.settings
    words = [
        f"{state.partition_count} Kafka partition{'' if state.partition_count == 1 else 's'}",
        f"RF {state.replicas_min}",
        f"min ISR {state.needed}",
        settings["message.timestamp.type"],
        settings["cleanup.policy"],
    ]
    kept_ms = int(settings.get("retention.ms", "-1"))
    if settings["cleanup.policy"] == "delete":
        words.append("kept forever" if kept_ms == -1 else f"kept {kept_ms / DAY_MS:g} days")
    return ", ".join(words)


def _examine_settings(settings: Mapping[str, str], state: TopicState) -> Iterator[_Wrong]:
    for setting, wanted in settings.items():
        actual = state.settings.get(setting)
        if not _is_enough(setting, actual, wanted):
            says = f"{setting} is {actual or 'not set'} and should be {wanted}"
            yield "unsafe", says, _alter(state.name, setting, wanted)


def _is_enough(setting: str, actual: str | None, wanted: str) -> bool:
    """Whether a setting is sufficient; more time or space than needed is harmless."""
    if actual is None:
        return False
    if setting in _AT_LEAST:
        return int(actual) == -1 or int(actual) >= int(wanted)
    if setting in _AT_MOST:
        return int(actual) <= int(wanted)
    return actual == wanted


def _examine_losses(spec: TopicSpec, state: TopicState) -> Iterator[_Wrong]:
    """Check two unneeded settings that lose acknowledged events."""
    if state.settings.get("unclean.leader.election.enable", "false") != "false":
        says = "unclean.leader.election.enable is true: a broker that lacks events may lead"
        yield "unsafe", says, _alter(state.name, "unclean.leader.election.enable", "false")
    byte_count = state.settings.get("retention.bytes", "-1")
    if "retention.ms" in spec.settings and byte_count != "-1":
        harm = "a busy day deletes events before they are delivered"
        says = f"retention.bytes is {byte_count}: {harm}"
        yield "unsafe", says, _alter(state.name, "retention.bytes", "-1")


def _examine_partitions(spec: TopicSpec, state: TopicState) -> Iterator[_Wrong]:
    """Check the partition count: more is allowed, fewer is slow, one means reading in order."""
    count, planned = state.partition_count, spec.partition_count
    if planned == 1 < count:
        says = f"has {count} Kafka partitions and must have 1 to be read in order"
        yield "unsafe", says, "stop Hifi, delete the topic, and let `hifi up` create it again"
    elif count < planned:
        says = f"has {count} Kafka partitions and was planned with {planned}"
        mend = f"kafka-topics.sh --alter --topic {state.name} --partitions {planned}"
        yield "note", says, f"{mend} (the order of a key's events is not kept across this step)"


def _examine_copies(state: TopicState, copies: Copies) -> Iterator[_Wrong]:
    replicas, needed = state.replicas_min, state.needed
    replicas_wanted, needed_wanted = copies.replicas, copies.in_sync_min
    alter = _alter(state.name, IN_SYNC_MIN, str(needed_wanted))
    in_sync = f"{state.in_sync_min} of {replicas} replicas are in sync"
    start = "start the brokers that are down"
    if replicas < replicas_wanted:
        says = f"has RF {replicas} and should have {replicas_wanted}"
        yield "unsafe", says, "reassign its replicas with kafka-reassign-partitions.sh"
    if needed < needed_wanted:
        yield "unsafe", f"min.insync.replicas is {needed} and should be {needed_wanted}", alter
    if needed > replicas:
        says = f"min.insync.replicas is {needed} with RF {replicas}: nothing can ever be stored"
        yield "unsafe", says, alter
    elif state.in_sync_min < needed:
        says = f"only {in_sync}, but {needed} must be: nothing can be stored now"
        yield "unsafe", says, start
    elif state.in_sync_min < replicas:
        yield "note", in_sync, f"{start}, or wait until they have caught up"


def _alter(topic: str, setting: str, wanted: str) -> str:
    return (
        f"kafka-configs.sh --bootstrap-server HOST:PORT --alter --topic {topic}"
        f" --add-config {setting}={wanted}"
    )
