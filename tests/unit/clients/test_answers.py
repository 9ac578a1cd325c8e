"""The meaning of each gateway answer for the events of a request: the cases of all clients."""

import json
from typing import Any

import pytest

from hifi_client import Fate
from hifi_client.sending.answers import read_answer
from tests.tidy import sources

CASES = json.loads((sources.ROOT / "clients" / "contract" / "answers.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=[each["what"] for each in CASES])
def test_an_answer_means_what_the_contract_says(case: dict[str, Any]) -> None:
    read = read_answer(case["status"], case["headers"], case["body"].encode(), case["count"])
    want = case["want"]
    assert want["says"] in read.problem
    assert bool(want["says"]) is bool(read.problem)
    assert {
        "final": sorted(read.final),
        "again": list(read.again),
        "may_be_stored": read.may_be_stored,
        "is_setup": read.is_setup,
        "is_to_be_halved": read.is_to_be_halved,
        "wait_s": read.wait_s,
        "says": want["says"],
    } == want
    assert {verdict.fate for verdict in read.final.values()} <= {Fate.REJECTED}


def test_what_is_said_of_a_rejected_event_is_kept() -> None:
    (case,) = (each for each in CASES if each["what"] == "each event of a 207 has its own verdict")
    verdict = read_answer(207, {}, case["body"].encode(), 4).final[0]
    assert (verdict.code, verdict.reason, verdict.pointer) == ("c", "d", "/p")


def test_an_answer_that_is_nested_too_deeply_is_none() -> None:
    assert read_answer(200, {}, b"[" * 100_000, 1).again == (0,)
