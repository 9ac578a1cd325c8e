"""Receives events with FastAPI: `uvicorn receive_fastapi:app --port 9001`."""

import os

from fastapi import FastAPI

from hifi_client import AsgiReceiver, Receiver


async def take(event: dict[str, object]) -> None:
    """Process an event here; if this raises, Hifi sends the event again."""
    print(event["id"], flush=True)


app = FastAPI()
receiver = Receiver(os.environ["HIFI_SIGNING_SECRET"])
app.add_route("/hifi", AsgiReceiver(receiver, take), methods=["POST"])
