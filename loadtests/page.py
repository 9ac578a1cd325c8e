"""Adds a tab to Locust's page: offered and answered, percentiles from due, lateness, verdict."""

import json
from collections.abc import Callable
from typing import Any

from flask import Response, request

_KEY = "open-loop"
_TAB = {"title": "Open loop", "key": _KEY}
_TABLE = {
    "key": _KEY,
    "structure": [{"key": "what", "title": "What"}, {"key": "found", "title": "Found"}],
}
_SHOWN = ("p50", "p90", "p99", "p99.9", "p100")


def add_tab(web_ui: Any, found: Callable[[], dict[str, Any]]) -> None:
    """Add the tab, whose figures come with those that Locust's page fetches every few seconds."""
    web_ui.template_args["extended_tabs"] = [_TAB]
    web_ui.template_args["extended_tables"] = [_TABLE]
    web_ui.template_args["extended_csv_files"] = [
        {"href": "/open-loop.json", "title": "Download the step as JSON (open loop)"},
    ]

    def with_ours(response: Response) -> Response:
        if request.path.endswith("/stats/requests") and response.is_json:
            shown = {
                **(response.json or {}),
                "extended_stats": [{"key": _KEY, "data": rows(found())}],
            }
            response.set_data(json.dumps(shown))
        return response

    web_ui.app.after_request(with_ours)
    web_ui.app.add_url_rule(
        "/open-loop.json",
        view_func=lambda: Response(json.dumps(found()), mimetype="application/json"),
    )


def rows(found: dict[str, Any]) -> list[dict[str, str]]:
    """Return the rows of the tab, during the step and after it."""
    is_over = found["verdict"] not in {"running", "not begun"}
    last = found["seconds"][-2] if len(found["seconds"]) > 1 else [0, 0, 0, 0]
    late = found["late_ms"]
    shown = {
        "Verdict": " - ".join([found["verdict"], *found["reasons"]]),
        "Offered": f"{found['offered']:,} of {found['planned']:,.0f} requests",
        "Succeeded": f"{found['sent'] - found['failed']:,} requests",
        "Offered / succeeded in the last second": f"{last[1]:,} / {last[2]:,} requests",
        "Failed / not sent for lack of room": f"{found['failed']:,} / {found['unsent']:,}",
        "Events acknowledged": f"{found['acked_events']:,}"
        + (f" ({found['acked_per_s']:,.0f} a second)" if is_over else ""),
        "Time from due": percentiles(found["due_ms"]),
        "Time from sending": percentiles(found["service_ms"]),
        "The generator was late by": f"p50 {late['p50']:.2f}, p99 {late['p99']:.2f} ms",
        "Busiest process of the generator": f"{found['cpu_share']:.0%} of a core"
        if is_over
        else "known at the end",
    }
    return [{"what": what, "found": text} for what, text in shown.items()]


def percentiles(table: dict[str, float]) -> str:
    text = ", ".join(f"{name} {table[name]:,.1f}" for name in _SHOWN)
    return text.replace("p100", "longest") + " ms"
