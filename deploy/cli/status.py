"""`hifi status`: which services are up, and the books of every stream and destination."""

import asyncio
from dataclasses import asdict, dataclass
from typing import Any

import typer
from rich.text import Text

from deploy.cli import options
from deploy.cli.printing import Cell, out, print_json, print_table, talk
from deploy.local.services import services_of
from deploy.local.stack_settings import StackSettings
from observe.live_books import open_books
from shared.event.topics import CONFIG, RECEIPTS
from shared.proof.balance import Balance
from shared.runtime.kafka.config_topic import read_config
from shared.runtime.kafka.topic_admin import topic_admin
from shared.runtime.setup_error import OperatorError, SetupError

_COUNTS = ("acked", "delivered", "pending", "waiting", "dead", "unaccounted")
_HEADS = ("acked", "delivered", "on their way", "waiting", "dead", "unaccounted")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the books; a stream that nobody wants has no destination."""

    stream: str
    destination: str | None
    balance: Balance


@options.stack_options(*options.HEALTH_PORTS)
def status(
    settings: StackSettings,
    kafka: options.Kafka = options.KAFKA_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """Show which services are up, and what became of every event that was acknowledged.

    acked = delivered + on their way + waiting for a retry + dead + unaccounted.

        hifi status

        hifi status --kafka broker-1:9092 --json
    """
    services = {service.name: service.is_ready() for service in services_of(settings)}
    rows, problem = [], ""
    try:
        rows = asyncio.run(_books(kafka))
    except OperatorError as error:
        problem = str(error)
    if as_json:
        print_json(_as_json(services, rows, kafka_answers=not problem))
    else:
        _print(services, rows, kafka=kafka, kafka_answers=not problem)
    if problem:
        talk.print(f"hifi: {problem}", style="red")
        raise typer.Exit(1)


def verdict(balance: Balance, *, destination: str | None) -> tuple[str, str]:
    """What the books come to, in words, and in which style; the worst thing first."""
    verdicts = (
        (balance.unaccounted > 0, "UNACCOUNTED", "bold red"),
        (balance.acked == 0, "nothing sent yet", "dim"),
        (destination is None, "no destination", "yellow"),
        (balance.waiting > 0, "waiting for a retry", "yellow"),
        (balance.pending > 0, "on their way", "cyan"),
        (balance.dead > 0, "settled, some dead", "yellow"),
        (True, "all delivered", "green"),
    )
    return next((words, style) for holds, words, style in verdicts if holds)


async def _books(kafka: str) -> list[Row]:
    async with topic_admin(kafka) as admin:
        if not {CONFIG, RECEIPTS} <= await admin.names():
            raise SetupError(
                f"The Kafka at {kafka} has no topics of Hifi: start `hifi up`,"
                " or name another with --kafka HOST:PORT."
            )
    configuration = await read_config(kafka)
    wanted: list[tuple[str, str | None, str]] = []
    for stream in sorted(configuration.streams):
        ours = sorted(configuration.destinations_of(stream), key=lambda one: one.name)
        wanted += [(stream, one.name, one.id) for one in ours] or [(stream, None, "")]
    async with open_books(kafka) as books:
        return [
            Row(stream, name, await books.balance(stream, destination_id))
            for stream, name, destination_id in wanted
        ]


def _as_json(services: dict[str, bool], rows: list[Row], *, kafka_answers: bool) -> Any:
    return {
        "kafka": kafka_answers,
        "services": services,
        "books": [
            {
                "stream": row.stream,
                "destination": row.destination,
                **asdict(row.balance),
                "verdict": verdict(row.balance, destination=row.destination)[0],
            }
            for row in rows
        ],
    }


def _print(services: dict[str, bool], rows: list[Row], *, kafka: str, kafka_answers: bool) -> None:
    ups = {f"kafka {kafka}": kafka_answers, **services}
    print_table(
        ("service", ""),
        [
            (name, Text("up", "green") if is_up else Text("down", "red"))
            for name, is_up in ups.items()
        ],
    )
    if not rows:
        return
    out.print()
    print_table(
        ("stream", "destination", "verdict", *_HEADS),
        [_cells(row) for row in rows],
        numbers=len(_HEADS),
    )


def _cells(row: Row) -> list[Cell]:
    words, style = verdict(row.balance, destination=row.destination)
    counts = asdict(row.balance)
    return [
        row.stream,
        row.destination or "-",
        Text(words, style),
        *(f"{counts[name]:,}" for name in _COUNTS),
    ]
