"""Receives events with Flask: `flask --app receive_flask run --port 9002`."""

import os

from flask import Flask, request

from hifi_client import Receiver, Reply


def take(event: dict[str, object]) -> None:
    """Whatever is to be done with an event; what it raises has the event sent again."""
    print(event["id"], flush=True)


app = Flask(__name__)
receiver = Receiver(os.environ["HIFI_SIGNING_SECRET"])


@app.post("/hifi")
def hifi() -> Reply:
    return receiver.answer(request.headers, request.get_data(), take)
