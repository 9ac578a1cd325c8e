"""Delivery, retrier and observe stop, and start again on machines without their old folders."""

import shutil
from collections import Counter
from pathlib import Path

import pytest

from deploy.cli.events.verify import PUBLIC
from shared.config.destination import Destination
from shared.event.times import MINUTE_MS, minute_of
from shared.runtime.clock import now_ms
from tests.support.deploy import cli_runs
from tests.support.deploy.stack_fixtures import PATIENCE_S, RunningHifi
from tests.support.servers.scripted_destination import Reply, Request, always, scripted_destination

pytestmark = pytest.mark.integration


def fail_first(_: int, request: Request) -> Reply:
    return Reply(503 if request.headers["hifi-attempt"] == "1" else 200)


def events(name: str, minute_ms: int) -> list[dict[str, object]]:
    return [{"id": f"{name}{number}", "time_ms": minute_ms + 7} for number in range(20)]


def test_all_goes_on_where_it_was_and_statements_follow_those_of_before(
    hifi: RunningHifi, tmp_path: Path
) -> None:
    data = hifi.stack.settings.folder
    first_ms = minute_of(now_ms()) - 4 * MINUTE_MS

    def is_complete(minute_ms: int, *names: str) -> bool:
        mine = tmp_path / "ids.txt"
        ids = [str(event["id"]) for name in names for event in events(name, minute_ms)]
        mine.write_text("\n".join(ids))
        where = ["--stream", "moved", "--gateway", hifi.gateway, "--minute", str(minute_ms)]
        # The command checks the chain, here from the first statement on.
        asked = cli_runs.run(
            "verify", *where, "--data", str(data), "--ids", str(mine), folder=tmp_path
        )
        asked.wait()
        return asked.out == "complete\n"

    def stop(name: str) -> None:
        child = hifi.stack.children[name]
        assert child.stop(PATIENCE_S), f"{name} had to be killed"

    with scripted_destination(fail_first) as destination:
        to = Destination(stream="moved", name="to", url=destination.url)
        hifi.add(to)
        assert hifi.post("moved", events("settled", first_ms)).status_code == 200
        hifi.wait_until_stated("moved", first_ms, 20)
        assert is_complete(first_ms, "settled")
        key = (data / "observe" / PUBLIC).read_text()

        stop("retrier")
        second_ms = first_ms + MINUTE_MS
        assert hifi.post("moved", events("waiting", second_ms)).status_code == 200
        hifi.wait_for_balance(to.id, lambda books: books.waiting == 20, what="20 wait")
        stop("delivery")
        stop("observe")
        assert hifi.post("moved", events("unsent", second_ms)).status_code == 200
        for name in ("delivery", "retrier", "observe"):
            shutil.rmtree(data / name)
        before, destination.script = len(destination.requests), always(200)
        hifi.stack.restarts.forgive()
        hifi.stack.look_after()

        hifi.wait_until_stated("moved", second_ms, 40)
        assert is_complete(second_ms, "waiting", "unsent")
        balance = hifi.wait_for_balance(
            to.id, lambda books: books.delivered == 60, what="all events have arrived"
        )
        later = destination.requests[before:]
        sent = Counter(event["id"] for request in later for event in request.events)
        assert sent == Counter(
            event["id"] for name in ("waiting", "unsent") for event in events(name, second_ms)
        )
        assert is_complete(first_ms, "settled")
        assert (data / "observe" / PUBLIC).read_text() == key
        assert balance.unaccounted == 0
