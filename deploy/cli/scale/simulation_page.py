"""Draws a simulated day, policy by policy, as one self-contained HTML page."""

from collections.abc import Mapping, Sequence
from html import escape

from shared.scale.fleet import FleetRun

# A day is drawn with this many points: one for every one or two pixels.
_POINTS = 720
_WIDTH, _HEIGHT = 720, 120
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 24, 8, 20
_HOUR_S = 3_600
# Possible distances between labelled hours, and the most labels that do not overlap.
_TICKS_H, _TICKS_MAX = (1, 3, 6, 12, 24), 9

_PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Hifi: a simulated day</title>
<style>
:root {{ color-scheme: light dark; --in: #2563eb; --able: #16a34a; --bad: #dc2626; --grid: #8884; }}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto }}
h1 {{ font-size: 1.4rem }} h2 {{ font-size: 1.1rem; margin: 2rem 0 0 }}
table {{ border-collapse: collapse }} td, th {{ padding: .2rem .9rem .2rem 0; text-align: right }}
th {{ font-weight: 600; border-bottom: 1px solid var(--grid) }}
td:first-child, th:first-child {{ text-align: left }}
figure {{ margin: .6rem 0 }} figcaption {{ font-size: .85rem }}
svg {{ width: 100%; height: auto; display: block }}
svg text {{ font-size: 11px; fill: currentColor }}
.in {{ stroke: var(--in) }} .able {{ stroke: var(--able) }} .bad {{ stroke: var(--bad) }}
path {{ fill: none; stroke-width: 1.3 }} line {{ stroke: var(--grid) }}
b.in {{ color: var(--in) }} b.able {{ color: var(--able) }} b.bad {{ color: var(--bad) }}
</style>
<h1>A simulated day</h1>
<p>{said}</p>
<table>
<tr><th>policy<th>late<th>worst age<th>mean wait<th>machine hours<th>most<th>steps<th>waiting</tr>
{rows}
</table>
{plots}
</html>
"""

_ROW = (
    "<tr><td><code>{policy}</code><td>{late:.2%}<td>{age:,} s<td>{wait:,.2f} s<td>{hours:,.0f}"
    "<td>{most}<td>{steps}<td>{waiting:,}</tr>"
)


def simulation_page(said: str, runs: Mapping[str, FleetRun]) -> str:
    """Return the page of a day, with each policy's run; plots of a kind share their scale."""
    flow_max = max(max([*run.arrivals, *run.capacity], default=0) for run in runs.values())
    age_max = max(run.worst_age_s for run in runs.values())
    count_max = max(max(run.ready, default=0) for run in runs.values())
    plots = []
    for policy, run in runs.items():
        plots.append(f"<h2><code>{escape(policy)}</code></h2>")
        flows = [("in", run.arrivals), ("able", run.capacity)]
        words = '<b class="in">arriving events/s</b>, and <b class="able">possible events/s</b>'
        plots.append(_figure(words, flows, flow_max))
        plots.append(
            _figure('<b class="able">machines at work</b>', [("able", run.ready)], count_max)
        )
        oldest = '<b class="bad">age of the oldest event</b>, s'
        plots.append(_figure(oldest, [("bad", run.age_s)], age_max))
    rows = [
        _ROW.format(
            policy=escape(policy),
            late=run.late_share,
            age=run.worst_age_s,
            wait=run.mean_wait_s,
            hours=run.instance_hours,
            most=max(run.ready, default=0),
            steps=run.steps,
            waiting=run.waiting + run.held,
        )
        for policy, run in runs.items()
    ]
    return _PAGE.format(said=escape(said), rows="\n".join(rows), plots="\n".join(plots))


def _figure(words: str, lines: Sequence[tuple[str, Sequence[int]]], most: int) -> str:
    length_s = len(lines[0][1])
    height = _TOP + _HEIGHT + _BOTTOM
    parts = [
        f'<svg viewBox="0 0 {_LEFT + _WIDTH + _RIGHT} {height}" role="img">',
        f'<text x="{_LEFT - 6}" y="{_TOP + 9}" text-anchor="end">{most:,}</text>',
        f'<text x="{_LEFT - 6}" y="{_TOP + _HEIGHT}" text-anchor="end">0</text>',
    ]
    every_h = next((h for h in _TICKS_H if length_s / _HOUR_S / h <= _TICKS_MAX), _TICKS_H[-1])
    for hour in range(0, int(length_s / _HOUR_S) + 1, every_h):
        x = _LEFT + _WIDTH * hour * _HOUR_S / max(length_s, 1)
        parts += [
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_TOP + _HEIGHT}"/>',
            f'<text x="{x:.1f}" y="{height - 6}" text-anchor="middle">{hour} h</text>',
        ]
    parts += [f'<path class="{name}" d="{_path(values, most)}"/>' for name, values in lines]
    return f"<figure><figcaption>{words}</figcaption>{''.join(parts)}</svg></figure>"


def _path(values: Sequence[int], most: int) -> str:
    """Return a path through the maximum of each stretch, so that a peak of a second is visible."""
    stretch = max(1, -(-len(values) // _POINTS))
    points = []
    for first in range(0, len(values), stretch):
        x = _LEFT + _WIDTH * first / len(values)
        y = _TOP + _HEIGHT * (1 - max(values[first : first + stretch]) / max(most, 1))
        points.append(f"{x:.1f} {y:.1f}")
    return "M" + " L".join(points) if points else ""
