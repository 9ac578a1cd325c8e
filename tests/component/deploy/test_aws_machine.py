"""The programs of an AWS machine, against a metadata service and a secret store on loopback."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from deploy.aws.machine.boot import environment_file, prepare
from deploy.aws.machine.calls import signed_headers
from deploy.aws.machine.instance import ADDRESS, Instance
from deploy.aws.machine.load import GatewayUse, MetricsPage, delivery_load, disk_wait
from deploy.aws.machine.units import units
from shared.runtime.setup_error import SetupError
from tests.support.deploy.fake_aws import FakeAws, fake_aws, machine_config
from tests.support.deploy.stack_fixtures import wait_until
from tests.support.servers.own_network import own_network
from tests.support.suite import programs

ROOT = Path(__file__).parents[3]
GATEWAY = {
    "secrets": ["user", "seal"],
    "env": {"HIFI_GATEWAY_WORKERS": "2"},
    "ready": ["http://127.0.0.1:1/readyz"],
    "live": ["http://127.0.0.1:1/livez"],
}
SECRETS = {
    "user": {"username": "gateway", "password": 'p"$`\\x'},
    "seal": {"HIFI_SECRET_KEYS": "key"},
}
PROGRAM = (sys.executable, "-m", "deploy.aws.machine")


@pytest.fixture
def aws() -> Iterator[FakeAws]:
    with fake_aws() as fake:
        fake.config = machine_config(fake, gateway=GATEWAY)
        fake.secrets = dict(SECRETS)
        yield fake
        assert fake.refused == []


def program(aws: FakeAws, *arguments: str, **more: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*PROGRAM, *arguments, "--metadata", aws.address],
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        **more,
    )


def test_a_signature_is_as_aws_has_published_it() -> None:
    # `post-x-www-form-urlencoded` of AWS' own test suite, with its key and its time.
    key = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
    headers = signed_headers(
        {"AccessKeyId": "AKIDEXAMPLE", "SecretAccessKey": key},
        "service",
        "us-east-1",
        method="POST",
        url="https://example.amazonaws.com/",
        body=b"Param1=value1",
        headers={"content-type": "application/x-www-form-urlencoded"},
        at_ms=1_440_938_160_000,
    )
    assert headers["authorization"].endswith(
        "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"
    )


def test_a_boot_writes_what_services_are_told_and_only_root_may_read_it(
    aws: FakeAws, tmp_path: Path
) -> None:
    aws.config["files"] = {"prometheus.yml": {"replica": "INSTANCE"}}
    ended = program(aws, "boot", "--folder", str(tmp_path / "run"))
    assert ended.wait(timeout=30) == 0, ended.communicate()
    ended.communicate()
    path = tmp_path / "run" / "gateway.env"
    assert path.stat().st_mode & 0o777 == 0o600
    # A shell reads double quotes as systemd does.
    shown = subprocess.run(
        ["/bin/sh", "-c", f"set -a; . {path}; env -0"],
        capture_output=True,
        check=True,
        env={},
    ).stdout.decode()
    found = dict(line.split("=", 1) for line in shown.split("\0") if line.startswith("HIFI_"))
    assert found == {
        "HIFI_GATEWAY_WORKERS": "2",
        "HIFI_GATEWAY_BOOTSTRAP_SERVERS": "127.0.0.1:9092",
        "HIFI_KAFKA_USER": "gateway",
        "HIFI_KAFKA_PASSWORD": 'p"$`\\x',
        "HIFI_SECRET_KEYS": "key",
    }
    replica = json.loads((tmp_path / "run" / "prometheus.yml").read_text())
    assert replica == {"replica": "i-1"}


def test_a_boot_needs_nothing_but_metadata_and_aws(tmp_path: Path) -> None:
    # The network has a single address, so a boot that fetched anything else would fail.
    host = ADDRESS.removeprefix("http://")
    with own_network(host), fake_aws(host, 80) as aws:
        aws.config = machine_config(aws, gateway=GATEWAY)
        aws.secrets = dict(SECRETS)
        boot = [*PROGRAM, "boot", "--folder", str(tmp_path)]
        ended = subprocess.run(boot, capture_output=True, cwd=ROOT, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert "HIFI_KAFKA_PASSWORD" in (tmp_path / "gateway.env").read_text()


def test_a_secret_without_a_value_is_said_in_a_sentence(aws: FakeAws, tmp_path: Path) -> None:
    del aws.secrets["seal"]
    with pytest.raises(SetupError, match=r"The secret seal cannot be read: .* no value yet"):
        prepare(Instance(aws.address), tmp_path)


def test_a_machine_without_user_data_says_so(aws: FakeAws, tmp_path: Path) -> None:
    aws.config = {}
    ended = program(aws, "boot", "--folder", str(tmp_path))
    _, said = ended.communicate(timeout=30)
    assert ended.returncode == 1
    assert said == (
        "hifi-boot: This machine has no user data: it was not started from the template.\n"
    )


def test_a_variable_has_one_line() -> None:
    with pytest.raises(SetupError, match="NAME has a line break"):
        environment_file({"NAME": "a\nb"})


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        ("spot/instance-action", "{}", "spot"),
        ("autoscaling/target-lifecycle-state", "Terminated", "scaled in"),
    ],
)
def test_a_machine_that_is_to_end_stops_its_services_and_says_so(
    aws: FakeAws, tmp_path: Path, path: str, value: str, why: str
) -> None:
    stopped = tmp_path / "stopped"
    (tmp_path / "systemctl").write_text(f'#!/bin/sh\necho "$@" > {stopped}\n')
    (tmp_path / "systemctl").chmod(0o755)
    ready = _page_server({"/readyz": "ready"})
    aws.config["services"]["gateway"] |= {"ready": [f"{ready}/readyz"]}
    aws.metadata["autoscaling/target-lifecycle-state"] = "InService"
    staying = program(aws, "stay", "--every", "0.05", env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    wait_until(lambda: bool(aws.called("SignalResource")), what="it is ready", timeout_s=30)
    (started,) = aws.called("CompleteLifecycleAction")
    assert (started["LifecycleHookName"], started["InstanceId"]) == ("start", "i-1")
    aws.metadata[path] = value
    _, said = staying.communicate(timeout=30)
    assert staying.returncode == 0, said
    assert f"ending: {why}" in said
    assert stopped.read_text() == "stop hifi-gateway.service\n"
    assert aws.calls[-1]["LifecycleHookName"] == "end"


def test_a_service_that_does_not_live_is_started_again(aws: FakeAws, tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    (tmp_path / "systemctl").write_text(f'#!/bin/sh\necho "$@" >> {asked}\n')
    (tmp_path / "systemctl").chmod(0o755)
    here = _page_server({"/readyz": "ready", "/livez": "alive"})
    aws.config["services"]["gateway"] |= {"ready": [f"{here}/readyz"]}
    aws.config["services"]["delivery"] = {"ready": [f"{here}/readyz"], "live": [f"{here}/livez"]}
    staying = program(aws, "stay", "--every", "0.02", env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    # Nothing answers /livez of the gateway.
    wait_until(asked.exists, what="a service is started again", timeout_s=30)
    aws.notice()
    staying.communicate(timeout=30)
    done = asked.read_text().splitlines()
    assert set(done[:-1]) == {"--no-block restart hifi-gateway.service"}
    assert done[-1] == "stop hifi-gateway.service hifi-delivery.service"


def test_load_leaves_out_who_waits_for_a_destination() -> None:
    p95 = 'stage="end to end",since="accepted",percentile="95"'
    rows = [
        "hifi_observe_lease_up 1",
        'hifi_observe_events_per_second{stream="s"} 1000',
        *(
            row
            for name, word, backlog in (("well", "OK", 1_800), ("dead", "FAILING", 10**9))
            for row in (
                f'hifi_observe_verdict{{destination="s/{name}",verdict="{word}",cause=""}} 1',
                f'hifi_observe_backlog_events{{destination="s/{name}"}} {backlog}',
                f'hifi_observe_lag_seconds{{destination="s/{name}",{p95}}} {backlog / 1_000}',
            )
        ),
        # Two thirds of the backlog wait for their next attempt.
        'hifi_observe_waiting_events{destination="s/well",cause="failed attempt"} 1200',
        'hifi_observe_waiting_events{destination="s/well",cause="parked"} 240',
    ]
    known = delivery_load(MetricsPage("\n".join(rows)), rating=1_000)
    assert known is not None
    # 1,000 events/s, and a backlog of 360 to drain within 180 s.
    assert known[0] == pytest.approx(1.002)
    assert known[1] == 1.8
    rows[0] = "hifi_observe_lease_up 0"
    assert delivery_load(MetricsPage("\n".join(rows)), rating=1_000) is None


def test_a_gateway_uses_what_came_since_the_last_look() -> None:
    use = GatewayUse(rating=1_000)
    name = "hifi_gateway_events_total"

    def seen(count: int, at_s: float) -> float | None:
        page = MetricsPage(f'{name}{{stream="s",result="accepted"}} {count}')
        return use.seen([page, page], at_s)

    assert seen(100, 0) is None
    assert seen(2_600, 10) == pytest.approx(0.5)
    # A worker was restarted, and counts from 0.
    assert seen(5, 20) is None
    assert seen(5, 30) == 0


def test_both_figures_are_published_for_the_group(aws: FakeAws) -> None:
    page = """
hifi_observe_lease_up 1
hifi_observe_events_per_second{stream="s"} 3000
hifi_observe_backlog_events{destination="s/d"} 0
"""
    aws.in_service = 3
    aws.config["load"] = {
        "what": "delivery",
        "group": "hifi-prod-workers",
        "rating": 500.0,
        "pages": [f"{_page_server({'/metrics': page})}/metrics"],
    }
    publishing = program(aws, "load", "--every", "0.1")
    wait_until(lambda: len(aws.called("PutMetricData")) > 2, what="figures", timeout_s=30)
    publishing.terminate()
    publishing.communicate(timeout=10)
    # The group's disk wait comes first, if the kernel measures it.
    calls = aws.called("PutMetricData")
    waits = [call for call in calls if call["MetricData.member.1.MetricName"] == "DiskWaitPercent"]
    assert len(waits) == Path("/proc/pressure/io").exists()
    assert {call["MetricData.member.1.Dimensions.member.1.Value"] for call in waits} <= {
        "hifi-prod-gateway"
    }
    call = next(call for call in calls if call not in waits)
    assert call["MetricData.member.1.MetricName"] == "LoadPerMachine"
    assert float(call["MetricData.member.1.Value"]) == 2.0
    assert call["MetricData.member.1.StorageResolution"] == "1"
    assert call["MetricData.member.2.MetricName"] == "LagSeconds"
    assert call["MetricData.member.1.Dimensions.member.1.Value"] == "hifi-prod-workers"


def test_how_long_a_disk_was_waited_for_is_what_the_kernel_says(tmp_path: Path) -> None:
    said = tmp_path / "io"
    said.write_text(
        "some avg10=1.00 avg60=12.34 avg300=5.00 total=77\n"
        "full avg10=0.50 avg60=6.00 avg300=2.00 total=33\n"
    )
    assert disk_wait(said) == {"DiskWaitPercent": 12.34}
    assert disk_wait(tmp_path / "none") == {}


def test_units_start_where_there_is_a_file_for_them_and_have_time_to_end() -> None:
    found = units()
    for name in ("gateway", "delivery", "retrier", "pipelines", "observe"):
        text = found[f"hifi-{name}.service"]
        assert f"ConditionPathExists=/run/hifi/{name}.env" in text
        # The times for the notice, the last answers and work in progress (docs/fleet.md).
        assert int(text.split("TimeoutStopSec=")[1].split()[0]) > 15 + 5 + 45
        assert "User=hifi" in text
    assert all("[Install]" in text for text in found.values())


def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    analyze = programs.program("systemd-analyze")
    here = str(Path(sys.executable).parent)
    for name, text in units().items():
        commands = text.replace("/opt/hifi/.venv/bin", here)
        (tmp_path / name).write_text(commands.replace("/usr/bin/prometheus", "/bin/true"))
    verify = [analyze, "verify", "--man=no", *map(str, tmp_path.iterdir())]
    ended = subprocess.run(verify, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")


def _page_server(pages: dict[str, str]) -> str:
    """Serve texts until the tests end, and return the server's address."""

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(pages[self.path].encode())

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"
