"""Every program refuses a wrong variable with one sentence and exit code 2."""

import os
import subprocess
import sys

import pytest

HIFI = ("deploy.cli.app",)
# The module and its arguments, the variable, a wrong value.
WRONG = [
    (("gateway",), "HIFI_GATEWAY_PORT", "many"),
    (("gateway",), "HIFI_GATEWAY_LOG_LEVEL", "loud"),
    (("gateway",), "HIFI_SECRET_KEYS", "hunter2"),
    (("gateway",), "HIFI_GATEWAY_OPERATOR_KEY", "hunter2"),
    (("gateway",), "HIFI_GATEWAY_OBSERVE", "observe:8084"),
    (("gateway",), "HIFI_KAFKA_REPLICAS", "many"),
    (("gateway",), "HIFI_KAFKA_PASSWORD", "hunter2"),
    (("delivery",), "HIFI_KAFKA_PROTOCOL", "TLS"),
    (("delivery",), "HIFI_DELIVERY_TASK_PLACES", "3"),
    (("delivery",), "HIFI_DELIVERY_LOG_LEVEL", "loud"),
    (("delivery",), "HIFI_SPARK_MASTER", "local[4]"),
    (("delivery",), "HIFI_SPARK_MASTER", "yarn"),
    (("delivery",), "HIFI_SECRET_KEYS", "hunter2"),
    (("retrier",), "HIFI_RETRIER_LOOK_S", "soon"),
    (("retrier",), "HIFI_SPARK_MASTER", "yarn"),
    (("retrier",), "HIFI_SECRET_KEYS", "hunter2"),
    (("pipelines",), "HIFI_PIPELINES_TIME_BOX_S", "soon"),
    (("pipelines",), "HIFI_SPARK_MASTER", "yarn"),
    (("observe",), "HIFI_OBSERVE_HEAP_MB", "1"),
    (("observe",), "HIFI_OBSERVE_CONSOLE_PORT", "70000"),
    (("deploy.local.sample_destination",), "HIFI_SAMPLE_PORT", "many"),
    ((*HIFI, "gateway"), "HIFI_GATEWAY_AUTH", "perhaps"),
    ((*HIFI, "gateway"), "HIFI_GATEWAY_WORKERS", "0"),
    ((*HIFI, "up"), "HIFI_UP_KAFKA_PORT", "many"),
]


@pytest.mark.parametrize(
    ("command", "variable", "value"), WRONG, ids=lambda value: " ".join(value).split(".")[-1]
)
def test_a_wrong_variable_is_one_sentence_and_exit_2(
    command: tuple[str, ...], variable: str, value: str
) -> None:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("HIFI_")}
    ended = subprocess.run(
        [sys.executable, "-m", *command],
        env={**inherited, variable: value},
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 2, ended.stderr
    (sentence,) = ended.stderr.splitlines()
    assert sentence.startswith("hifi")
    assert variable in sentence
    assert "hunter2" not in sentence
    assert ended.stdout == ""
