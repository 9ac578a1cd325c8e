"""Every surface shows a destination in trouble within 15 s of its first outcome in Kafka.

Here the delays in between are added up; `tests/integration/observe/test_first_screen.py` measures
the same with a clock, in its long form.
"""

import re

from console.live import STEP_S
from deploy.alerts.rules import GROUPS, INTERVALS_S, NOTE_S, NOTES, SCRAPE_S
from observe.lag.live_books import POLL_S
from observe.lag.sampler import SAMPLE_S
from observe.lag.trouble import HOPELESS_MS
from tests.tidy import sources

# The longest time for anything except waiting for the next turn: to judge, to fetch.
_WORK_S = 0.5
KNOWN_S = HOPELESS_MS / 1000 + POLL_S + SAMPLE_S + _WORK_S


def test_the_alert_is_true_within_15_s() -> None:
    assert KNOWN_S + SCRAPE_S + NOTE_S <= 15
    assert GROUPS["hifi-notes"] == NOTES
    assert INTERVALS_S["hifi-notes"] == NOTE_S
    assert {(note.for_, note.severity) for note in NOTES} == {("0s", "note")}


def test_console_status_and_api_say_it_sooner() -> None:
    assert KNOWN_S + STEP_S <= 6


def test_the_page_about_prometheus_has_it_ask_as_often() -> None:
    page = (sources.ROOT / "docs" / "console.md").read_text()
    assert re.findall(r"scrape_interval: (\w+)", page) == [f"{SCRAPE_S}s"]
