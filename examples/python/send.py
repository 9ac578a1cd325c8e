"""Sends events and reports each one's outcome: `python send.py http://127.0.0.1:8080 orders`."""

import sys

from hifi_client import Sender

with Sender(*sys.argv[1:3], spool="hifi-spool") as hifi:
    sent = [hifi.send({"type": "sale", "price": price}) for price in (5, 6, 7)]
    for one in sent:
        outcome = one.wait(30)
        print(outcome.id, outcome.fate, outcome.reason)
