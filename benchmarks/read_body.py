"""Serves a FastAPI route that only reads its body and answers: the cost of HTTP.

It prints its port. Server and event loop are the same as in the gateway.
"""

import asyncio
import socket

import uvicorn
import uvloop
from fastapi import FastAPI, Request, Response

app = FastAPI()


@app.post("/v1/streams/{stream}/events")  # noqa: FAST003 - the gateway's path
async def read(request: Request) -> Response:
    body = await request.body()
    return Response(b'{"bytes":%d}' % len(body), media_type="application/json")


def main() -> None:
    config = uvicorn.Config(
        app, http="httptools", ws="none", lifespan="off", log_config=None, access_log=False
    )
    with socket.create_server(("127.0.0.1", 0)) as front:
        print(front.getsockname()[1], flush=True)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(uvicorn.Server(config).serve(sockets=[front]))


if __name__ == "__main__":
    main()
