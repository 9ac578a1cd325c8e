"""`hifi up` refuses with one sentence that says what to do, and leaves nothing running."""

import asyncio
import gc
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from deploy.cli import up as command
from deploy.local.ports import pick_free
from deploy.local.services import how_it_ended
from deploy.local.stack import Stack
from deploy.local.stack_settings import StackSettings
from shared.runtime.files.one_owner import own_folder
from shared.runtime.setup_error import SetupError
from tests.support.deploy import cli_runs
from tests.support.deploy.javas import empty_wheel


@pytest.fixture
def settings(tmp_path: Path) -> StackSettings:
    kafka, gateway, sample, *metrics = pick_free(10)
    return StackSettings(
        folder=tmp_path / "data",
        cache=tmp_path / "cache",
        kafka_port=kafka,
        gateway_port=gateway,
        gateway_metrics_port=metrics[0],
        delivery_metrics_port=metrics[1],
        retrier_metrics_port=metrics[2],
        pipelines_metrics_port=metrics[3],
        observe_metrics_port=metrics[4],
        console_port=metrics[5],
        sample_port=sample,
    )


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening


def up(settings: StackSettings, tmp_path: Path, *more: str, **env: str) -> cli_runs.Run:
    options = ["--data", str(settings.folder), *cli_runs.port_options(settings), *more]
    started = cli_runs.run("up", *options, folder=tmp_path / "runs", env=env)
    started.leaves_nothing()
    return started


def refusal(started: cli_runs.Run) -> str:
    """Return the only sentence on standard error."""
    assert started.wait() == 1
    assert "Traceback" not in started.err
    (line,) = started.err.splitlines()
    assert line.startswith("hifi: ")
    assert line.endswith(".")
    return line


def test_a_port_in_use_is_one_sentence(
    settings: StackSettings, listener: socket.socket, tmp_path: Path
) -> None:
    port = listener.getsockname()[1]
    line = refusal(up(settings, tmp_path, "--gateway-port", str(port)))
    assert f"Port {port}" in line
    assert "--gateway-port" in line


@pytest.mark.parametrize(
    "option",
    [
        "--kafka-port",
        "--gateway-port",
        "--gateway-metrics-port",
        "--delivery-metrics-port",
        "--retrier-metrics-port",
        "--pipelines-metrics-port",
        "--observe-metrics-port",
        "--console-port",
        "--sample-port",
    ],
)
def test_each_port_is_asked_for_before_anything_starts(
    option: str, settings: StackSettings
) -> None:
    said: list[str] = []
    stack = Stack(settings, environ=os.environ, say=said.append)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", dict(settings.ports())[option]))
        listening.listen()
        with pytest.raises(SetupError, match=rf"\({option}\), is in use.*another port"):
            stack.start(lambda _: None)
    assert said == []
    assert stack.children == {}


def test_without_java_it_says_how_to_install_it(settings: StackSettings, tmp_path: Path) -> None:
    hidden = str(empty_wheel(tmp_path))
    line = refusal(up(settings, tmp_path, PATH="", JAVA_HOME="", PYTHONPATH=hidden))
    assert "Java 17 or newer is needed" in line
    assert "apt-get install openjdk-17-jre-headless" in line


def test_a_wrong_java_home_is_named(settings: StackSettings, tmp_path: Path) -> None:
    hidden = str(empty_wheel(tmp_path))
    line = refusal(up(settings, tmp_path, PATH="", JAVA_HOME=str(tmp_path), PYTHONPATH=hidden))
    assert f"JAVA_HOME is {tmp_path}" in line


def test_a_corrupt_jar_is_named_with_the_way_to_mend_it(
    settings: StackSettings, tmp_path: Path, jars_cache: Path
) -> None:
    broken = tmp_path / "cache"
    for jar_set in ("broker", "spark"):
        (broken / "jars" / jar_set).mkdir(parents=True)
        for jar in (jars_cache / "jars" / jar_set).glob("*.jar"):
            (broken / "jars" / jar_set / jar.name).symlink_to(jar)
    victim = next((broken / "jars" / "spark").glob("kafka-clients-*.jar"))
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.unlink()
    victim.write_bytes(content)
    line = refusal(up(settings, tmp_path, HIFI_CACHE=str(broken)))
    assert f"{victim} is corrupt" in line
    assert f"rm {victim}" in line


def test_a_second_one_on_the_same_data_names_the_first(
    settings: StackSettings, tmp_path: Path
) -> None:
    with own_folder(settings.folder, what="hifi up"):
        line = refusal(up(settings, tmp_path))
    assert str(settings.folder) in line
    assert f"process {os.getpid()}" in line


def test_a_data_folder_that_cannot_be_made_is_named(
    settings: StackSettings, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    line = refusal(up(settings, tmp_path, "--data", str(tmp_path / "file" / "data")))
    assert f"{tmp_path}/file/data cannot be used (Not a directory): choose another" in line


def test_two_brokers_are_a_mistake_in_the_command(settings: StackSettings, tmp_path: Path) -> None:
    started = up(settings, tmp_path, "--brokers", "2")
    assert started.wait() == 2
    assert "1 or 3 brokers" in started.err


def test_a_folder_that_cannot_be_made_is_one_sentence(
    settings: StackSettings, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    line = refusal(up(settings, tmp_path, "--data", str(tmp_path / "file" / "data")))
    assert str(tmp_path / "file" / "data") in line


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (None, "still runs"),
        (0, "ended with exit code 0"),
        (3, "ended with exit code 3"),
        (-9, "was ended by SIGKILL"),
    ],
)
def test_how_a_process_ended_in_words(code: int | None, says: str) -> None:
    assert how_it_ended(code) == says


class StartingStack:
    """A stack whose start is interrupted while a task of a library runs."""

    has_stopped = False

    def start(self, _: object) -> None:
        asyncio.run(self._wait())

    def stop(self) -> None:
        self.has_stopped = True

    stop_at_once = stop

    async def _wait(self) -> None:
        background = asyncio.create_task(self._interrupt())
        await asyncio.sleep(60)
        await background

    async def _interrupt(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(60)


def test_a_signal_while_a_library_works_is_no_error_of_that_library(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    stack = StartingStack()
    with pytest.raises(typer.Exit) as ended:
        command.run(stack, command._Steps())  # type: ignore[arg-type]
    gc.collect()
    assert ended.value.exit_code == 130
    assert stack.has_stopped
    assert "Interrupted while starting: everything has stopped." in capsys.readouterr().out
    assert [record.message for record in caplog.records] == []
