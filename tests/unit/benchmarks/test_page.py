"""The page of benchmarks shows the newest value of each figure, and its history."""

import re
from xml.etree import ElementTree as ET

from benchmarks.page import filled, pictures
from benchmarks.rows import Row

PART = "# Idle\n\n<!-- figures: idle -->\nold figures\n<!-- end -->\n\nIts meaning.\n"
TABLE = """\
# Idle

<!-- figures: idle -->

| figure | newest | measured |
|---|---|---|
| `cores_fresh`: cores, just started | **0.1** (≤ 0.15) | 2026-11-22, c22, EPYC, 2 cores |
| `cores_full`: cores, 300,000 events in the log | **0.2** (≤ 0.15) | 2026-11-20, c20, M3, 4 cores |

<!-- end -->

Its meaning.
"""


def row(day: int, processor: str = "AMD EPYC", **figures: float) -> Row:
    return {
        "bench": "idle",
        "date": f"2026-11-{day}",
        "commit": f"c{day}",
        "cores": 2,
        "processor": processor,
        **figures,
    }


def test_a_part_has_the_newest_of_each_figure_and_other_text_stays() -> None:
    rows = [
        row(20, "M3", cores=4, cores_full=0.2),
        row(21, cores_fresh=0.3),
        row(22, cores_fresh=0.1),
    ]
    assert filled(PART, rows) == TABLE


def test_a_row_that_gives_several_figures_is_named_once() -> None:
    page = filled(PART, [row(20, cores_fresh=0.1, cores_full=0.2)])
    assert page.count("2026-11-20, c20, EPYC") == 1
    assert "| **0.2** (≤ 0.15) |  |" in page


def test_a_page_that_is_filled_again_stays() -> None:
    once = filled(PART, [row(day, cores_fresh=day / 100) for day in range(20, 24)])
    assert "![The past figures of the bench idle](pictures/benchmarks/idle.svg)" in once
    assert filled(once, [row(day, cores_fresh=day / 100) for day in range(20, 24)]) == once


def test_a_picture_has_a_point_for_each_row_and_a_line_for_each_machine() -> None:
    rows = [row(20 + n, processor, cores_fresh=n / 10) for n, processor in enumerate("EXE")]
    ((path, text),) = pictures(rows).items()
    assert path == "pictures/benchmarks/idle.svg"
    drawing = ET.fromstring(text)
    tags = [re.sub(r"\{.*\}", "", each.tag) for each in drawing.iter()]
    assert (tags.count("circle"), tags.count("polyline")) == (3, 2)
    heights = [float(each.attrib["cy"]) for each in drawing.iter() if "cy" in each.attrib]
    assert heights == sorted(heights, reverse=True), "a higher value is a higher point"


def test_two_rows_are_no_past() -> None:
    assert pictures([row(20, cores_fresh=1), row(21, cores_fresh=2)]) == {}


def test_figures_that_are_all_zero_can_be_drawn() -> None:
    assert pictures([row(day, cores_fresh=0.0) for day in range(20, 23)])
