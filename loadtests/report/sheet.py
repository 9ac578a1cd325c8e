"""Writes the page of a rating: its results, its method and its caveats."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from loadtests.report.parts import cards, careful, facts, page_of, section, table
from loadtests.report.plots import Axis, Guide, Line, Scale, chart
from loadtests.usl import FitError, fit_between
from shared.scale.throughput import BEYOND_MAX

_WORDS = {
    "gateway": "Gateway: POST to acknowledgement",
    "delivery": "Delivery: the rate that destinations keep up with",
    "whole": "The whole way: POST to destination",
}
_PROMISES = {
    "p99_ms": "99 of 100 requests answered within {:g} ms of when they were due",
    "error_share": "at most {:.2%} of requests failed",
    "age_p95_ms": "95 of 100 events at the destination within {:g} ms of when they were due",
    "backlog_share": "backlog growth of at most {:.1%} of the rate",
}
_WORD_OF_STEP = {
    "met": "met",
    "broken": "broken",
    "invalid": "invalid: the generator was the limit",
}
# The figure that decides a rating: its name, its axis, its objective and the objective's unit.
_DECIDES: dict[str, tuple[str, Scale, str, str]] = {
    "gateway": ("p99 from due time to answer, ms", "log", "p99_ms", "ms"),
    "whole": ("p95 from due time to destination, ms", "log", "age_p95_ms", "ms"),
    "delivery": ("growth of the backlog, % of the rate", "linear", "backlog_share", "%"),
}
# Two ratings are comparable if these fields agree; the number of workers may differ.
_SAME = ("what", "batch", "bytes", "slo")


def sheet(rating: dict[str, Any], others: Iterable[dict[str, Any]] = ()) -> str:
    """Return the page. `others`: ratings of the same machine with other numbers of workers."""
    title = f"{_WORDS[rating['what']]}, {_named(rating['machine'])}"
    main = "".join(
        [
            _head(rating),
            _figures(rating),
            careful(rating["caveats"]),
            _load_plot(rating),
            _percentile_plot(rating),
            _time_plot(rating),
            _law_plot(rating, others),
            _step_table(rating["steps"]),
            _machine(rating),
        ]
    )
    return page_of(title, main)


def _head(rating: dict[str, Any]) -> str:
    slo = rating["slo"]
    promises = [words.format(slo[name]) for name, words in _PROMISES.items() if name in slo]
    batch = rating["posted_batch"]
    text = (
        f"{batch:,} event{_s(batch)} in a request, {rating['bytes']:,} bytes each,"
        f" {rating['workers']} gateway worker{_s(rating['workers'])},"
        f" {rating['at'][:10]}, commit {rating['commit']}"
    )
    return (
        f'<p class="over">{escape(_named(rating["machine"]))}</p>'
        f"<h1>{escape(_WORDS[rating['what']])}</h1>"
        f"<p>{escape(text)}</p><p>Promised: {escape('; '.join(promises))}.</p>"
    )


def _figures(rating: dict[str, Any]) -> str:
    step = _shown_step(rating) if rating["rated"] else None
    not_at = rating["not_at"]
    shown = [
        ("rated", f"{rating['rated']:,.0f}", "events/s with every promise kept"),
        (
            "lowest rate that failed",
            f"{not_at:,.0f}" if not_at else "none tried",
            "events/s: the true rating lies below",
        ),
        ("saturated", f"{rating['saturated']:,.0f}", "events/s acknowledged at most"),
    ]
    if step:
        due = step["due_ms"]
        shown.append(("p50 / p99", f"{due['p50']:.1f} / {due['p99']:.1f}", "ms at the rating"))
        if ends := step.get("ends"):
            age = ends["age_ms"]
            shown.append(("p95 at destination", f"{age.get('p95', 0):,.0f}", "ms at the rating"))
            shown.append(
                ("unaccounted", f"{ends['unaccounted']:,}", f"of {ends['acked']:,} acknowledged")
            )
    return cards(shown)


def _load_plot(rating: dict[str, Any]) -> str:
    label, scale, promised, unit = _DECIDES[rating["what"]]
    steps = sorted(rating["steps"], key=lambda step: float(step["events_per_s"]))
    points = [
        (step["verdict"], (step["events_per_s"], value))
        for step in steps
        if (value := _decisive(rating["what"], step)) is not None
    ]
    lines = [Line("", [point for _, point in points], "through")]
    lines += [
        Line(words, chosen, word, is_scattered=True)
        for word, words in _WORD_OF_STEP.items()
        if (chosen := [point for each, point in points if each == word])
    ]
    limit = rating["slo"][promised] * (100 if unit == "%" else 1)
    guides = [Guide(f"promised: {limit:g} {unit}", limit, "y", "slo")]
    if rating["rated"]:
        guides.append(Guide("rated", rating["rated"], "x", "rated"))
    drawn = chart(
        "promised figure over offered load",
        lines,
        x=Axis("offered, events/s", low=0.0),
        y=Axis(label, scale),
        guides=guides,
    )
    return section(
        "The promise at each offered rate",
        "Each dot is a step of the search. The offered rate did not depend on the answers.",
        drawn,
    )


def _decisive(what: str, step: dict[str, Any]) -> float | None:
    """Return the figure of a step that its objective limits."""
    ends = step.get("ends") or {}
    if what == "gateway":
        figure = step["due_ms"]["p99"]
    elif what == "whole":
        figure = ends.get("age_ms", {}).get("p95")
    else:
        figure = ends.get("backlog_share")
    return None if figure is None else float(figure) * (100 if what == "delivery" else 1)


def _percentile_plot(rating: dict[str, Any]) -> str:
    step = _shown_step(rating)
    if step is None or not step["sent"]:
        return ""
    # A percentile with fewer than ten requests beyond it says nothing.
    most = 100 * (1 - 10 / max(11, step["sent"]))
    tables = [
        (step["due_ms"], "answered, from the moment it was due", "due"),
        (step["service_ms"], "answered, from when it was sent, as in a closed loop", "service"),
    ]
    if ends := step.get("ends"):
        tables.append((ends["age_ms"], "at the destination, from the moment it was due", "age"))
    lines = [
        Line(words, _percentiles(table, most), look, is_dotted=look == "service")
        for table, words, look in tables
    ]
    limit = rating["slo"].get("age_p95_ms", rating["slo"]["p99_ms"])
    guides = [Guide(f"promised: {limit:g} ms", limit, "y", "slo")]
    drawn = chart(
        "latency by percentile",
        lines,
        x=Axis("percentile", "nines"),
        y=Axis("latency, ms", "log"),
        guides=guides,
    )
    text = f"The step at {step['events_per_s']:,.0f} events/s: {step['sent']:,} requests."
    return section("Latency by percentile", text, drawn)


def _percentiles(table: dict[str, float], most: float) -> list[tuple[float, float]]:
    rows = ((float(name[1:]), max(0.1, value)) for name, value in table.items())
    return [(percentile, value) for percentile, value in rows if percentile <= most]


def _time_plot(rating: dict[str, Any]) -> str:
    step = _shown_step(rating)
    # Seconds in which the step begins or ends are incomplete.
    seconds = [] if step is None else step["seconds"][1:-2]
    if step is None or len(seconds) < 2:  # noqa: PLR2004 - a line has two ends
        return ""
    batch, first = rating["posted_batch"], seconds[0][0]
    lines = [
        Line(
            "offered",
            [(row[0] - first, row[1] * batch) for row in seconds],
            "offered",
            is_dotted=True,
        ),
        Line("acknowledged", [(row[0] - first, row[3]) for row in seconds], "got"),
    ]
    if ends := step.get("ends"):
        last = seconds[-1][0]
        came = [
            (second - first, count) for second, count in ends["came"] if first <= second <= last
        ]
        lines.append(Line("at the destination", came, "age"))
    drawn = chart(
        "rates over time",
        lines,
        x=Axis("second of the step", low=0.0),
        y=Axis("events/s", low=0.0),
    )
    text = f"The step at {step['events_per_s']:,.0f} events/s."
    return section("Second by second", text, drawn)


def _law_plot(rating: dict[str, Any], others: Iterable[dict[str, Any]]) -> str:
    machine = _named(rating["machine"])
    alike = [
        each
        for each in others
        if "workers" in each
        and _named(each["machine"]) == machine
        and all(each[name] == rating[name] for name in _SAME)
    ]
    points = sorted({each["workers"]: each["rated"] for each in alike if each["rated"]}.items())
    try:
        fitted = fit_between([(float(n), float(rate)) for n, rate in points], _evenly())
    except FitError:
        return ""
    law = fitted.law
    curve = [(count, law.of(count)) for count, _, _ in fitted.throughput]
    drawn = chart(
        "scalability",
        [
            Line("fitted law, with 95 % confidence", curve, "law"),
            Line("rated", [(float(n), rate) for n, rate in points], "met", is_scattered=True),
        ],
        x=Axis("gateway workers", low=0.0),
        y=Axis("events/s", low=0.0),
        guides=[Guide("measured up to here", law.measured_max, "x", "slo")],
        band=fitted.throughput,
    )
    text = (
        f"Universal scalability law: sigma {law.sigma:.3f} ({fitted.sigma[0]:.3f} to"
        f" {fitted.sigma[1]:.3f}), kappa {law.kappa:.5f} ({fitted.kappa[0]:.5f} to"
        f" {fitted.kappa[1]:.5f}). The law is drawn up to {BEYOND_MAX} times the"
        " highest measured rate."
    )
    return section("Scalability", text, drawn)


def _evenly() -> Any:
    """Return a repeatable roll, so that a report looks the same each time it is drawn."""
    state = [0.5]

    def roll() -> float:
        # Multiples of the golden ratio are spread as evenly as possible.
        state[0] = (state[0] + 0.618_033_988_749_895) % 1.0
        return state[0]

    return roll


def _step_table(steps: Sequence[dict[str, Any]]) -> str:
    heads = ["offered/s", "verdict", "acknowledged/s", "p50 ms", "p99 ms", "p99.9 ms"]
    heads += ["late p99 ms", "generator"]
    if any("ends" in step for step in steps):
        heads += ["arrived p95 ms", "unaccounted"]
    rows = []
    for step in steps:
        due, ends = step["due_ms"], step.get("ends")
        cells = [
            f"{step['events_per_s']:,.0f}",
            step["verdict"],
            f"{step['acked_per_s']:,.0f}",
            *(f"{due[name]:,.1f}" for name in ("p50", "p99", "p99.9")),
            f"{step['late_ms']['p99']:,.1f}",
            f"{step['cpu_share']:.0%}",
        ]
        if ends:
            cells += [f"{ends['age_ms'].get('p95', 0):,.0f}", f"{ends['unaccounted']:,}"]
        row = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        rows.append(f'<tr class="{step["verdict"]}">{row}</tr>')
        if step["reasons"]:
            why = escape("; ".join(step["reasons"]))
            rows.append(f'<tr class="why"><td></td><td colspan="{len(heads) - 1}">{why}</td></tr>')
    return section("Every step", "In the order of the search.", table(heads, rows))


def _machine(rating: dict[str, Any]) -> str:
    generator, processes = rating["generator"], rating["generator"]["processes"]
    where = "the rated machine" if rating["shared"] else "another machine"
    rows = {
        "rated": _named(rating["machine"]),
        "generator": f"{where}; {processes} process{'' if processes == 1 else 'es'} of Locust",
        "processor": f"{generator['processor']}, {generator['cores']} cores",
        "memory": f"{generator['memory_gb']:g} GB",
        "kernel": generator["kernel"],
        "Python": generator["python"],
        "load average before": f"{generator['load_average']:g}",
        "taken by the host": f"{generator['cores_stolen']:g} cores, on average",
        "date": rating["at"],
        "commit": rating["commit"],
    }
    return facts("Where", rows)


def _named(machine: Mapping[str, Any]) -> str:
    return str(machine["instance"] or f"{machine['cores']} cores of {machine['cpu']}")


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _shown_step(rating: dict[str, Any]) -> dict[str, Any] | None:
    """Return the last met step nearest to the rating: the one that confirmed it, if any."""
    steps = rating["steps"]
    met = [step for step in steps if step["verdict"] == "met"] or steps[-1:]
    # Reversed, so that the last of equally near steps wins.
    return min(
        reversed(met), key=lambda step: abs(step["events_per_s"] - rating["rated"]), default=None
    )
