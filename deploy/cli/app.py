"""The `hifi` command: gathers its subcommands, and turns a set-up mistake into one sentence."""

import sys

import typer
from rich.console import Console

from deploy.cli import up
from shared.runtime.setup_error import SetupError

app = typer.Typer(
    name="hifi",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("up")(up.up)


@app.callback()
def _hifi() -> None:
    """High-fidelity data streams: HTTP in, Kafka, Spark, HTTP out, nothing lost."""


def main() -> None:
    """Run a subcommand. Exit 1 with one sentence when something outside the code is wrong."""
    try:
        app()
    except SetupError as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"hifi: {error}", style="red")
        sys.exit(1)


if __name__ == "__main__":
    main()
