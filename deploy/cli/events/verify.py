"""`hifi verify`: compares a list of ids with the signed statement of a minute.

Prints `complete`, or exactly the ids that are missing from the list.
"""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from deploy.cli import options
from deploy.cli.events.minute_ids import MinuteIds, minute_ids, read_minute
from deploy.cli.events.proofs import Proof, ProvenLine
from deploy.cli.printing import harmless, out, talk
from shared import wording
from shared.event.times import DAY_MS
from shared.event.topics import ACKED_RETENTION_MS, is_pipelines
from shared.runtime.control_client import ControlClient
from shared.runtime.setup_error import UsageError

# Exit codes: ids are missing; the statement cannot be trusted. Other codes have their usual
# meaning, and say nothing about the ids.
_MISSING, _UNTRUSTED = 3, 4
# The signer's file, beside its data.
PUBLIC = "statement.pub"


@options.made_of(client=options.control_client)
def verify(
    *,
    stream: Annotated[str, typer.Option(help="The stream.")],
    minute: Annotated[
        str, typer.Option(help="The minute by the events' own time: 2026-11-21T19:05Z, or ms.")
    ],
    ids: Annotated[Path, typer.Option(help="Your ids, one per line; - for standard input.")],
    public_key: Annotated[
        Path | None,
        typer.Option(help="File with Hifi's public key; default: from `hifi up`'s data folder."),
    ] = None,
    data: options.Data = options.DATA_DEFAULT,
    client: ControlClient,
) -> None:
    """Check your own list of ids against Hifi's signed statement of one minute.

    It asks the gateway, with a key that may read the stream. Exit code 0 when the list has every
    id, 3 when some are missing, 4 when the statement cannot be trusted. With other codes nothing
    was checked: 1 when the key is refused, 2 when the command is wrong or has no public key, 6 when
    there is no such stream or minute, 7 when no gateway answers.

        hifi verify --stream orders --minute 2026-11-21T19:05Z --ids received.txt
    """
    mine = read_ids(ids)
    minute_ms, key = read_minute(minute), read_public_key(public_key or data / "observe" / PUBLIC)
    theirs = minute_ids(client, stream, minute_ms, mine)
    if problem := distrust(theirs, key):
        talk.print(f"hifi: {problem}", style="bold red")
        raise typer.Exit(_UNTRUSTED)
    describe(theirs)
    missing = sorted(theirs.ids - mine)
    if beyond := len(mine - theirs.ids):
        talk.print(f"Not of this minute: {wording.plural(beyond, 'id')} in the list.")
    if not missing:
        out.print("complete")
        return
    talk.print(f"{wording.plural(len(missing), 'id')} missing from the list:")
    for event_id in missing:
        out.print(harmless(event_id))
    raise typer.Exit(_MISSING)


def read_ids(path: Path) -> frozenset[str]:
    """Read the ids of a file, one per line; skip empty lines."""
    try:
        text = sys.stdin.read() if path == Path("-") else path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read ({error}): name a text file of ids.") from error
    return frozenset(line.strip() for line in text.splitlines() if line.strip())


def read_public_key(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"There is no public key at {path} ({error}): get the key of the Hifi that signs,"
            " and name its file with --public-key FILE."
        ) from error


def distrust(theirs: MinuteIds, public_key: str) -> str:
    """Return why the statement cannot be trusted; empty if it can."""
    if not theirs.signed.is_signed(public_key=public_key):
        return "the statement is not signed with that public key."
    if fault := theirs.signed.fault():
        return f"the statement does not add up: {fault}."
    if theirs.broken_at is not None:
        at = minute_text(theirs.broken_at.minute_ms)
        return f"the chain of statements is broken at {at}: it does not name its predecessor."
    if not theirs.is_whole:
        left, signed = len(theirs.ids), theirs.signed.id_count
        newer = " A statement that covers newer events follows within minutes: try again then."
        return (
            f"the ids that are left in Kafka ({left:,}) are not the signed ones"
            f" ({signed:,}; the ledger is kept for {ACKED_RETENTION_MS // DAY_MS} days), and"
            f" your list is not exactly the signed one either.{newer if left > signed else ''}"
        )
    return ""


def describe(theirs: MinuteIds) -> None:
    """Print the signed statement for people."""
    signed = theirs.signed
    events = wording.plural(signed.acked, "event")
    derived = f" {signed.derived:,} written by pipelines," if signed.derived else ""
    talk.print(
        f"{signed.stream}, {minute_text(signed.minute_ms)}: {events} acknowledged,{derived}"
        f" {wording.plural(signed.id_count, 'id')}, revision {signed.revision}, root"
        f" {signed.root[:16]}{_compared(signed)}"
    )
    for line in signed.lines:
        lost = [f"{count:,} lost at {stage}" for stage, count in line.lost.items()]
        due = [] if line.due is None else [f"{line.due:,} due"]
        ended = ", ".join([*due, *_ended(line), f"{line.dead:,} dead", *lost])
        talk.print(f"  {line.name}: {ended}")


def _compared(said: Proof) -> str:
    """Return how many events were looked up in the log; empty if all were."""
    if said.compared is None or said.compared == said.acked + said.derived:
        return ""
    return f", {said.compared:,} compared with the log"


def _ended(line: ProvenLine) -> list[str]:
    """Return a line's counts except dead and lost; a pipeline's show how many events it passed."""
    if not is_pipelines(line.name):
        return [f"{line.delivered:,} delivered", f"{line.waiting:,} waiting"]
    passed = line.delivered - sum(line.not_passed.values())
    return [
        f"{passed:,} passed",
        *(f"{count:,} {outcome}" for outcome, count in line.not_passed.items()),
    ]


def minute_text(minute_ms: int) -> str:
    """Return a minute as people write it."""
    if minute_ms < 0:
        return "events with a wild time"
    return datetime.fromtimestamp(minute_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%MZ")
