"""`hifi apply` and `hifi delete`: create, change or remove the objects that files describe."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from typing import Annotated, Any, Literal

import typer

from deploy.cli import options
from deploy.cli.applying.objects import FileObject, Files, MoreFiles, read_wanted
from deploy.cli.control import removal
from deploy.cli.control.pipelines import JUDGED_WAIT_S, judgement
from deploy.cli.printing import Form, harmless, out, print_data, talk
from shared.runtime.control_client import ControlClient, RefusedError
from shared.runtime.setup_error import PARTLY_DONE

# Fields of an answer that are not settings, or that follow from other fields.
_NOT_SET = frozenset({"warning", "state", "resumed_at_ms"})
# Switches that people use at run time; a file without them does not change them.
_LEFT_ALONE = ("is_paused", "is_disabled")
_VALUE_CHARS_MAX = 60
_STYLES = {"refused": "red", "created": "green", "changed": "yellow", "deleted": "yellow"}

DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would change; change nothing.")]


@dataclass(frozen=True, slots=True)
class _ApplyOutcome:
    """The outcome of an object of a file, real or predicted."""

    kind: str
    name: str
    outcome: Literal["created", "changed", "unchanged", "refused", "deleted", "absent"]
    # The settings that differ: what they were, and what they are now.
    changes: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    why: str = ""
    # Whether to stop, because no later object would succeed either.
    ends: bool = False


@options.made_of(client=options.control_client, form=options.form)
def apply(
    more: MoreFiles = None,
    *,
    files: Files = None,
    dry_run: DryRun = False,
    form: Form | None,
    client: ControlClient,
) -> None:
    """Set up streams, tables, destinations, pipelines, channels and tenants' quotas from files.

    Objects that no file names are not changed. Exit code 5 if some were refused, 1 if all were.

        hifi apply -f hifi.yaml --dry-run

        hifi apply -f settings/

        hifi export | hifi --profile other apply -f -
    """
    wanted = read_wanted(files or [], more or [])
    rehearsed: set[str] = set()
    # All bodies are made before the first is sent, so a missing variable fails the run early.
    bodies = [each.body() for each in wanted]
    fates = (
        _rehearsed(client, each, body, rehearsed) if dry_run else _applied(client, each, body)
        for each, body in zip(wanted, bodies, strict=True)
    )
    outcomes = _told(fates, form, would=dry_run)
    if not dry_run:
        outcomes += _told(_judged(client, wanted, outcomes), form)
    _end(outcomes, form, count=len(wanted))


@options.made_of(client=options.control_client, form=options.form)
def delete(
    more: MoreFiles = None,
    *,
    files: Files = None,
    yes: removal.Yes = False,
    form: Form | None,
    client: ControlClient,
) -> None:
    """Remove the objects that files name, last ones first. Other settings are ignored.

    Events that wait for a destination become dead letters; a table's rows are deleted everywhere.

        hifi delete -f hifi.yaml
    """
    wanted = read_wanted(files or [], more or [])[::-1]
    if not yes:
        for each in wanted:
            talk.print(harmless(each.title))
        typer.confirm(f"Remove these {len(wanted)}?", abort=True, err=True)
    _end(_told((_deleted(client, each) for each in wanted), form), form, count=len(wanted))


def _applied(client: ControlClient, wanted: FileObject, body: Mapping[str, Any]) -> _ApplyOutcome:
    try:
        before = _read(client, wanted)
        answer = client.send("PUT", *wanted.path, body={**_kept(before), **body})
    except RefusedError as error:
        return _refused(wanted, error)
    return _compared(wanted, before, answer.json())


def _rehearsed(
    client: ControlClient, wanted: FileObject, body: Mapping[str, Any], rehearsed: set[str]
) -> _ApplyOutcome:
    """Return the outcome that `_applied` would have; the gateway only checks the object.

    `rehearsed`: the streams and tables that would exist at that point.
    """
    try:
        before = _read(client, wanted)
        order = {**_kept(before), **body, "dry_run": True}
        after = client.call("PUT", *wanted.path, body=order)
    except RefusedError as error:
        if error.status == HTTPStatus.NOT_FOUND and rehearsed & _meant(wanted, error.pointer):
            why = "it cannot be checked before the objects that it needs exist"
            return _ApplyOutcome(wanted.kind, wanted.title, "created", why=why)
        return _refused(wanted, error)
    if before is None and wanted.kind in {"stream", "table"}:
        rehearsed.add(wanted.title)
    # A dry run must not reveal whether a secret differs.
    return _compared(wanted, before and _veiled(wanted, before), _veiled(wanted, after))


def _meant(wanted: FileObject, pointer: str) -> set[str]:
    """Return the stream or table that a document names at a pointer; by default its stream."""
    part: Any = wanted.document.fields
    for step in (pointer or "/stream").split("/")[1:]:
        part = part[int(step)] if isinstance(part, list) else part.get(step, "")
    return {f"stream/{part}", f"table/{part}"}


def _read(client: ControlClient, wanted: FileObject) -> dict[str, Any] | None:
    try:
        return client.call("GET", *wanted.path)
    except RefusedError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return None


def _kept(before: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: before[name] for name in _LEFT_ALONE if name in before} if before else {}


def _veiled(wanted: FileObject, shown: Mapping[str, Any]) -> dict[str, Any]:
    return wanted.secrets(shown, lambda *_: "a secret")


def _compared(
    wanted: FileObject, before: Mapping[str, Any] | None, after: Mapping[str, Any]
) -> _ApplyOutcome:
    why = str(after.get("warning", ""))
    if before is None:
        return _ApplyOutcome(wanted.kind, wanted.title, "created", why=why)
    changes = {
        name: (before.get(name), after.get(name))
        for name in sorted((before.keys() | after.keys()) - _NOT_SET)
        if before.get(name) != after.get(name)
    }
    outcome: Literal["changed", "unchanged"] = "changed" if changes else "unchanged"
    return _ApplyOutcome(wanted.kind, wanted.title, outcome, changes, why)


def _refused(wanted: FileObject, error: RefusedError) -> _ApplyOutcome:
    ends = error.status >= HTTPStatus.INTERNAL_SERVER_ERROR or error.status in {
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.TOO_MANY_REQUESTS,
    }
    why = f"{wanted.line(error.pointer)}: {error.detail}" if error.code else str(error)
    return _ApplyOutcome(wanted.kind, wanted.title, "refused", why=why, ends=ends)


def _judged(
    client: ControlClient, wanted: list[FileObject], told: list[_ApplyOutcome]
) -> Iterator[_ApplyOutcome]:
    """Yield the stored pipelines that Spark refuses to run."""
    stored = {fate.name for fate in told if fate.outcome != "refused"}
    wait_s = JUDGED_WAIT_S
    for each in wanted:
        if each.kind != "pipeline" or each.title not in stored:
            continue
        verdict = judgement(client, each.document, wait_s=wait_s)
        if verdict.is_refused:
            why = f"it is stored, but cannot run: {verdict.text}"
            yield _ApplyOutcome(each.kind, each.title, "refused", why=why)
        elif verdict.text:
            talk.print(harmless(verdict.text), style="dim")
        if verdict.is_open:
            # The pipelines process is down: wait for it once, not for each pipeline.
            wait_s = 0.0


def _deleted(client: ControlClient, wanted: FileObject) -> _ApplyOutcome:
    try:
        client.call("DELETE", *wanted.path)
    except RefusedError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return _ApplyOutcome(wanted.kind, wanted.title, "absent")
        return _refused(wanted, error)
    return _ApplyOutcome(wanted.kind, wanted.title, "deleted")


def _told(
    fates: Iterator[_ApplyOutcome], form: Form | None, *, would: bool = False
) -> list[_ApplyOutcome]:
    """Print each outcome as it comes; stop at one after which no other object would succeed."""
    outcomes = []
    for fate in fates:
        outcomes.append(fate)
        if form in {None, "table"}:
            _say(fate, would=would)
        if fate.ends:
            break
    return outcomes


def _say(fate: _ApplyOutcome, *, would: bool) -> None:
    is_done = fate.outcome in {"unchanged", "refused", "absent"} or not would
    word = fate.outcome if is_done else f"would be {fate.outcome}"
    settings = f": {', '.join(fate.changes)}" if fate.changes else ""
    out.print(harmless(fate.name), end="  ")
    out.print(f"{word}{settings}", style=_STYLES.get(fate.outcome, ""))
    if would:
        for name, (before, after) in fate.changes.items():
            out.print(f"    {name}: {_short(before)} -> {_short(after)}")
    for line in fate.why.split("\n") if fate.why else ():
        talk.print(f"    {harmless(line)}")


def _short(value: Any) -> str:
    text = harmless(json.dumps(value, ensure_ascii=False))
    return text if len(text) <= _VALUE_CHARS_MAX else f"{text[:_VALUE_CHARS_MAX]}…"


def _end(told: list[_ApplyOutcome], form: Form | None, *, count: int) -> None:
    """Print the summary, and exit with a code for the outcomes."""
    refused = {fate.name for fate in told if fate.outcome == "refused"}
    if form == "name":
        for fate in told:
            out.print(harmless(fate.name))
    elif form in {"json", "yaml"}:
        last = {fate.name: fate for fate in told}
        print_data(form, [_shown(fate) for fate in last.values()])
    if (left := count - len({fate.name for fate in told})) > 0:
        talk.print(f"{left} others were not tried.")
    if refused:
        raise typer.Exit(PARTLY_DONE if len(refused) < len({fate.name for fate in told}) else 1)


def _shown(fate: _ApplyOutcome) -> dict[str, Any]:
    fields = asdict(fate)
    fields["changes"] = {
        name: {"before": before, "after": after} for name, (before, after) in fate.changes.items()
    }
    return {name: fields[name] for name in ("kind", "name", "outcome", "changes", "why")}
