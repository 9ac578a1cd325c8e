"""Every service says on its metrics port whether it is alive and can work."""

import os
import signal
from pathlib import Path

import httpx
import pytest

from observe.audit.loop import audit_spark
from shared.runtime.spark.session import SparkEndedError, require_running
from tests.support.deploy.stack_fixtures import RunningHifi, wait_until

SERVICES = ("gateway", "delivery", "retrier", "pipelines", "observe")


def probe(hifi: RunningHifi, service: str, path: str) -> tuple[int, str]:
    port = getattr(hifi.stack.settings, f"{service}_metrics_port")
    answer = httpx.get(f"http://127.0.0.1:{port}{path}", timeout=10)
    return answer.status_code, answer.text


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_that_is_up_is_alive_and_ready(hifi: RunningHifi, service: str) -> None:
    assert probe(hifi, service, "/livez") == (200, "alive\n")
    wait_until(
        lambda: probe(hifi, service, "/readyz")[0] == 200,
        what=lambda: f"{service} is ready: {probe(hifi, service, '/readyz')}",
    )


def test_a_session_that_has_ended_ends_its_process(tmp_path: Path, no_spark: None) -> None:
    del no_spark
    with audit_spark(tmp_path, None, heap_mb=512) as session:
        require_running(session)
        # Spark does the same by itself after an error that it cannot recover from.
        session.sparkContext._jsc.sc().stop()
        with pytest.raises(SparkEndedError, match="has ended"):
            require_running(session)


def jvms_of(leader: int) -> list[int]:
    """Return the JVMs that a service has started, by their session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                name, _, rest = (entry / "stat").read_text().rpartition(")")
            except OSError:
                continue
            if name.endswith("(java") and int(rest.split()[3]) == leader:
                found.append(int(entry.name))
    return found


# This takes the minute that Spark is given.
@pytest.mark.long
@pytest.mark.parametrize("service", ["delivery", "observe"])
def test_a_service_whose_spark_stands_still_is_not_alive(hifi: RunningHifi, service: str) -> None:
    says = {"delivery": "Spark", "observe": "the audit's Spark"}[service]
    (jvm,) = jvms_of(hifi.stack.children[service].pid)
    os.kill(jvm, signal.SIGSTOP)
    try:
        wait_until(
            lambda: probe(hifi, service, "/livez")[0] == 503,
            what="the probe reports it",
            timeout_s=120,
        )
        assert probe(hifi, service, "/livez")[1].startswith(f"{says} has not turned for ")
    finally:
        os.kill(jvm, signal.SIGCONT)
    wait_until(lambda: probe(hifi, service, "/livez")[0] == 200, what="the service is alive again")
