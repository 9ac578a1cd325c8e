"""Creates and changes pipelines from pasted documents, and shows the line of an error.

The gateway checks a document's shape at once. The pipelines process checks its expressions and runs
its tests within seconds; the page waits for that, as `hifi pipelines put` does.
"""

import structlog
from starlette.responses import RedirectResponse, Response

from console.forms import DOCUMENT_BYTES_MAX
from console.page_context import PageContext
from console.page_request import PageRequest
from console.pages.changes.form_pages import (
    FormPage,
    document_field,
    text_field,
)
from console.pages.changes.pipeline_documents import (
    CHANGE,
    NEW,
    PIPELINES,
    TRY,
    around,
    placed,
    read_document,
    refused,
    text_of,
    typed_document,
)
from console.pages.changes.pipeline_trial import TRIAL
from console.pages.changes.questions import ChangeByForm, ChangeQuestion, done, same
from console.parts.layout import Page
from console.parts.markup import Child, Safe, fragment, tag
from console.parts.pieces import code, ways
from shared import wording
from shared.config.pipeline import Pipeline
from shared.runtime.control_client import RefusedError
from shared.runtime.files.document_text import Document
from shared.runtime.setup_error import UsageError

log = structlog.get_logger()

REPLACE, GIVE_UP, REMOVE = (f"{PIPELINES}:{what}" for what in ("replace", "give-up", "remove"))
_BEGIN = """name: large-orders
from: {stream: orders}
schema: "id STRING, total DOUBLE"
steps:
  - where: "total > 100"
to: [{stream: large}]
tests:
  - {given: [{id: a, total: 120}, {id: b, total: 5}], expect: [{id: a, total: 120}]}
"""
_NOTE = fragment(
    " Before the pipeline runs, Hifi runs its tests: given events, and the expected rows. ",
    "Try it shows what the pipeline would make of the newest events of its stream; ",
    code("hifi pipelines try FILE"),
    " does the same on your own machine.",
)


def pipeline_links(pipeline: Pipeline, context: PageContext) -> Safe:
    """Return links to the pages that change a pipeline; only one with state can be rebuilt."""
    links = [("Change …", CHANGE), ("Try …", TRY)]
    links += [("Rebuild …", REPLACE)] if pipeline.kept_shape else []
    is_built = context.configuration.replacement_of(pipeline.name) is not None
    links += [("Give up the replacement …", GIVE_UP)] if is_built else []
    links += [("Remove …", REMOVE)]
    return tag("p", ways((says, f"{path}?pipeline={pipeline.name}") for says, path in links))


async def new_page(asked: PageRequest) -> Page:
    return _new_form(_BEGIN).page(asked)


async def make(asked: PageRequest) -> Response:
    text = typed_document(asked)
    shown = _new_form(text)
    try:
        document = await read_document(text, asked.in_thread)
    except UsageError as error:
        return shown.again(asked, str(error), 422)
    name = document.fields.get("name")
    if not isinstance(name, str) or not name:
        return shown.again(asked, "name: required.", 422)
    if name in asked.context.configuration.pipelines:
        wrong = f"A pipeline {name} already exists. Change it on its own page."
        return shown.again(asked, wrong, 409)
    return await _write(asked, shown, document, text, name, version="")


async def change_page(asked: PageRequest) -> Page:
    name = asked.pipeline.name
    shown, version = await asked.control.seen("pipelines", name)
    return _change_form(name, text_of(shown), version).page(asked)


async def change(asked: PageRequest) -> Response:
    name, version, text = asked.pipeline.name, asked.field("version"), typed_document(asked)
    shown = _change_form(name, text, version)
    try:
        document = await read_document(text, asked.in_thread)
    except UsageError as error:
        return shown.again(asked, str(error), 422)
    return await _write(asked, shown, document, text, name, version=version)


async def replace_page(asked: PageRequest) -> Page:
    name = asked.pipeline.name
    shown, _ = await asked.control.seen("pipelines", name)
    return _replace_form(name, text_of(shown), "7d").page(asked)


async def replace(asked: PageRequest) -> Response:
    name, begin, text = asked.pipeline.name, asked.field("from"), typed_document(asked)
    shown = _replace_form(name, text, begin)
    before = asked.context.configuration.replacement_of(name)
    try:
        document = await read_document(text, asked.in_thread)
        return await done(
            asked,
            "pipeline.replacing",
            asked.control.build(name, begin=begin, body=document.fields),
            seen=lambda now: now.configuration.replacement_of(name) != before,
            back=f"{PIPELINES}/{name}",
            pipeline=name,
        )
    except RefusedError as refusal:
        return refused(asked, shown, refusal, document, text)
    except UsageError as error:
        return shown.again(asked, str(error), 422)


async def give_up_page(asked: PageRequest) -> Page:
    name = asked.pipeline.name
    return await _ask(
        asked,
        ("Give up the replacement of ", "?", "Give up"),
        "Hifi stops building the replacement and deletes it. The running pipeline continues.",
        same(f"hifi pipelines give-up {name}"),
        "replacement",
    )


async def give_up(asked: PageRequest) -> Response:
    name, version = asked.pipeline.name, asked.field("version")
    return await done(
        asked,
        "pipeline.given_up",
        asked.control.change("DELETE", "pipelines", name, "replacement", version=version),
        seen=lambda now: now.configuration.replacement_of(name) is None,
        back=f"{PIPELINES}/{name}",
        pipeline=name,
    )


async def remove_page(asked: PageRequest) -> Page:
    pipeline = asked.pipeline
    views = asked.context.overview.pipelines
    left = sum(each.balance.queued for each in views if each.name == pipeline.name)
    kept = " Its state is lost." if pipeline.kept_shape else ""
    return await _ask(
        asked,
        ("Remove ", "?", "Remove"),
        f"It reads no more events of {pipeline.source.stream}. Its past results stay.{kept}",
        fragment(f"{wording.plural(left, 'event')} queued for it. ",
                 same(f"hifi pipelines delete {pipeline.name}")),
    )  # fmt: skip


async def remove(asked: PageRequest) -> Response:
    name, version = asked.pipeline.name, asked.field("version")
    return await done(
        asked,
        "pipeline.removed",
        asked.control.change("DELETE", "pipelines", name, version=version),
        seen=lambda now: name not in now.configuration.pipelines,
        back=PIPELINES,
        pipeline=name,
    )


async def _ask(
    asked: PageRequest, words: tuple[str, str, str], says: str, also: Child, *below: str
) -> Page:
    name = asked.pipeline.name
    question = ChangeQuestion(
        name=name,
        words=words,
        says=says,
        also=also,
        here=PIPELINES,
        back=f"{PIPELINES}/{name}",
        at=("pipelines", name, *below),
        fields={"pipeline": name},
    )
    return await question.page(asked)


async def _write(
    asked: PageRequest, shown: FormPage, document: Document, text: str, name: str, *, version: str
) -> Response:
    """Store the document, wait until it is judged, and show any error in it."""
    before = asked.context.configuration.pipelines.get(name)
    log.info("pipeline.written", key_id=asked.viewer.key_id, pipeline=name)
    try:
        await asked.control.put("pipelines", name, version=version, body=document.fields)
        judged, version = await asked.control.judged(name)
    except RefusedError as refusal:
        return refused(asked, shown, refusal, document, text)
    await asked.wait_until(lambda now: now.configuration.pipelines.get(name) != before)
    state = judged["state"]
    if state["standing"] != "refused":
        return RedirectResponse(f"{PIPELINES}/{name}", status_code=303)
    stored = _change_form(name, text, version)
    wrong = f"It is stored but cannot run. {placed(document, state['pointer'], state['why'])}"
    return stored.again(asked, wrong, 422, around(document, state["pointer"], text))


def _new_form(text: str) -> FormPage:
    return FormPage(
        title="New pipeline",
        heading="New pipeline",
        here=PIPELINES,
        content=(document_field("Document, YAML or JSON", "document", text),),
        yes="Create",
        other=("Try it", TRY),
        back=PIPELINES,
        command="hifi pipelines put FILE",
        note=_NOTE,
    )


def _change_form(name: str, text: str, version: str) -> FormPage:
    return FormPage(
        title="Change a pipeline",
        heading=fragment("Change ", code(name)),
        here=PIPELINES,
        content=(document_field("Document, YAML or JSON", "document", text),),
        yes="Save",
        other=("Try it", TRY),
        back=f"{PIPELINES}/{name}",
        command="hifi pipelines put FILE",
        note=_NOTE,
        hidden={"version": version, "pipeline": name},
        path=CHANGE,
    )


def _replace_form(name: str, text: str, begin: str) -> FormPage:
    return FormPage(
        title="Rebuild a pipeline",
        heading=fragment("Rebuild ", code(name)),
        here=PIPELINES,
        content=(
            text_field("From", "from", begin, required=True,
                       hint="How far back to start reading the stream: 90m, 12h, 7d, or earliest."),
            document_field("Document, YAML or JSON", "document", text),
        ),
        yes="Rebuild",
        back=f"{PIPELINES}/{name}",
        command=f"hifi pipelines replace FILE --from {begin}" if begin.isalnum() else
        "hifi pipelines replace FILE --from 7d",
        note=" The running pipeline continues until its replacement has caught up with it.",
        hidden={"pipeline": name},
    )  # fmt: skip


CHANGES = {
    TRY: TRIAL,
    NEW: ChangeByForm(new_page, make, DOCUMENT_BYTES_MAX),
    CHANGE: ChangeByForm(change_page, change, DOCUMENT_BYTES_MAX),
    REPLACE: ChangeByForm(replace_page, replace, DOCUMENT_BYTES_MAX),
    GIVE_UP: ChangeByForm(give_up_page, give_up),
    REMOVE: ChangeByForm(remove_page, remove),
}
