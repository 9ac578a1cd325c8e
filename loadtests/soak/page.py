"""Writes the page of a soak: offered events and their outcomes, lag, memory, faults."""

from collections import defaultdict
from collections.abc import Sequence
from html import escape
from typing import Any

from loadtests.report.parts import cards, careful, facts, page_of, section, table
from loadtests.report.plots import Axis, Guide, Line, Point, chart
from loadtests.soak.memory import GROWTH_MAX, SETTLED_S

# A line of this width cannot show more points.
_POINTS_MAX = 240
# The class of a line, which gives its colour: the first word here that its name starts with.
_LOOKS = ("gateway", "delivery", "retrier", "observe", "broker", "sample")


def soak_page(found: dict[str, Any]) -> str:
    course, generator = found["course"], found["generator"]
    done = [fault for fault in found["faults"] if fault["proof"]]
    title = f"Soak: {_minutes(course['duration_s'])}, {len(done)} faults"
    text = (
        f"{course['rate']:,.0f} events/s on average, in requests of {course['batch']},"
        f" {course['event_bytes']:,} bytes each; {course['latency']}; days of"
        f" {course['plan'].split(':')[-1]}; seed {course['seed']}; {generator['date'][:10]}, commit"
        f" {generator['commit']}"
    )
    main = "".join(
        [
            f'<p class="over">{generator["cores"]} cores of {escape(generator["processor"])}</p>',
            f"<h1>{escape(title)}</h1><p>{escape(text)}</p>",
            _cards(found, done),
            careful(found["wrong"], title="Faults found"),
            _rates(found, done),
            _lag(found, done),
            _waiting(found, done),
            _memory(found, done),
            _weights(found["memory"]),
            _faults(found["faults"]),
            _where(found),
        ]
    )
    return page_of(title, main)


def _cards(found: dict[str, Any], done: Sequence[dict[str, Any]]) -> str:
    step, ends = found["step"], found["ends"]
    batch, memory = found["course"]["batch"], found["memory"]
    grown = [one["growth"] for one in memory if one["growth"] is not None]
    survived = sum(fault["well_after_s"] is not None for fault in done)
    ages = ends["age_ms"]
    shown = [
        ("unaccounted", f"{ends['unaccounted']:,}", f"of {ends['acked']:,} acknowledged"),
        ("offered", f"{step['offered'] * batch:,}", f"events; {step['unsent']:,} not sent"),
        ("acknowledged", f"{ends['acked']:,}", f"{step['failed']:,} requests failed"),
        (
            "delivered",
            f"{ends['delivered']:,}",
            f"{ends['waiting']:,} waiting, {ends['dead']:,} dead, {ends['repeats']:,} twice",
        ),
        ("faults survived", f"{survived} of {len(done)}", f"{len(found['deaths'])} other deaths"),
        (
            "lag, p50",
            f"{ages.get('p50', 0):,.0f} ms",
            f"p99 {ages.get('p99', 0):,.0f} ms, from due time to destination, faults included",
        ),
        (
            "memory grew by",
            f"{max(grown):+.1%}" if grown else "unknown",
            f"at most, after {SETTLED_S / 60:.0f} minutes; {GROWTH_MAX:.0%} is allowed",
        ),
    ]
    return cards(shown, is_bad=bool(ends["unaccounted"]))


def _rates(found: dict[str, Any], done: Sequence[dict[str, Any]]) -> str:
    batch = found["course"]["batch"]
    # The last second is incomplete.
    seconds = found["step"]["seconds"][:-1]
    last = seconds[-1][0] if seconds else 0
    lines = [
        Line("offered", _thinned([(row[0], row[1] * batch) for row in seconds]), "offered"),
        Line("acknowledged", _thinned([(row[0], row[3]) for row in seconds]), "got"),
        Line(
            "at the destination",
            _thinned(_filled([(s, count) for s, count in found["ends"]["came"] if s <= last])),
            "age",
        ),
    ]
    return _over_time("Offered, acknowledged, delivered", lines, "events/s", found, done)


def _lag(found: dict[str, Any], done: Sequence[dict[str, Any]]) -> str:
    rows = found["lag"]
    lines = [
        Line("p50", _thinned([(row[0], max(1.0, row[1])) for row in rows]), "got"),
        Line("p99", _thinned([(row[0], max(1.0, row[2])) for row in rows], most=True), "service"),
    ]
    return _over_time("Lag, by events' due time", lines, "ms", found, done, is_log=True)


def _waiting(found: dict[str, Any], done: Sequence[dict[str, Any]]) -> str:
    acked = {row[0]: row[3] for row in found["step"]["seconds"]}
    came = dict(found["ends"]["came"])
    waiting, points = 0, []
    for second in range(max([*acked, *came], default=0) + 1):
        waiting += acked.get(second, 0) - came.get(second, 0)
        points.append((float(second), float(max(0, waiting))))
    lines = [Line("acknowledged, not yet delivered", _thinned(points, most=True), "age")]
    return _over_time("Backlog", lines, "events", found, done)


def _memory(found: dict[str, Any], done: Sequence[dict[str, Any]]) -> str:
    parts = []
    is_java = {
        one["pid"]: one["name"].endswith("Java") or one["name"].startswith("broker")
        for one in found["memory"]
    }
    for words, wanted in (("Java", True), ("Python", False)):
        lines, named = [], set[str]()
        for one in found["memory"]:
            if is_java[one["pid"]] is not wanted or len(one["points"]) < 2:  # noqa: PLR2004 - a line
                continue
            look = next((look for look in _LOOKS if one["name"].startswith(look)), "offered")
            label = "" if one["name"] in named else one["name"]
            named.add(one["name"])
            points = _thinned([(at_s, mb) for at_s, mb in one["points"]], most=True)
            lines.append(Line(label, points, look, is_dotted="workers" in one["name"]))
        title = f"Memory of each process, {words}"
        parts.append(_over_time(title, lines, "MB resident", found, done))
    return "".join(parts)


def _over_time(
    title: str,
    lines: Sequence[Line],
    unit: str,
    found: dict[str, Any],
    done: Sequence[dict[str, Any]],
    *,
    is_log: bool = False,
) -> str:
    if not any(line.points for line in lines):
        return ""
    drawn = chart(
        title,
        lines,
        x=Axis("seconds", low=0.0, high=max(found["course"]["duration_s"], _last(lines))),
        y=Axis(unit, "log") if is_log else Axis(unit, low=0.0),
        guides=[
            Guide(str(number), fault["at_s"], "x", "fault") for number, fault in enumerate(done, 1)
        ],
    )
    return section(title, "", drawn)


def _last(lines: Sequence[Line]) -> float:
    return max((line.points[-1][0] for line in lines if line.points), default=0.0)


def _filled(points: Sequence[Point]) -> list[Point]:
    """Return the points with a 0 for each second that has none."""
    there = dict(points)
    return [(float(at), there.get(at, 0)) for at in range(round(max(there, default=-1)) + 1)]


def _thinned(points: Sequence[Point], *, most: bool = False) -> list[Point]:
    """Return fewer points, each the mean of its group, or with `most` the group's maximum."""
    size = -(-len(points) // _POINTS_MAX) or 1
    thin = []
    for first in range(0, len(points), size):
        some = [value for _, value in points[first : first + size]]
        thin.append((points[first][0], max(some) if most else sum(some) / len(some)))
    return thin


def _weights(memory: Sequence[dict[str, Any]]) -> str:
    rows = []
    for one in memory:
        if one["growth"] is None:
            continue
        word = "has grown" if one["has_grown"] else "steady"
        cells = [f"{one['name']} ({one['pid']})", word, f"{one['lived_s'] / 60:.1f}"]
        cells += [f"{one['first_mb']:,.0f}", f"{one['later_mb']:,.0f}", f"{one['growth']:+.1%}"]
        rows.append(_row(cells, "broken" if one["has_grown"] else "met"))
    young: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for one in memory:
        if one["growth"] is None:
            young[one["name"]].append(one)
    for name, some in young.items():
        lived_s = max(one["lived_s"] for one in some)
        most_mb = max(one["first_mb"] for one in some)
        cells = [f"{name}, {len(some)} of them", "too young", f"{lived_s / 60:.1f}"]
        rows.append(_row([*cells, f"{most_mb:,.0f}", "", ""], ""))
    text = (
        f"The maximum in the first {SETTLED_S / 60:.0f} minutes, and after them. Processes that"
        " ended earlier are too young to judge: the table has their longest run and highest memory."
    )
    heads = ["process", "", "minutes", "first MB", "later MB", "growth"]
    return section("Memory of each process", text, table(heads, rows))


def _row(cells: Sequence[str], look: str) -> str:
    row = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    return f'<tr class="{look} named">{row}</tr>'


def _faults(faults: Sequence[dict[str, Any]]) -> str:
    rows, number = [], 0
    for fault in faults:
        is_done, well = bool(fault["proof"]), fault["well_after_s"]
        number += is_done
        cells = [
            str(number) if is_done else "",
            fault["kind"],
            f"{fault['at_s']:,.0f}",
            f"{fault['for_s']:g}",
            "not survived" if is_done and well is None else "" if well is None else f"{well:.1f}",
            fault["proof"] or "not possible",
        ]
        rows.append(_row(cells, ""))
    heads = ["", "fault", "at s", "for s", "well after s", "proof"]
    text = "With their numbers in the plots. Well: all processes run and report they are ready."
    return section("Every fault", text, table(heads, rows))


def _where(found: dict[str, Any]) -> str:
    generator, step = found["generator"], found["step"]
    rows = {
        "generator, Hifi, Kafka, destination": "one machine",
        "processor": f"{generator['processor']}, {generator['cores']} cores",
        "memory": f"{generator['memory_gb']:g} GB",
        "kernel": generator["kernel"],
        "Python": generator["python"],
        "load average before": f"{generator['load_average']:g}",
        "taken by the host": f"{generator['cores_stolen']:g} cores, on average",
        "the generator was late by": f"p50 {step['late_ms']['p50']:.1f},"
        f" p99 {step['late_ms']['p99']:.1f} ms",
        "answers": ", ".join(f"{count:,} x {what}" for what, count in step["answers"].items()),
        "drained for": f"{found['ends']['drained_s']:g} s after the last request",
        "date": generator["date"],
        "commit": generator["commit"],
    }
    return facts("Where, and how", rows)


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:g} minutes" if seconds != 60 else "a minute"  # noqa: PLR2004 - one
