"""`hifi archive verify`: compares an archive with the signed statements about its stream."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from deploy.cli import options
from deploy.cli.archive.places import ArchiveChoice, archive_choice, life_name, store_errors
from deploy.cli.control.dead import time_ms
from deploy.cli.events.minute_ids import ids_of, statements_of
from deploy.cli.events.proofs import Proof, broken_link
from deploy.cli.events.verify import PUBLIC, minute_text, read_public_key
from deploy.cli.printing import harmless, out, talk
from shared import wording
from shared.event.times import MINUTE_MS
from shared.proof.acked import audited_minute
from shared.proof.archived import ArchivedObject, ArchiveId, gaps
from shared.proof.intervals import Offsets
from shared.runtime.archive.files import UnreadableError, read_object
from shared.runtime.archive.reading import Damage, fetched, listed, miscounted
from shared.runtime.archive.stores import OpenStore
from shared.runtime.control_client import ControlClient
from shared.runtime.setup_error import UsageError

INCOMPLETE, _UNTRUSTED = 3, 4
_COLUMNS = ("event_id", "event_time_ms", "accepted_at_ms")


@options.made_of(place=archive_choice, client=options.control_client)
def verify(
    *,
    stream: Annotated[str, typer.Option(help="The stream.")],
    since: Annotated[
        str | None, typer.Option("--from", help="Events since 2026-11-21T10:00Z, or 2h.")
    ] = None,
    to: Annotated[str | None, typer.Option("--to", help="Events before this time.")] = None,
    public_key: Annotated[
        Path | None,
        typer.Option(help="File with Hifi's public key; default: from `hifi up`'s data folder."),
    ] = None,
    place: ArchiveChoice,
    client: ControlClient,
) -> None:
    """Check an archive, object by object and minute by minute, against Hifi's signed statements.

    Without --from it begins at the archive's first event, or when its pipeline was created if that
    was earlier. Exit code 0 when the archive is complete and unchanged, 3 when objects or ids are
    missing or changed, 4 when a statement cannot be trusted, 1 when nothing can be checked.

    hifi archive verify --stream orders --from 2h
    """
    bucket, lives = place.open(stream)
    from_ms, to_ms = time_ms("--from", since), time_ms("--to", to)
    with store_errors():
        kept = kept_in(bucket, lives, from_ms=from_ms, to_ms=to_ms)
    for each in kept.damage:
        more = f" ({each.detail})" if each.detail else ""
        out.print(f"{each.kind}: {each.path}{more}")
    made_ms = pipeline_made_ms(client, lives[0])
    begins_ms = from_ms if from_ms is not None else kept.begins_ms(made_ms)
    signed = statements_of(client, stream, begins_ms)
    if not signed:
        raise UsageError(
            f"There is no statement about {stream} yet: a minute is signed about three minutes"
            " after its last event."
        )
    if problem := distrust(signed, read_public_key(public_key or place.data / "observe" / PUBLIC)):
        talk.print(f"hifi: {problem}", style="bold red")
        raise typer.Exit(_UNTRUSTED)
    minutes = to_check(signed, from_ms=begins_ms, to_ms=to_ms)
    bad = [one for one in minutes if not kept.is_complete(one)]
    for one in bad:
        _tell(kept, one, ids_of(client, one))
    is_complete = not bad and not kept.damage
    if is_complete:
        out.print("complete")
    else:
        kept.tell_gaps()
    for life, objects in kept.lives.items():
        if len(lives) > 1:
            count = sum(each.count for each in objects)
            talk.print(
                f"Life {life_name(life)}: {wording.plural(len(objects), 'object')}, {count:,}"
                f" events, {_times(objects)}."
            )
    talk.print(
        f"Since {minute_text(begins_ms)}: {wording.plural(kept.object_count, 'object')},"
        f" {wording.plural(len(minutes), 'signed minute')}, {kept.event_count:,} events."
    )
    if made_ms is None and from_ms is None:
        talk.print(
            "Hifi has no record of when the archive's pipeline was created, so older objects may be"
            " missing unnoticed. Use --from to set the time from which to check."
        )
    if not is_complete:
        raise typer.Exit(INCOMPLETE)


def pipeline_made_ms(client: ControlClient, archive: ArchiveId) -> int | None:
    """Return when the archive's pipeline was first created; None if there is no record of it."""
    query = {"kind": "pipeline", "name": archive.name, "did": "created", "limit": "1000"}
    made = client.call("GET", "changes", query=query)["changes"]
    return min(
        (change["at_ms"] for change in made if change["tenant"] == archive.tenant), default=None
    )


@dataclass
class KeptIds:
    """The ids and the damage found in an archive."""

    damage: list[Damage] = field(default_factory=list)
    ids: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    lives: dict[ArchiveId, tuple[ArchivedObject, ...]] = field(default_factory=dict)
    event_count: int = 0

    @property
    def objects(self) -> list[ArchivedObject]:
        return [each for objects in self.lives.values() for each in objects]

    @property
    def object_count(self) -> int:
        return len(self.objects)

    def begins_ms(self, made_ms: int | None) -> int:
        """Return the time from which the archive should be complete."""
        known = [each.event_from_ms for each in self.objects]
        return min(known if made_ms is None else [*known, made_ms], default=0)

    def tell_gaps(self) -> None:
        for life, objects in self.lives.items():
            of = f" in the life {life_name(life)}" if len(self.lives) > 1 else ""
            for line in gap_lines(gaps(objects), of):
                talk.print(line)

    def is_complete(self, said: Proof) -> bool:
        return said.has_ids(self.ids.get(said.minute_ms, set()))


def to_check(said: Iterable[Proof], *, from_ms: int, to_ms: int | None) -> list[Proof]:
    """Return the newest statement of each minute that the archive should have."""
    newest = {signed.minute_ms: signed for signed in said}
    return [
        newest[minute_ms]
        for minute_ms in sorted(newest)
        if minute_ms + MINUTE_MS > from_ms and (to_ms is None or minute_ms < to_ms)
    ]


def gap_lines(missing: Mapping[int, Offsets], of: str = "") -> list[str]:
    """Describe the offsets that no object covers."""
    spans = {
        partition: ", ".join(f"{first}-{end}" for first, end in offsets)
        for partition, offsets in missing.items()
    }
    return [
        f"No object covers offsets {which} of Kafka partition {partition}{of}."
        for partition, which in spans.items()
    ]


def kept_in(
    bucket: OpenStore, lives: Iterable[ArchiveId], *, from_ms: int | None, to_ms: int | None
) -> KeptIds:
    """Read every object that may have events of that time; a damaged one yields no ids.

    All lives are read, because a statement covers all events of its minute.
    """
    kept = KeptIds()
    for life in lives:
        there = listed(bucket, life, from_ms=from_ms, to_ms=to_ms)
        kept.damage += there.damage
        kept.lives[life] = there.objects
    if not kept.objects and not kept.damage:
        raise UsageError("The archive has no events from that time.")
    if not all(each.is_whole for each in kept.objects):
        raise UsageError(
            "This archive keeps only some events of its stream, or changes them, so it cannot match"
            " statements, which cover every event as it was sent."
        )
    for archived, data in fetched(bucket, kept.objects):
        if isinstance(data, Damage):
            kept.damage.append(data)
            continue
        try:
            columns = read_object(data, _COLUMNS).to_pydict()
        except UnreadableError as error:
            kept.damage.append(Damage(archived.path, "unreadable", str(error)))
            continue
        if damage := miscounted(archived, len(columns["event_id"])):
            kept.damage.append(damage)
        kept.event_count += len(columns["event_id"])
        for event_id, at_ms, accepted_ms in zip(*(columns[each] for each in _COLUMNS), strict=True):
            kept.ids[audited_minute(at_ms, accepted_ms)].add(event_id)
    return kept


def _times(objects: Iterable[ArchivedObject]) -> str:
    """Return when Kafka stored the first and the last event of the objects."""
    times = [at for each in objects for at in (each.from_ms, each.to_ms)]
    return " to ".join(map(minute_text, (min(times), max(times)))) if times else "none in that time"


def distrust(chain: list[Proof], public_key: str) -> str:
    """Return why the statements cannot be trusted; empty if they can."""
    if not all(signed.is_signed(public_key=public_key) for signed in chain):
        return "a statement is not signed with that public key."
    if fault := next((fault for signed in chain if (fault := signed.fault())), ""):
        return f"a statement does not add up: {fault}."
    if (broken := broken_link(chain)) is not None:
        at = minute_text(broken.minute_ms)
        return f"the chain of statements is broken at {at}: it does not name its predecessor."
    return ""


def _tell(kept: KeptIds, said: Proof, theirs: frozenset[str]) -> None:
    ours = kept.ids.get(said.minute_ms, set())
    at = minute_text(said.minute_ms)
    if not said.has_ids(theirs):
        out.print(
            f"{at}: {len(ours):,} of {said.id_count:,} ids; Hifi no longer knows which are missing"
        )
        return
    missing, beyond = sorted(theirs - ours), sorted(ours - theirs)
    out.print(f"{at}: {len(missing):,} of {said.id_count:,} ids are missing")
    for event_id in missing:
        out.print(f"  missing {harmless(event_id)}")
    for event_id in beyond:
        out.print(f"  not signed {harmless(event_id)}")
