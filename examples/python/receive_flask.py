"""Receives events with Flask: `flask --app receive_flask run --port 9002`."""

import os

from flask import Flask, request

from hifi_client import Receiver, Reply


def take(event: dict[str, object]) -> None:
    """Process an event here; if this raises, Hifi sends the event again."""
    print(event["id"], flush=True)


app = Flask(__name__)
receiver = Receiver(os.environ["HIFI_SIGNING_SECRET"])


@app.post("/hifi")
def hifi() -> Reply:
    return receiver.answer(request.headers, request.get_data(), take)
