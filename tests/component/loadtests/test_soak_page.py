"""The page of a soak: its figures, its plots, and its findings in words."""

import re
from dataclasses import asdict, replace
from typing import Any
from xml.etree import ElementTree as ET

from benchmarks import machine
from loadtests.reconcile import Ends
from loadtests.soak.course import Course
from loadtests.soak.memory import ProcessMemory
from loadtests.soak.page import soak_page
from loadtests.soak.soaking import wrong

ENDS = Ends(
    acked=36_000,
    delivered=35_900,
    waiting=60,
    dead=40,
    age_ms={"p50": 80.0, "p99": 4_000.0},
    backlog_share=0.0,
    came=[[second, 60] for second in range(600)],
    repeats=12,
    drained_s=3.5,
)
STEADY = ProcessMemory("gateway", 11, [(float(at), 100.0) for at in range(0, 600, 5)])
GROWING = ProcessMemory(
    "delivery, workers", 12, [(float(at), 80 + at / 5) for at in range(0, 600, 5)]
)
YOUNG = ProcessMemory("broker 1", 13, [(400.0, 350.0), (405.0, 360.0)])


def found_with(ends: Ends, *weighed: ProcessMemory, **more: Any) -> dict[str, Any]:
    course = Course(rate=60, duration_s=600)
    found: dict[str, Any] = {
        "course": {**asdict(course), "plan": course.plan},
        "generator": machine.describe() | {"cores_stolen": 0.0},
        "step": {
            "offered": 3_610,
            "unsent": 2,
            "failed": 8,
            "answers": {"200": 3_600, "503": 8},
            "late_ms": {"p50": 0.4, "p99": 3.0},
            "seconds": [[second, 6, 6, 60] for second in range(600)],
        },
        "ends": {**asdict(ends), "unaccounted": ends.unaccounted},
        "lag": [[float(second), 80.0, 300.0] for second in range(600)],
        "faults": [fault("kill gateway", 60, 4.5), fault("freeze broker", 140, 2.0)],
        "deaths": [],
        "memory": [one.told for one in weighed],
        **more,
    }
    return {**found, "wrong": wrong(found, ends)}


def fault(kind: str, at_s: float, well_after_s: float | None) -> dict[str, Any]:
    return {"kind": kind, "at_s": at_s, "for_s": 2.0, "proof": "gone", "well_after_s": well_after_s}


def test_a_soak_that_is_well_says_so_in_figures_and_plots() -> None:
    page = soak_page(found_with(ENDS, STEADY, YOUNG))
    text = " ".join(ET.fromstring(body_of(page)).itertext())
    for said in ("2 of 2", "36,000", "35,900", "60 waiting, 40 dead, 12 twice", "+0.0%", "503"):
        assert said in text
    assert "Faults found" not in text
    assert page.count("<svg") == 5
    assert page.count("<polyline") == 3 + 2 + 1 + 2


def test_what_is_wrong_is_named_one_by_one() -> None:
    lost = replace(ENDS, waiting=58, lost_ids=("r1-0-0000000007", "r1-0-0000000009"))
    found = found_with(
        lost,
        STEADY,
        GROWING,
        faults=[fault("kill delivery", 90, None)],
        deaths=["retrier ended with exit code 1: no room"],
    )
    grown = "delivery, workers (12) has grown by 42%: at most 140 MB in its first minutes, "
    assert found["wrong"] == [
        "2 acknowledged events are unaccounted for: r1-0-0000000007, r1-0-0000000009",
        "kill delivery at 90 s was not survived",
        "unintended: retrier ended with exit code 1: no room",
        f"{grown}199 MB later",
    ]
    text = " ".join(ET.fromstring(body_of(soak_page(found))).itertext())
    assert "Faults found" in text
    assert "0 of 1" in text
    assert found["wrong"][0] in text


def body_of(page: str) -> str:
    found = re.search(r"<body>.*</body>", page, re.DOTALL)
    assert found is not None
    return found[0]
