"""A destination to try Hifi with: it accepts everything and shows what arrived.

POST anything to it; GET / is a page for people, GET /events the same as JSON. An event can ask for
a refusal, to show how Hifi reacts: `"answer_once": 503` refuses its first attempt,
`"answer_always": 400` every attempt.
"""

import html
import json
import time
from collections import deque
from dataclasses import asdict, dataclass
from importlib.resources import files
from string import Template
from typing import Any

import uvicorn
from pydantic_settings import BaseSettings, SettingsConfigDict
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from deploy.local.services import SAMPLE_TITLE
from shared.runtime import defaults
from shared.runtime.settings import Port, read_settings

# As many events as fit on a page for people.
_KEPT = 100


@dataclass(frozen=True, slots=True)
class ArrivedEvent:
    """One event as it arrived, with the headers of its batch."""

    at: str
    batch_id: str
    attempt: str
    maybe_duplicate: bool
    event: str


class SampleDestination:
    """Keeps the latest events, and counts all."""

    def __init__(self) -> None:
        self.count = 0
        self.last: deque[ArrivedEvent] = deque(maxlen=_KEPT)

    async def take(self, request: Request) -> Response:
        headers = request.headers
        attempt = headers.get("hifi-attempt", "")
        events = _opened(await request.body())
        for event, _ in events:
            if wanted := _wanted_status(event, is_first=attempt in {"", "1"}):
                return PlainTextResponse("an event asked for this answer", status_code=wanted)
        for _, text in events:
            self.count += 1
            self.last.appendleft(
                ArrivedEvent(
                    at=time.strftime("%H:%M:%S"),
                    batch_id=headers.get("webhook-id", ""),
                    attempt=attempt,
                    maybe_duplicate="hifi-maybe-duplicate" in headers,
                    event=text,
                )
            )
        return PlainTextResponse("ok")

    async def show(self, _: Request) -> Response:
        table = f"<table>{_HEADS}{''.join(map(_row, self.last))}</table>" if self.last else _NONE
        events = "event arrived" if self.count == 1 else "events arrived"
        return HTMLResponse(
            _PAGE.substitute(
                title=SAMPLE_TITLE, kept=_KEPT, count=f"{self.count:,}", events=events, table=table
            )
        )

    async def list(self, _: Request) -> Response:
        return JSONResponse(
            {"count": self.count, "last": [asdict(arrived) for arrived in self.last]}
        )


def _opened(body: bytes) -> list[tuple[Any, str]]:
    """Return each event with a text to show; a body that is not JSON is shown as it came."""
    try:
        read = json.loads(body)
        events = read if isinstance(read, list) else [read]
        texts = [json.dumps(event, ensure_ascii=False) for event in events]
    except (ValueError, RecursionError):
        events, texts = [None], [body.decode(errors="replace")]
    # Half a surrogate pair is valid JSON, but not valid UTF-8.
    shown = [text.encode(errors="replace").decode() for text in texts]
    return list(zip(events, shown, strict=True))


def _wanted_status(event: Any, *, is_first: bool) -> int | None:
    """Return the refusal that the event asks for, if any."""
    if not isinstance(event, dict):
        return None
    wanted = event.get("answer_always") or (event.get("answer_once") if is_first else None)
    # RFC 9110's classes of refusals.
    return wanted if isinstance(wanted, int) and 300 <= wanted <= 599 else None  # noqa: PLR2004


_PAGE = Template(files("deploy.local").joinpath("sample_page.html").read_text())
_NONE = '<div class="none">Nothing has arrived yet. Send an event, and it shows up here.</div>'
_HEADS = "<tr><th>Time<th>Batch<th>Attempt<th>Event"


def _row(event: ArrivedEvent) -> str:
    maybe = ' <span class="maybe">may be a duplicate</span>' if event.maybe_duplicate else ""
    return (
        f'<tr><td class="quiet">{event.at}<td class="quiet">'
        f"<code>{html.escape(event.batch_id)}</code>"
        f"<td>{html.escape(event.attempt)}{maybe}<td><code>{html.escape(event.event)}</code>"
    )


def create_app() -> Starlette:
    sample = SampleDestination()
    return Starlette(
        routes=[
            Route("/", sample.take, methods=["POST"]),
            Route("/", sample.show, methods=["GET"]),
            Route("/events", sample.list, methods=["GET"]),
        ]
    )


class SampleSettings(BaseSettings):
    """Has HIFI_SAMPLE_PORT and HIFI_SAMPLE_HOST, which is loopback by default."""

    model_config = SettingsConfigDict(env_prefix="HIFI_SAMPLE_", frozen=True)

    host: str = defaults.HOST
    port: Port = defaults.SAMPLE_PORT


def main() -> None:
    settings = read_settings(SampleSettings, program="hifi sample")
    uvicorn.run(
        create_app(),
        host=settings.host,
        port=settings.port,
        log_level="warning",
        access_log=False,
    )


if __name__ == "__main__":
    main()
