"""`hifi status`: which services are up, and the books of every stream and destination."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from deploy.cli import options
from deploy.cli.overview import read_books, verdict_text
from deploy.cli.printing import (
    Cell,
    Form,
    harmless,
    out,
    print_data,
    print_table,
    talk,
    when,
)
from deploy.local.stack_settings import StackSettings
from shared import wording
from shared.glossary import COUNTS
from shared.runtime.setup_error import OperatorError

if TYPE_CHECKING:
    from observe.books_page import BooksPage, BooksRow


@options.made_of(settings=options.stack_settings(*options.HEALTH_PORTS), form=options.form)
def status(
    ctx: typer.Context,
    *,
    settings: StackSettings,
    kafka: options.Kafka = options.KAFKA_DEFAULT,
    console: options.Console = options.CONSOLE_DEFAULT,
    api_key: options.ApiKey = None,
    form: Form | None,
) -> None:
    """Show which services are up, the state of each destination, and every event's outcome.

    acked = delivered + queued + waiting for a retry + dead + unaccounted.

    With --console and without --kafka, the console answers, for the streams your key may see.

        hifi status

        hifi status --kafka broker-1:9092 --json

        hifi status --console https://hifi.example.com:8088
    """
    if options.is_said(ctx, "console") and not options.is_said(ctx, "kafka"):
        _show(form, {}, read_books(console, api_key), "")
        return
    # These read Kafka; a command that asks a console does not wait for the import.
    from deploy.cli import books, commands  # noqa: PLC0415
    from deploy.local.services import services_of  # noqa: PLC0415

    commands.set_up_logs()
    services = {service.name: service.problem() for service in services_of(settings)}
    try:
        page, note = books.read(kafka, settings.observe_metrics_port)
    except OperatorError:
        _show(form, services, None, "", kafka=kafka)
        raise
    _show(form, services, page, note, kafka=kafka)


def _show(
    form: Form | None,
    services: Mapping[str, str | None],
    page: "BooksPage | None",
    note: str,
    *,
    kafka: str = "",
) -> None:
    if form == "name":
        for row in page.rows if page else ():
            named = f"{row.stream}/{row.destination}" if row.destination else row.stream
            out.print(harmless(named))
    elif form in {"json", "yaml"}:
        print_data(form, _as_json(services, page, note))
    else:
        _print(services, page, note, kafka=kafka)
    if page is not None and page.problem:
        talk.print(harmless(page.problem), style="yellow")


def _as_json(services: Mapping[str, str | None], page: "BooksPage | None", note: str) -> Any:
    ups = {name: problem is None for name, problem in services.items()}
    answer = {"kafka": page is not None, "services": ups, "books": []}
    if page is None:
        return answer
    return answer | {
        "as_of_ms": page.at_ms,
        "counted_by": "status" if note else "observe",
        "note": note,
        "audit": page.audit,
        "books": [
            {
                "stream": row.stream,
                "destination": row.destination,
                "removed_at_ms": row.removed_at_ms,
                **asdict(row.balance),
                "verdict": row.verdict.value if row.verdict else None,
                "reason": row.reason,
                "kept": row.kept,
                "kept_bytes": row.kept_bytes,
            }
            for row in page.rows
        ],
        "restored": {stream: asdict(view) for stream, view in page.restored.items()},
    }


def _print(
    services: Mapping[str, str | None], page: "BooksPage | None", note: str, *, kafka: str
) -> None:
    # The reason why Kafka is down is printed at the end.
    kafkas = {f"kafka {kafka}": None if page else ""} if kafka else {}
    problems = {**kafkas, **services}
    if problems:
        from rich.text import Text  # noqa: PLC0415

        print_table(
            ("service", "", ""),
            [
                (name, Text("up", "green"), "")
                if problem is None
                else (name, Text("down", "red"), harmless(problem))
                for name, problem in problems.items()
            ],
        )
        out.print()
    if page is None or not page.rows:
        return
    print_table(
        ("stream", "destination", "verdict", *COUNTS),
        [_cells(row) for row in page.rows],
        numbers=len(COUNTS),
    )
    for row in page.rows:
        if row.reason:
            line = f"{row.stream}/{row.destination}: {row.reason}"
            out.print(f"\n{harmless(line)}", style="yellow")
    for stream, restored in page.restored.items():
        out.print(
            f"\n{stream}: {wording.plural(restored.count, 'event')} of these put back by restores,"
            f" last by {harmless(restored.last)} at {when(restored.last_ms)}"
        )
    for row in page.rows:
        if row.kept is not None:
            kept = f"{row.kept:,} open windows or known keys, {wording.size(row.kept_bytes)}"
            out.print(f"\n{row.stream}/{row.destination} keeps {kept} of memory", style="dim")
    counted = (
        f"counted in Kafka, without verdicts, because {note}" if note else "counted by observe"
    )
    out.print(f"\nas of {wording.clock(page.at_ms)} UTC, {counted}", style="dim")
    if page.audit:
        out.print(f"audit: {page.audit}", style="yellow")


def _cells(row: "BooksRow") -> list[Cell]:
    return [
        harmless(row.stream),
        f"{harmless(row.destination or '-')}{' (removed)' if row.removed_at_ms else ''}",
        verdict_text(row.verdict.value) if row.verdict else "-",
        *(f"{getattr(row.balance, name):,}" for name in COUNTS),
    ]
