"""`hifi notifications`: checks a file of channels, and writes to each for a try."""

import asyncio
import os
from pathlib import Path
from typing import Annotated

import typer

from deploy.cli.printing import out
from observe.notify.channels import Channel, read_channels
from observe.notify.messages import try_body
from observe.notify.sending import post
from shared.runtime.clock import now_ms
from shared.runtime.resolver import Resolver
from shared.runtime.setup_error import NoAnswerError, UsageError


def notifications(
    file: Annotated[
        Path,
        typer.Argument(
            envvar="HIFI_OBSERVE_NOTIFICATIONS_FILE", help="As docs/notifications.md has it."
        ),
    ],
    *,
    test: Annotated[bool, typer.Option(help="Send a message for a try to each channel.")] = False,
    channel: Annotated[str, typer.Option(help="To this one only.")] = "",
) -> None:
    """Check a file of channels that are told of trouble, and with --test write to each.

    Exit code 7: a channel did not take the message.
    """
    chosen = [it for it in read_channels(file).channels if channel in {"", it.name}]
    if not chosen:
        raise UsageError(f"{file} has no channel{f' {channel}' * bool(channel)}.")
    said = asyncio.run(_try_each(chosen)) if test else ["not tried"] * len(chosen)
    for each, wrong in zip(chosen, said, strict=True):
        whose = f"tenant {each.tenant}" if each.tenant else "the operator"
        about = ", ".join(concern.value for concern in each.about)
        out.print(f"{each.name}: {each.kind} of {whose}, about {about}: {wrong or 'taken'}")
    if test and any(said):
        raise NoAnswerError("A channel did not take the message.")


async def _try_each(channels: list[Channel]) -> list[str]:
    resolver = Resolver()
    return [
        await post(
            channel,
            try_body(channel),
            message_id=f"ntf_{os.urandom(12).hex()}",
            now_ms=now_ms(),
            resolver=resolver,
        )
        for channel in channels
    ]
