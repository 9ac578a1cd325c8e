"""The console shows a destination's answers as text, whatever they contain."""

import re
from dataclasses import replace

import httpx
from msgspec import structs

from shared.proof.last_answer import FailedTry
from tests.support.console.console_fixtures import configure, found_event, running_console


def test_a_hostile_answer_is_text_on_the_page_of_an_event() -> None:
    found = found_event("e-1; reboot")
    hostile = FailedTry(1, "status_500", 4, 500, "<script>alert(1)</script>", {"server": "<b>"})
    refused = structs.replace(found.trail.receipts[0], failed_tries=(hostile,))
    trail = replace(found.trail, receipts=[refused])
    with running_console("off") as console:
        configure(console)
        console.events.found["orders", "e-1; reboot"] = replace(found, trail=trail)
        page = httpx.get(f"{console.url}/events?stream=orders&id=e-1%3B reboot").text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script>alert" not in page
    assert "<b>" not in page
    # People paste the shown command into a shell, so it names the event by its place.
    (command,) = re.findall(r"<code>(hifi events resend [^<]*)</code>", page)
    assert re.fullmatch(r"hifi events resend orders --place \d+:\d+ --destination NAME", command)
