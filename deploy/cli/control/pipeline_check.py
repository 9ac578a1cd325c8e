"""Checks pipelines on this machine, with the Spark that would run them."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

from deploy.cli.printing import harmless, out, talk
from pipelines.functions.installed import installed
from pipelines.judging.judge import TypedStep, UnfitError, tried, typed
from pipelines.judging.sandbox import trial_session
from shared.config.outside.call import Call
from shared.config.pipeline import (
    Enrich,
    Explode,
    Key,
    Output,
    Pipeline,
    Select,
    ToArchive,
    ToDatabase,
    ToDead,
    ToStream,
    ToTable,
    Where,
)
from shared.config.steps.window import Dedupe, WindowStep
from shared.runtime.files.document_text import Document
from shared.runtime.setup_error import UsageError


@contextmanager
def spark_for_checks() -> Iterator[Any]:
    """Yield a separate Spark session for the block."""
    talk.print("Starting Spark ...", style="dim")
    with (
        tempfile.TemporaryDirectory(prefix="hifi-pipelines-") as folder,
        trial_session(Path(folder)) as session,
    ):
        yield session


def checked(session: Any, document: Document, pipeline: Pipeline) -> None:
    """Print each step's result type, and run the document's tests; UsageError if it cannot run."""
    try:
        for step in typed(session, pipeline, installed().keys()):
            out.print(harmless(_line(step)))
        out.print(harmless(_outputs(pipeline)))
        tried(session, pipeline)
    except UnfitError as error:
        why, *more = error.refusal.why.split("\n")
        lines = [f"{document.place(error.refusal.pointer)}: {why}", *more]
        raise UsageError("\n".join(map(harmless, lines))) from error
    except (Py4JNetworkError, ConnectionError) as error:
        wrong = f"{document.place('/steps')}: checking it needs more memory than a check may use,"
        raise UsageError(f"{wrong} which has ended the process that checks it") from error


def _line(typed_step: TypedStep) -> str:
    """Return a step, and the event's fields after it, as one line."""
    match typed_step.step:
        case Where(where=text) | Key(key=text):
            return f"{typed_step.step.member:9}{text}"
        case Call(call=name):
            return f"call     {name}: " + ", ".join(map(" ".join, typed_step.members))
        case Explode():
            ((name, text),) = typed_step.step.explode.items()
            return f"explode  {name} {dict(typed_step.members)[name]}  of {text}"
        case Enrich(enrich=asked):
            kind = dict(typed_step.members)[asked.into]
            return f"enrich   {asked.into} {kind}  of {asked.table} by {asked.key}"
        case Dedupe(dedupe=once):
            return f"dedupe   {once.key}  within {once.within}"
        case (WindowStep() | Select()) as made:
            members = ", ".join(f"{name} {kind}" for name, kind in typed_step.members)
            return f"{made.member:9}{members}"


def _outputs(pipeline: Pipeline) -> str:
    parts = [_target(output) for output in pipeline.to]
    return "to       " + (", else " if pipeline.takes_first else ", ").join(parts)


def _target(output: Output) -> str:
    match output:
        case ToStream():
            name, is_late = output.stream, output.late
        case ToTable():
            name, is_late = f"table {output.table}", False
        case ToDatabase():
            name, is_late = f"database {output.database.table}", False
        case ToDead():
            name, is_late = "dead letters", output.late
        case ToArchive():
            return f"archive {output.archive}"
    if is_late:
        return f"{name} late events"
    return f"{name} when {output.when}" if output.when else name
