"""Asks for confirmation before a removal, and shows how many events are still undelivered."""

from typing import Annotated

import typer

from deploy.cli import options
from deploy.cli.printing import harmless, talk
from deploy.local.stack_settings import StackSettings

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask: for scripts.")]
# Where observe serves the books.
observe = options.stack_settings("observe_metrics_port")


def ask_first(
    stream: str, destination: str | None, *, settings: StackSettings, kafka: str, yes: bool
) -> None:
    """Print what becomes of the events; end the command unless the answer is yes."""
    if yes:
        return
    # Counting reads Kafka; only a removal pays for loading that.
    from deploy.cli.books import NoBooksError, observed_books  # noqa: PLC0415
    from shared.proof.balance import Balance  # noqa: PLC0415

    try:
        rows = observed_books(kafka, port=settings.observe_metrics_port).rows
    except NoBooksError as why:
        talk.print(f"Its undelivered events cannot be counted: {why}.")
    else:
        ours = (
            row.balance
            for row in rows
            if row.stream == stream and destination in {None, row.destination}
        )
        balance = sum(ours, Balance())
        talk.print(
            f"{balance.queued:,} queued events will not be sent. {balance.waiting:,} that wait for"
            f" a retry become dead letters. {balance.dead:,} dead letters stay readable."
        )
    what = harmless(stream if destination is None else f"{stream}/{destination}")
    typer.confirm(f"Remove {what}?", abort=True, err=True)
