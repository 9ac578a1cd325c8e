"""Sends from asyncio: `python send_async.py http://127.0.0.1:8080 orders`."""

import asyncio
import sys

from hifi_client import AsyncSender


async def main() -> None:
    async with AsyncSender(*sys.argv[1:3], compression="gzip") as hifi:
        sent = [await hifi.send({"type": "sale", "price": price}) for price in (5, 6, 7)]
        for outcome in await asyncio.gather(*sent):
            print(outcome.id, outcome.fate, outcome.reason)


asyncio.run(main())
