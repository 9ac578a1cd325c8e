"""Starts a Hifi for one command, on free ports and in its own folder, and stops it afterwards."""

import os
import signal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deploy.cli.printing import talk
from deploy.cli.signals import on_signals
from deploy.local.ports import pick_free
from deploy.local.stack import Stack
from deploy.local.stack_settings import PORTS, StackSettings


@contextmanager
def fresh_stack(only: str | None = None, **more: str) -> Iterator[Stack]:
    """Start a Hifi as `hifi up` does, or with `only` just that service and Kafka.

    `more`: environment variables for it.
    """
    with tempfile.TemporaryDirectory(prefix="hifi-fresh-") as folder:
        ports: Mapping[str, Any] = dict(zip(PORTS, pick_free(len(PORTS)), strict=True))
        settings = StackSettings(folder=Path(folder), **ports)
        stack = Stack(settings, environ={**os.environ, **more}, say=_say)
        stack.services = [each for each in stack.services if only in {None, each.name}]
        with on_signals(_interrupt, signal.SIGTERM, signal.SIGHUP):
            try:
                stack.start(lambda jars: _say(f"fetching jars for {jars.jar_set}"))
                yield stack
            finally:
                stack.stop()


def _say(what: str) -> None:
    talk.print(f"  {what} ...", style="dim")


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
