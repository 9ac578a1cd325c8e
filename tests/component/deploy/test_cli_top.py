"""`hifi top`: its output, and its error when there is no console."""

import json
from dataclasses import replace

from typer.testing import CliRunner, Result

from deploy.cli.commands import app
from deploy.cli.printing import out
from shared.config.access import ApiKey, new_text, secret_from
from shared.runtime.setup_error import UsageError
from tests.support.console.console_fixtures import RunningConsole, configure, overview


def top(url: str, *arguments: str, **env: str) -> Result:
    # A new process would measure its terminal; here the cached `console` must be dropped.
    vars(out).pop("console", None)
    return CliRunner().invoke(app, ["top", "--console", url, *arguments], env=env)


def problem_of(result: Result) -> str:
    assert isinstance(result.exception, UsageError), result.output
    return str(result.exception)


def test_once_prints_what_the_console_says(console: RunningConsole) -> None:
    console.show(overview(unaccounted=3))
    printed = top(console.url, "--once", COLUMNS="200")
    assert printed.exit_code == 0
    assert "3 events are unaccounted for in orders/billing." in printed.stdout
    lines = printed.stdout.splitlines()
    (billing,) = [line for line in lines if line.strip().startswith("orders/billing ")]
    assert "LOSING" in billing
    assert "10,004" in billing
    assert "✗" in billing
    assert "d" in billing
    assert "p95 is 4.1 s" in printed.stdout


def test_json_is_the_overview_itself(console: RunningConsole) -> None:
    shown = json.loads(top(console.url, "--json").stdout)
    assert shown["verdict"] == "SLOW"
    assert shown["headline"].startswith("orders/lake is slow: p95")
    (billing, lake) = shown["streams"][0]["destinations"]
    assert billing["balance"]["acked"] == 10_004
    # The stages' times add up to the mean time from acceptance to delivery.
    whole_ms = lake["since_accepted"]["mean_ms"]
    assert abs(sum(lake["time_shares"].values()) - whole_ms) < 0.01 * whole_ms


def test_no_console_is_one_sentence() -> None:
    assert "No console answers at http://127.0.0.1:9" in problem_of(top("http://127.0.0.1:9"))


def test_something_else_that_answers_is_no_console(console: RunningConsole) -> None:
    problem = problem_of(top(f"{console.url}/static/logo.svg?", "--once"))
    assert "is not a Hifi console" in problem


def test_a_locked_console_wants_a_key(locked_console: RunningConsole) -> None:
    text = new_text(kind="secret", key_id="ops", entropy=b"o" * 20)
    key = ApiKey("ops", (secret_from(text, signs=False),), scopes=frozenset({"read"}))
    configure(locked_console, key)
    assert "HIFI_API_KEY" in problem_of(top(locked_console.url, "--once"))
    assert top(locked_console.url, "--once", HIFI_API_KEY=text).exit_code == 0


def test_what_events_say_moves_no_cursor(console: RunningConsole) -> None:
    shown = overview()
    stream = shown.streams[0]
    evil = "\x1b[2J\x1b]0;pwned\x07"
    bad = replace(stream.destinations[1], reason=evil)
    console.show(replace(shown, streams=(replace(stream, destinations=(bad,)),)))
    printed = top(console.url, "--once", COLUMNS="200").stdout
    assert "\x1b" not in printed
    assert "\\x1b[2J" in printed


def test_a_narrow_terminal_gets_fewer_columns_and_no_half_numbers(console: RunningConsole) -> None:
    for width, shows in (("80", ()), ("100", ("delivered",)), ("150", ("lag by stage", "acked"))):
        printed = top(console.url, "--once", COLUMNS=width).stdout
        head = next(line for line in printed.splitlines() if "destination" in line)
        assert "…" not in printed, printed
        assert len(head) <= int(width)
        for column in ("verdict", "p95", "waiting", "dead", "unaccounted", *shows):
            assert column in head, (width, column)


def test_status_asks_the_console_where_one_is_named_and_no_kafka(console: RunningConsole) -> None:
    console.show(replace(overview(unaccounted=3), problem="Kafka has not answered for 9 s"))
    asked = ["status", "--console", console.url]
    printed = CliRunner().invoke(app, asked)
    assert printed.exit_code == 0
    lines = [line.split() for line in printed.stdout.splitlines()]
    (billing,) = [line for line in lines if line[:2] == ["orders", "billing"]]
    assert billing[2:4] == ["LOSING", "10,004"]
    assert "kafka" not in printed.stdout
    assert "Kafka has not answered for 9 s" in printed.stderr
    shown = json.loads(CliRunner().invoke(app, [*asked, "-o", "json"]).stdout)
    assert {row["destination"] for row in shown["books"]} == {"billing", "lake", "stats"}
    names = CliRunner().invoke(app, [*asked[:1], "-o", "name"], env={"HIFI_CONSOLE": console.url})
    assert names.stdout.split() == ["orders/billing", "orders/lake", "players/stats"]
    # `--kafka` takes precedence over `--console`.
    both = CliRunner().invoke(app, [*asked, "--kafka", "127.0.0.1:1"])
    assert "No Kafka broker answers at 127.0.0.1:1" in str(both.exception)
    gone = CliRunner().invoke(app, ["status", "--console", "http://127.0.0.1:9"])
    assert "No console answers" in problem_of(gone)
