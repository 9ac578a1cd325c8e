"""`hifi doctor`: checks the machine and Kafka, and reports unsafe settings and their remedies.

This module decides what to check; shared/event/topic_safety.py decides what the results mean.
"""

import asyncio
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from deploy.cli import options
from deploy.cli.printing import harmless, out, print_json
from deploy.cli.spread import examine_streams
from deploy.local.kafka_lock import KafkaLock
from deploy.local.ports import is_free
from deploy.local.services import services_of
from deploy.local.stack_settings import StackSettings
from shared.config.pipeline import Pipeline
from shared.config.pipeline_state import PipelineState, PipelineStates, with_state
from shared.config.steps.window import KEYS_KEPT_MAX, WINDOWS_KEPT_MAX
from shared.event.rights import OPERATOR
from shared.event.topic_safety import (
    Copies,
    Holder,
    TopicFinding,
    examine_cluster,
    examine_disk,
    examine_elr,
    examine_jars,
    examine_login,
    examine_machine,
    examine_marks,
    examine_port,
    examine_python,
    examine_topic,
    is_safe,
)
from shared.event.topics import CONFIG, DEAD, PIPELINES, REDRIVEN, fixed_specs, stream_spec
from shared.retry.schedule import RetrySchedule
from shared.runtime.defaults import HOST
from shared.runtime.java.jars import missing_jars, read_lock
from shared.runtime.java.java import find_java
from shared.runtime.kafka.config_topic import read_config
from shared.runtime.kafka.connection import access_to, learn_access
from shared.runtime.kafka.reader import open_reader
from shared.runtime.kafka.settings import kafka_access
from shared.runtime.kafka.topic_admin import topic_admin
from shared.runtime.machine.machine_size import core_count, memory_bytes
from shared.runtime.machine.user import user_name
from shared.runtime.settings import TopicSettings, read_settings
from shared.runtime.setup_error import OperatorError, SetupError

_ELR = "eligible.leader.replicas.version"
_STYLES = {"good": "green", "note": "yellow", "unsafe": "bold red"}
# A pipeline whose state is above this share of its limit needs attention.
_NEARLY = 0.8
_GRADE_WIDTH = max(map(len, _STYLES)) + 2


@options.made_of(settings=options.stack_settings(*options.PLACES))
def doctor(
    settings: StackSettings,
    kafka: Annotated[
        str | None,
        typer.Option(
            envvar="HIFI_KAFKA",
            metavar="HOST:PORT",
            help="Check this Kafka, which must answer. Default: that of `hifi up`, if it runs.",
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Find unsafe settings: Java, jars, ports, disk, Kafka and its topics; say how to fix them.

    Exit code 0 when nothing is unsafe, else 1.

        hifi doctor

        hifi doctor --kafka broker-1:9092,broker-2:9092 --json
    """
    topics = read_settings(TopicSettings, program="hifi doctor")
    findings = [*_machine(settings)]
    if kafka is None:
        findings += _ports_and_kafka(settings, topics)
    else:
        # This Kafka is not the one of `hifi up`, so this machine's ports do not matter.
        findings += _kafka(kafka, topics.copies, topics, subject=f"kafka {kafka}")
    if as_json:
        print_json(
            {"safe": is_safe(findings), "findings": [asdict(finding) for finding in findings]}
        )
    else:
        _print(findings)
    raise typer.Exit(0 if is_safe(findings) else 1)


def _machine(settings: StackSettings) -> Iterator[TopicFinding]:
    yield examine_python(sys.version_info[:3], path=sys.executable)
    try:
        java = find_java()
        instead = "".join(f"; not used: {each}" for each in java.passed_over)
        yield TopicFinding("java", "good", f"{java.version} ({java.path}){instead}")
    except SetupError as error:
        yield _finding("java", error, separator=": ")
    yield _user()
    yield examine_machine(cores=core_count(), memory_bytes=memory_bytes())
    lock = read_lock()
    for jar_set in ("broker", *kafka_access().spark_jar_sets):
        locked, folder = lock[jar_set], settings.cache / "jars" / jar_set
        try:
            missing = missing_jars(locked, folder=folder)
        except SetupError as error:
            yield _finding(f"{jar_set} jars", error, separator="; ")
        else:
            sizes = [jar.size_bytes for jar in missing]
            yield examine_jars(jar_set, total=len(locked), missing_bytes=sizes)
    yield _disk(settings.folder)


def _user() -> TopicFinding:
    try:
        return TopicFinding("user", "good", user_name())
    except SetupError as error:
        return _finding("user", error, separator=": ")


def _disk(folder: Path) -> TopicFinding:
    """Check the disk of the folder, or of its nearest parent if it does not exist yet."""
    there = next(place for place in (folder, *folder.parents) if place.is_dir())
    if not os.access(there, os.W_OK):
        mend = "choose another folder with --data, or change its owner"
        return TopicFinding("disk", "unsafe", f"{there} cannot be written to", mend)
    return examine_disk(str(folder), free_bytes=shutil.disk_usage(there).free)


def _ports_and_kafka(settings: StackSettings, topics: TopicSettings) -> Iterator[TopicFinding]:
    holders: dict[int, Holder] = {
        port: "hifi"
        for service in services_of(settings)
        if service.is_ready()
        for port in service.ports
    }
    address = ",".join(f"{HOST}:{port}" for port in settings.kafka_ports)
    if any(not is_free(port) for port in settings.kafka_ports):
        lock = KafkaLock(settings.folder / "kafka" / "lock")
        if lock.is_made:
            # Anyone who may read the data folder is the operator of this Kafka.
            learn_access([address], lock.access(OPERATOR))
        copies = replace(settings.copies, segment_ms=topics.kafka_segment_ms)
        of_kafka = _kafka(address, copies, topics, subject=f"kafka {address}")
        if of_kafka[0].grade == "good":
            holders |= dict.fromkeys(settings.kafka_ports, "hifi")
    else:
        mend = "`hifi up` starts one"
        of_kafka = [TopicFinding("kafka", "note", f"none runs at {address}", mend)]
    for option, port in settings.ports():
        holder = "nobody" if is_free(port) else holders.get(port, "somebody")
        yield examine_port(port, option=option, holder=holder)
    yield from of_kafka


async def pipeline_states(address: str) -> PipelineStates:
    """Return the verdicts on pipelines, by name."""
    known: PipelineStates = {}
    async with open_reader(address) as reader:
        async for record in (await reader.since([PIPELINES], 0)).records():
            if record.key is not None:
                known = with_state(known, record.key, record.value)
    return known


def examine_pipeline(pipeline: Pipeline, state: PipelineState | None) -> TopicFinding:
    """Return a finding: whether the pipeline's document runs, and how full its state is."""
    subject = f"pipeline {pipeline.name}"
    if state is None or state.fingerprint != pipeline.fingerprint:
        mend = "start the pipelines process if none runs: it judges the document within seconds"
        return TopicFinding(subject, "note", "its document is not judged yet", mend)
    if state.standing == "refused":
        where = f" at {state.pointer}" if state.pointer else ""
        says = harmless(f"refused{where}: {state.why}")
        return TopicFinding(subject, "note", says, "put a correct document, or delete it")
    most = WINDOWS_KEPT_MAX if pipeline.window else KEYS_KEPT_MAX
    if state.kept is not None and state.kept > _NEARLY * most:
        says = f"keeps {state.kept:,} of at most {most:,} windows or keys; more become dead letters"
        mend = "count by fewer fields, in shorter windows, or in several pipelines"
        return TopicFinding(subject, "note", says, mend)
    kept = "" if state.kept is None else f", and keeps {state.kept:,} windows or keys"
    return TopicFinding(subject, "good", state.standing + kept)


def _kafka(
    address: str, copies: Copies, topics: TopicSettings, *, subject: str
) -> list[TopicFinding]:
    """Return whether Kafka answers, and findings about its settings, its topics and our login."""
    access = access_to(address)
    login = examine_login(access.login, is_encrypted=access.is_encrypted)
    try:
        return [*asyncio.run(_ask(address, copies, topics, subject=subject)), login]
    except OperatorError as error:
        return [_finding(subject, error, separator=": "), login]


async def _ask(
    address: str, copies: Copies, topics: TopicSettings, *, subject: str
) -> list[TopicFinding]:
    tiers = [tier.name for tier in RetrySchedule().tiers]
    specs = [*fixed_specs(tiers, topics.partition_counts)]
    beside: list[TopicFinding] = []
    async with topic_admin(address) as admin:
        broker_count = await admin.broker_count()
        if CONFIG in (names := await admin.names()):
            configuration = await read_config(address)
            specs += [
                stream_spec(stream.name, partition_count=stream.partition_count)
                for stream in configuration.streams.values()
            ]
            beside = await examine_streams(address, configuration)
            if configuration.pipelines and PIPELINES in names:
                judged = await pipeline_states(address)
                beside += [
                    examine_pipeline(each, judged.get(each.title))
                    for each in configuration.pipelines.values()
                ]
        states = await admin.states(spec.name for spec in specs)
        features = await admin.features()
    return [
        TopicFinding(subject, "good", "answers"),
        examine_cluster(copies, broker_count=broker_count),
        examine_elr(None if features is None else features.get(_ELR, 0)),
        *(
            finding
            for spec in specs
            for finding in examine_topic(spec, states.get(spec.name), copies=copies)
        ),
        *(examine_marks(states[DEAD], states[REDRIVEN]) if {DEAD, REDRIVEN} <= {*states} else ()),
        *beside,
    ]


def _finding(subject: str, error: OperatorError, *, separator: str) -> TopicFinding:
    """Split the error's text at its last separator, into what is wrong and what to do."""
    says, _, mend = str(error).rpartition(separator)
    return TopicFinding(subject, "unsafe", says, mend.removesuffix("."))


def _print(findings: list[TopicFinding]) -> None:
    width = max(len(finding.subject) for finding in findings) + 2
    for finding in findings:
        line = Text(finding.grade.ljust(_GRADE_WIDTH), style=_STYLES[finding.grade])
        line.append(finding.subject.ljust(width), style="not bold default")
        line.append(finding.says, style="not bold default")
        out.print(line)
        if finding.mend:
            mend = Text(" " * (_GRADE_WIDTH + width) + "mend: ", style="dim")
            out.print(mend.append(finding.mend))
    grades = [finding.grade for finding in findings]
    out.print()
    unsafe, notes = grades.count("unsafe"), grades.count("note")
    out.print(
        f"{len(findings)} checked: {unsafe or 'none'} unsafe,"
        f" {notes} note{'' if notes == 1 else 's'}.",
        style=_STYLES["unsafe" if unsafe else "good"],
    )
