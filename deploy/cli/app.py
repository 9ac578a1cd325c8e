"""The `hifi` command: runs a subcommand, and reports an error in one sentence."""

import sys

from deploy.cli.signals import INTERRUPTED
from shared.runtime.setup_error import OperatorError


def main() -> None:
    """Run a subcommand; print one sentence if something outside the code is wrong."""
    try:
        # The import takes a moment, in which Ctrl-C must not end in a traceback.
        from deploy.cli.commands import app  # noqa: PLC0415

        app()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except OperatorError as error:
        from deploy.cli.printing import talk  # noqa: PLC0415 - as above

        talk.print(f"hifi: {error}", style="red")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
