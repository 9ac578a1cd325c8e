"""`hifi pipelines`: checks, tries, sets up, shows and removes pipelines."""

import json
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from deploy.cli import options
from deploy.cli.control import removal
from deploy.cli.printing import Form, harmless, out, print_list, print_one, talk
from shared.runtime.control_client import ControlClient, RefusedError
from shared.runtime.setup_error import UsageError

if TYPE_CHECKING:
    from shared.runtime.files.document_text import Document

app = typer.Typer(name="pipelines", no_args_is_help=True)

File = Annotated[
    Path, typer.Argument(metavar="FILE", help="A document, YAML or JSON; - for standard input.")
]
Name = Annotated[str, typer.Argument(metavar="PIPELINE", help="The pipeline's name.")]
# A check commonly takes this long while Spark is up.
JUDGED_WAIT_S = 5.0
# At most this many characters of an event are shown.
_SHOWN_CHARS = 300
_LOOK_S = 1.0


@app.command()
def check(file: File) -> None:
    """Check a document with Spark on this machine: the types of its steps, and its tests.

    hifi pipelines check sales.yaml
    """
    document = _read(file)
    pipeline = document.pipeline()
    # Spark's libraries take most of a second to load, which no other command should spend.
    from deploy.cli.control.pipeline_check import checked, spark_for_checks  # noqa: PLC0415

    with spark_for_checks() as session:
        checked(session, document, pipeline)
    count = len(pipeline.tests)
    tests = "It has no tests." if not count else f"{count} test{'s' * (count > 1)} passed."
    out.print(f"{pipeline.name} is valid. {tests}")


@options.control_command(app, "try")
def try_(
    *,
    file: File,
    last: Annotated[int, typer.Option(help="Number of newest events to try.", min=1, max=100)] = 10,
    event: Annotated[
        list[str] | None,
        typer.Option(help="An event as JSON, instead of the newest; repeat for more."),
    ] = None,
    client: ControlClient,
) -> None:
    """Show what a pipeline would make of the newest events of its stream. Nothing is written.

    hifi pipelines try sales.yaml --last 100
    """
    document = _read(file)
    pipeline = document.pipeline()
    body: dict[str, Any] = {"document": _body(document)}
    body |= {"events": _events_of(event)} if event else {"newest": last}
    try:
        trial = client.call("POST", "pipelines", pipeline.name, "try", body=body)
    except RefusedError as error:
        if error.code != "bad_pipeline":
            raise
        refusal = {"why": error.detail, "pointer": error.pointer}
        raise UsageError(_why(document, refusal)) from error
    _show_trial(trial, has_windows=pipeline.window is not None)


@options.control_command(
    app, "put", create="Create a pipeline; refused if there is one with that name."
)
def put(file: File, client: ControlClient) -> None:
    """Create or change a pipeline, and wait until it has been checked.

    hifi pipelines put sales.yaml
    """
    document = _read(file)
    path = ("pipelines", document.pipeline().name)
    _print_note(client.call("PUT", *path, body=_body(document)))
    judged = judgement(client, document)
    if judged.is_refused:
        raise UsageError(f"It is stored, but cannot run:\n{judged.text}")
    talk.print(judged.text)


class Judgement(NamedTuple):
    """The result of checking a stored pipeline."""

    text: str
    is_refused: bool = False
    # It is not checked yet.
    is_open: bool = False


def judgement(
    client: ControlClient, document: "Document", *, wait_s: float = JUDGED_WAIT_S
) -> Judgement:
    name = document.fields["name"]
    state = client.call("GET", "pipelines", name, query={"wait": f"{wait_s:g}"})["state"]
    if state["standing"] == "refused":
        return Judgement(_why(document, state), is_refused=True)
    if state["standing"] == "checking":
        text = f"It is stored, but not checked yet: `hifi pipelines get {name}` shows the result."
        return Judgement(text, is_open=True)
    if state["why"]:
        return Judgement(f"It is stored, but cannot run yet: {harmless(state['why'])}")
    return Judgement(f"{name} is running.")


def _why(document: "Document", state: dict[str, Any]) -> str:
    """Return the pipeline's error, with the line in the document."""
    why, *more = state["why"].split("\n")
    lines = [f"{document.place(state['pointer'])}: {why}", *more]
    return "\n".join(map(harmless, lines))


@options.control_command(app)
def replace(
    *,
    file: File,
    begin: Annotated[
        str, typer.Option("--from", help="How far back to start reading: 90m, 12h, 7d, earliest.")
    ] = "7d",
    wait: Annotated[bool, typer.Option(help="Wait until it replaces the running one.")] = True,
    client: ControlClient,
) -> None:
    """Rebuild a pipeline with windows beside the running one, then replace that one.

    hifi pipelines replace sales.yaml --from 7d
    """
    document = _read(file)
    path = ("pipelines", document.pipeline().name)
    answer = client.call("PUT", *path, "replacement", body=_body(document), query={"from": begin})
    built = answer["document"]
    _print_note(answer)
    talk.print(f"Generation {built['generation']} of {path[1]} is being built.")
    if not wait:
        talk.print(f"`hifi pipelines get {path[1]}` shows when it has replaced the running one.")
        return
    while (state := _built(client, *path)) is not None:
        if state["standing"] == "refused":
            why = _why(document, state)
            raise UsageError(f"It cannot run, so the old pipeline continues:\n{why}")
        if state["behind"]:
            talk.print(f"{state['behind']:,} events to go.")
        time.sleep(_LOOK_S)
    if client.call("GET", *path)["generation"] != built["generation"]:
        raise UsageError("It was given up, or another replacement is being built.")
    talk.print(f"{path[1]} is replaced.")


def _print_note(answer: dict[str, Any]) -> None:
    """Print the note about where the pipeline begins; an older gateway sends none."""
    if note := answer["state"].get("note"):
        talk.print(harmless(note), style="yellow")


def _built(client: ControlClient, *path: str) -> dict[str, Any] | None:
    """Return the state of the replacement being built; None if there is none."""
    try:
        state: dict[str, Any] = client.call("GET", *path, "replacement")["state"]
    except RefusedError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return None
    return state


@options.control_command(app, "give-up")
def give_up(*, name: Name, client: ControlClient) -> None:
    """Give up the pipeline that `replace` is building. The running one continues."""
    client.call("DELETE", "pipelines", name, "replacement")
    talk.print(f"The replacement of {harmless(name)} is given up.")


@options.control_command(app, "get", alias="show")
def show(name: Name, form: Form | None, client: ControlClient) -> None:
    """Show a pipeline's document, its state and its replacement, as JSON."""
    shown = client.call("GET", "pipelines", name)
    if (built := _built(client, "pipelines", name)) is not None:
        # In `state`, which a PUT ignores.
        shown["state"]["replacement"] = built
    print_one(form, shown, name=name)


@options.control_command(app, "list")
def list_pipelines(*, form: Form | None, client: ControlClient) -> None:
    """List all pipelines, what they read and write, and whether they run."""
    answer = client.call("GET", "pipelines")
    heads = ("pipeline", "reads", "writes", "standing")
    print_list(form, answer["pipelines"], heads, _cells)


@options.control_command(app)
def delete(*, name: Name, yes: removal.Yes = False, client: ControlClient) -> None:
    """Stop and remove a pipeline. The events that it has written stay."""
    pipeline = client.call("GET", "pipelines", name)
    if not yes:
        stream = pipeline["from"]["stream"]
        talk.print(f"New events of {harmless(stream)} are no longer processed.")
        typer.confirm(f"Remove {harmless(name)}?", abort=True, err=True)
    client.call("DELETE", "pipelines", name)
    talk.print(f"{harmless(name)} is removed.")


def _read(file: Path) -> "Document":
    # This loads all rules for documents; `hifi pipelines list` does not wait for them.
    from deploy.cli.control.pipeline_files import read_document  # noqa: PLC0415

    return read_document(file)


def _body(document: "Document") -> dict[str, Any]:
    from deploy.cli.control.pipeline_files import to_put  # noqa: PLC0415 - as above

    return to_put(document)


def _cells(shown: dict[str, Any]) -> list[str]:
    why = shown["why"].split("\n")[0]
    standing = f"{shown['standing']}: {why}" if why else shown["standing"]
    if ended := shown.get("executors_ended"):
        standing += f" (has ended its executor {ended} time{'s' * (ended > 1)})"
    return [shown["name"], shown["reads"], ", ".join(shown["writes"]), harmless(standing)]


def _events_of(texts: Sequence[str]) -> list[Any]:
    events = []
    for text in texts:
        try:
            events.append(json.loads(text))
        except ValueError as error:
            raise UsageError(f"--event {text[:100]!r} is not JSON ({error}).") from error
    return events


def _show_trial(found: dict[str, Any], *, has_windows: bool) -> None:
    """Print each event, numbered, with its results below it; then windows, and counts."""
    rows_of: dict[int | None, list[dict[str, Any]]] = defaultdict(list)
    for row in found["rows"]:
        rows_of[row["of"]].append(row)
    for number, event in enumerate(found["given"], start=1):
        out.print(harmless(f"{number}  {_short(event)}"))
        for row in rows_of[number]:
            out.print(harmless(f"   {_row(row)}"))
    for row in rows_of[None]:
        out.print(harmless(f"window  {_row(row)}"))
    if found["left_out"]:
        talk.print(f"{found['left_out']:,} more rows, too many to show.")
    fates = {row["of"]: row["outcome"] for row in found["rows"] if row["of"] is not None}
    # Events that only went into windows have no rows.
    given = len(found["given"])
    counts = Counter({"passed": given - len(fates)}) + Counter(fates.values())
    late = f" {counts['late']:,} late," if has_windows else ""
    talk.print(
        f"{given:,} events: {counts['passed']:,} passed, {counts['filtered']:,} filtered,"
        f"{late} {counts['dead']:,} dead. Nothing was written."
    )


def _row(row: dict[str, Any]) -> str:
    if not row["target"]:
        why = f" ({row['reason']})" if row["reason"] else ""
        return f"{row['outcome']}{why}"
    key = "" if row["key"] is None else f"  key={row['key']}"
    return f"{row['target']}{key}  {_short(row['value'])}".rstrip()


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."
