"""Publishes, every ten seconds, the used share of a group's rating, by which the groups scale.

A gateway publishes its own share. The active observer publishes that of delivery, because it knows
all lanes. It leaves out lanes that wait for their destination, because more machines would not help
(ADR 0065).
Every minute, each machine publishes its disk waits, which processor time does not show.
"""

import re
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from http.client import HTTPException
from itertools import count
from pathlib import Path
from typing import Any

from deploy.aws.machine.boot import aws_of
from deploy.aws.machine.calls import Aws
from deploy.aws.machine.instance import Instance
from shared import metric_names as m
from shared.event.topics import stream_and_name
from shared.proof.overview import StreamVerdict
from shared.scale.policy import load_of

NAMESPACE = "Hifi"
USE, LOAD, LAG = "RatedUse", "LoadPerMachine", "LagSeconds"
DISK_WAIT = "DiskWaitPercent"
EVERY_S = 10.0
# The share of the last minute in which a task waited for a disk (the kernel's pressure figures).
# Published only in every sixth round, because each call to AWS costs money.
_PRESSURE = Path("/proc/pressure/io")
_WAITED = re.compile(r"^some .*avg60=([\d.]+)", re.MULTILINE)
_WAIT_TURNS = 6
_TIMEOUT_S = 5.0
_LINE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
# Verdicts on destinations whose events wait for others, not for us.
NOT_OURS = frozenset(
    verdict.value
    for verdict in (
        StreamVerdict.PAUSED,
        StreamVerdict.RATE_LIMITED,
        StreamVerdict.HELD,
        StreamVerdict.FAILING,
        StreamVerdict.DISABLED,
    )
)


class MetricsPage:
    """The metrics that a process shows."""

    def __init__(self, text: str) -> None:
        self._rows = [
            (name, dict(_LABEL.findall(labels or "")), float(value))
            for name, labels, value in _LINE.findall(text)
        ]

    def of(self, metric: m.Metric, **labels: str) -> Iterator[tuple[Mapping[str, str], float]]:
        for name, row_labels, value in self._rows:
            if name == metric.name and labels.items() <= row_labels.items():
                yield row_labels, value

    def sum_of(self, metric: m.Metric, **labels: str) -> float:
        return sum(value for _, value in self.of(metric, **labels))


def delivery_load(page: MetricsPage, *, rating: float) -> tuple[float, float] | None:
    """Return the load in machines, and the largest lag; None if this observer is not active."""
    if not page.sum_of(m.OBSERVE_LEASE_UP):
        return None
    not_ours = {
        labels["destination"]
        for labels, value in page.of(m.OBSERVE_VERDICT)
        if value and labels["verdict"] in NOT_OURS
    }
    rates = {labels["stream"]: value for labels, value in page.of(m.OBSERVE_EVENTS_PER_SECOND)}
    arrivals = backlog = 0.0
    for where, waiting in page.of(m.OBSERVE_BACKLOG_EVENTS):
        destination = where["destination"]
        if destination not in not_ours:
            arrivals += rates.get(stream_and_name(destination)[0], 0.0)
            # Events that wait for a retry belong to the tiers until they are due.
            backlog += waiting - page.sum_of(m.OBSERVE_WAITING_EVENTS, destination=destination)
    end_to_end = {"stage": "end to end", "since": "accepted", "percentile": "95"}
    lags = [
        value
        for labels, value in page.of(m.OBSERVE_LAG_SECONDS, **end_to_end)
        if labels["destination"] not in not_ours
    ]
    return load_of(arrivals, max(backlog, 0.0), rating=rating), max(lags, default=0.0)


class GatewayUse:
    """The used share of a gateway machine's rating, from one round to the next."""

    def __init__(self, rating: float) -> None:
        self._rating = rating
        self._before: tuple[float, float] | None = None

    def seen(self, pages: Sequence[MetricsPage], at_s: float) -> float | None:
        """Return the use since the last round; None at first and after a worker's restart."""
        total = sum(page.sum_of(m.GATEWAY_EVENTS) for page in pages)
        before, self._before = self._before, (at_s, total)
        if before is None or total < before[1]:
            return None
        return (total - before[1]) / (at_s - before[0]) / self._rating


def disk_wait(pressure: Path = _PRESSURE) -> dict[str, float]:
    """Return the wait in percent; empty if the kernel does not report it."""
    try:
        match = _WAITED.search(pressure.read_text())
    except OSError:
        return {}
    return {DISK_WAIT: float(match[1])} if match else {}


def publish(instance: Instance, *, every_s: float = EVERY_S) -> None:
    """Publish until the process ends; log a failure and retry in the next round."""
    config = instance.config
    load, aws = config["load"], aws_of(instance, config)
    use = GatewayUse(load["rating"])
    for turn in count():
        began_s = time.monotonic()
        try:
            _put(aws, config["group"], {} if turn % _WAIT_TURNS else disk_wait())
            pages = [MetricsPage(text) for text in map(_page, load["pages"])]
            if load["what"] == "gateway":
                value = use.seen(pages, began_s)
                _put(aws, load["group"], {} if value is None else {USE: value})
            elif load["what"] == "delivery":
                _put(aws, load["group"], _of_delivery(aws, load, pages[0]))
        except (OSError, HTTPException) as error:
            sys.stderr.write(f"hifi-load: {error}\n")
            sys.stderr.flush()
        time.sleep(max(0.0, began_s + every_s - time.monotonic()))


def _put(aws: Aws, group: str, figures: Mapping[str, float]) -> None:
    if figures:
        aws.query("cloudwatch", "PutMetricData", **_form(group, figures))


def _of_delivery(aws: Aws, told: Mapping[str, Any], page: MetricsPage) -> dict[str, float]:
    known = delivery_load(page, rating=told["rating"])
    if known is None:
        return {}
    load, lag_s = known
    group = {"AutoScalingGroupNames.member.1": told["group"]}
    answer = aws.query("autoscaling", "DescribeAutoScalingGroups", **group)
    machines = len(re.findall(r"<LifecycleState>InService</LifecycleState>", answer))
    return {LOAD: load / max(1, machines), LAG: lag_s}


def _form(group: str, figures: Mapping[str, float]) -> dict[str, str | float]:
    form: dict[str, str | float] = {"Namespace": NAMESPACE}
    for number, (name, value) in enumerate(figures.items(), start=1):
        member = f"MetricData.member.{number}"
        form |= {
            f"{member}.MetricName": name,
            f"{member}.Value": value,
            f"{member}.StorageResolution": 1,
            f"{member}.Dimensions.member.1.Name": "Group",
            f"{member}.Dimensions.member.1.Value": group,
        }
    return form


def _page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - loopback, ours
        text: str = answer.read().decode()
    return text
