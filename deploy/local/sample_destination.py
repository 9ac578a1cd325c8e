"""A destination to try Hifi with: it takes everything and shows what arrived.

POST anything to it; GET / is a page for people, GET /events the same as JSON. `?status=503` on a
POST answers with that status, to see what Hifi makes of it.
"""

import html
import json
import os
import time
from collections import deque
from dataclasses import asdict, dataclass
from urllib.parse import parse_qs

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

# What fits on a page that somebody reads.
_KEPT = 100


@dataclass(frozen=True, slots=True)
class Arrived:
    """One event as it came, with what its batch's headers said."""

    at: str
    batch_id: str
    attempt: str
    maybe_duplicate: bool
    event: str


class Sample:
    """Keeps the last events, and counts all."""

    def __init__(self) -> None:
        self.count = 0
        self.last: deque[Arrived] = deque(maxlen=_KEPT)

    async def take(self, request: Request) -> Response:
        body = await request.body()
        wanted = parse_qs(request.url.query).get("status")
        if wanted:
            return PlainTextResponse("as you asked", status_code=int(wanted[0]))
        try:
            events = json.loads(body)
        except ValueError:
            return PlainTextResponse("this is not JSON", status_code=400)
        headers = request.headers
        for event in events if isinstance(events, list) else [events]:
            self.count += 1
            self.last.appendleft(
                Arrived(
                    at=time.strftime("%H:%M:%S"),
                    batch_id=headers.get("webhook-id", ""),
                    attempt=headers.get("hifi-attempt", ""),
                    maybe_duplicate="hifi-maybe-duplicate" in headers,
                    event=json.dumps(event, ensure_ascii=False),
                )
            )
        return PlainTextResponse("ok")

    async def show(self, _: Request) -> Response:
        rows = "".join(
            f"<tr><td>{one.at}<td>{html.escape(one.batch_id)}<td>{html.escape(one.attempt)}"
            f"<td>{'maybe' if one.maybe_duplicate else ''}"
            f"<td><code>{html.escape(one.event)}</code>"
            for one in self.last
        )
        return HTMLResponse(_PAGE.format(count=self.count, rows=rows))

    async def list(self, _: Request) -> Response:
        return JSONResponse({"count": self.count, "last": [asdict(one) for one in self.last]})


_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8">
<meta http-equiv="refresh" content="2">
<meta name="viewport" content="width=device-width">
<title>{count} events arrived</title>
<style>
 :root {{ color-scheme: light dark }}
 body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 70rem;
         margin: 2rem auto; padding: 0 1rem }}
 h1 {{ font-size: 1.3rem; font-weight: 600 }}
 table {{ border-collapse: collapse; width: 100% }}
 th, td {{ text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #8884;
           vertical-align: top }}
 code {{ overflow-wrap: anywhere }}
</style>
<h1>{count} events arrived at the sample destination</h1>
<table><tr><th>time<th>batch<th>attempt<th>duplicate<th>event</tr>{rows}</table>
"""


def create_app() -> Starlette:
    sample = Sample()
    return Starlette(
        routes=[
            Route("/", sample.take, methods=["POST"]),
            Route("/", sample.show, methods=["GET"]),
            Route("/events", sample.list, methods=["GET"]),
        ]
    )


def main() -> None:
    uvicorn.run(
        create_app(),
        host="127.0.0.1",
        port=int(os.environ.get("HIFI_SAMPLE_PORT", "8090")),
        log_level="warning",
        access_log=False,
    )


if __name__ == "__main__":
    main()
