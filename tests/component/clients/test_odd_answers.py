"""All clients treat cut, late, wrong and foreign answers alike."""

import json
import os
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hifi_client import Sender
from tests.support.gateway.odd_answers import CASES, EVENT_COUNT, TIMEOUT_S, OddGateway, odd_gateway
from tests.support.suite.programs import program
from tests.tidy import sources

CLIENTS = sources.ROOT / "clients"
AT_ONCE = 50
GIVE_UP_S = 40


def python_client(gateway: OddGateway) -> list[list[str]]:
    def fates(nth: int) -> list[str]:
        with Sender(
            gateway.address(nth),
            "orders",
            timeout_s=TIMEOUT_S,
            give_up_s=GIVE_UP_S,
            batch_count_max=EVENT_COUNT,
            linger_s=GIVE_UP_S,
        ) as hifi:
            sent = [hifi.send({"id": f"{nth}-{each}"}) for each in range(EVENT_COUNT)]
            return [str(one.wait(GIVE_UP_S).fate) for one in sent]

    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(fates, range(len(CASES))))


def said_by(command: Sequence[str], folder: Path, gateway: OddGateway) -> list[list[str]]:
    asked = [gateway.url, str(len(CASES)), str(EVENT_COUNT), str(round(TIMEOUT_S * 1000))]
    ended = subprocess.run(
        [*command, *asked],
        cwd=folder,
        env={**os.environ, "GOFLAGS": "-mod=mod", "GOWORK": "off"},
        capture_output=True,
        check=False,
        text=True,
        timeout=500,
    )
    assert ended.returncode == 0, ended.stderr[-2_000:]
    fates: list[list[str]] = json.loads(ended.stdout)
    return fates


def fates_of(client: str, gateway: OddGateway) -> list[list[str]]:
    if client == "python":
        return python_client(gateway)
    if client == "javascript":
        return said_by([program("node"), "trials/odd_answers.js"], CLIENTS / "javascript", gateway)
    return said_by([program("go"), "run", "./trials/oddanswers"], CLIENTS / "go", gateway)


def test_there_are_two_hundred() -> None:
    assert len(CASES) >= 200
    assert len({case.what for case in CASES}) == len(CASES)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("client", ["python", "javascript", "go"])
def test_each_client_makes_of_each_answer_what_it_is(client: str) -> None:
    with odd_gateway() as gateway:
        fates = fates_of(client, gateway)
    wrong = []
    for nth, case in enumerate(CASES):
        tries = gateway.tries.get(nth, 0)
        if tuple(fates[nth]) != case.fates or not case.tries[0] <= tries <= case.tries[1]:
            wrong.append(f"{case.what}: {fates[nth]} after {tries} requests")
    assert not wrong, "\n".join(wrong)
