"""The chart's values, templates and schema fit the programs, without helm."""

import re
import tomllib
from typing import Any, get_args

import pytest
import yaml
from jsonschema_rs import Draft7Validator
from pydantic_settings import BaseSettings

from delivery.settings import DeliverySettings
from deploy.alerts.rule_file import rule_file
from deploy.dashboards.boards import boards
from deploy.scaling.load_query import load_query
from gateway.settings import Settings
from observe.settings import ConsoleSettings, ObserveSettings
from pipelines.settings import PipelinesSettings
from retrier.settings import RetrierSettings
from shared.runtime import defaults
from shared.runtime.kafka.settings import KafkaAccess, Mechanism
from shared.runtime.settings import TopicSettings
from shared.runtime.tracing.settings import OtelSettings, OtlpSettings
from tests.support.deploy.chart import CHART, EXAMPLES, ROLES, SCHEMA, defined, templates, values
from tests.tidy.sources import ROOT

ROLE_SETTINGS: dict[str, tuple[type[BaseSettings], ...]] = {
    "gateway": (Settings,),
    "delivery": (DeliverySettings,),
    "retrier": (RetrierSettings,),
    "pipelines": (PipelinesSettings,),
    "observe": (ObserveSettings, ConsoleSettings),
    "topics": (TopicSettings,),
}
OF_ALL: tuple[type[BaseSettings], ...] = (KafkaAccess, OtlpSettings, OtelSettings)
# Commands read these as options; docs/command-line.md, which is written from them, has a list.
OF_COMMANDS = {"gateway": {"HIFI_GATEWAY_WORKERS"}, "topics": {"HIFI_KAFKA"}}
VARIABLE = re.compile(r"\b(?:HIFI|OTEL)_[A-Z0-9_]+\b")
# The reserve between the longest drain and SIGKILL: Spark ends after its jobs.
RESERVE_S = 10
VALIDATOR = Draft7Validator(SCHEMA)


def variables_of(role: str) -> set[str]:
    """Return the variables that a role reads."""
    found = set(OF_COMMANDS.get(role, ()))
    for kind in (*ROLE_SETTINGS[role], *OF_ALL):
        prefix = str(kind.model_config.get("env_prefix", ""))
        for name, field in kind.model_fields.items():
            alias = field.validation_alias
            found.add(alias if isinstance(alias, str) else f"{prefix}{name}".upper())
    return found


def given_to(role: str, example: str) -> set[str]:
    """Return the variables that an example gives to a role beside the templates' own."""
    read = values(example)
    own = read[role]
    return {
        *read["env"],
        *(name for part in ("env", "secretEnv", "secretFiles") for name in own.get(part, ())),
    }


@pytest.mark.parametrize("role", ROLE_SETTINGS)
def test_every_variable_of_a_role_exists_in_its_settings(role: str) -> None:
    own = VARIABLE.findall(defined(f"hifi.variables.{role}") + defined(f"hifi.secrets.{role}"))
    assert own
    assert set(own) - variables_of(role) == set()
    for example in EXAMPLES:
        assert given_to(role, example) - variables_of(role) == set(), example


def test_variables_that_templates_give_to_all_roles_exist() -> None:
    of_all = set(VARIABLE.findall(defined("hifi.env") + defined("hifi.files")))
    assert of_all >= {"HIFI_KAFKA_PROTOCOL", "HIFI_KAFKA_PASSWORD", "HIFI_KAFKA_CA_FILE"}
    for role in ROLE_SETTINGS:
        assert of_all - variables_of(role) == set()
    elsewhere = [text for name, text in templates().items() if name != "_variables.tpl"]
    known = set.union(*map(variables_of, ROLE_SETTINGS))
    # A comment mentions it, because Kubernetes would set it.
    assert set(VARIABLE.findall("".join(elsewhere))) <= known | {"HIFI_GATEWAY_PORT"}


def test_variables_of_commands_are_options_of_commands() -> None:
    page = (ROOT / "docs" / "command-line.md").read_text()
    for name in set.union(*OF_COMMANDS.values()):
        assert f"(`{name}`)" in page


def test_every_command_is_a_script_of_the_package() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert {f"hifi-{role}" for role in ROLES} <= set(scripts)
    assert re.findall(r"command: (.*)", templates()["deployments.yaml"]) == ['["hifi-{{ $role }}"]']
    (line,) = re.findall(r'command: \["hifi", "topics"(.*)\]', templates()["topics.yaml"])
    assert '"--grant"' in line


def test_ports_are_those_of_the_programs() -> None:
    ports = yaml.safe_load(defined("hifi.metricsPorts"))
    assert ports == {role: getattr(defaults, f"{role.upper()}_METRICS_PORT") for role in ROLES}
    texts = "".join(templates().values())
    numbers = set(map(int, re.findall(r"\b80\d\d\b", texts)))
    assert numbers == {*ports.values(), defaults.GATEWAY_PORT, defaults.CONSOLE_PORT}


def test_version_and_license_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == project["version"]


@pytest.mark.parametrize("example", ["", *EXAMPLES])
def test_a_pod_has_more_time_than_its_drain(example: str) -> None:
    read = values(example)
    for role in ROLES:
        own = read[role]
        notice_s = own.get("drainNoticeSeconds", 0)
        drain_s = notice_s + min(5, notice_s) + own.get("drainSeconds", 0)
        assert read["terminationGracePeriodSeconds"] >= drain_s + RESERVE_S
    # The notice lasts until a balancer with these checks has seen that the gateway is not ready.
    checks = read["probes"]["readiness"]
    seen_s = checks["periodSeconds"] * checks["failureThreshold"] + checks["timeoutSeconds"]
    assert read["gateway"]["drainNoticeSeconds"] >= seen_s


def test_kubernetes_sets_no_variable_of_a_service() -> None:
    # HIFI_GATEWAY_PORT=tcp://10.0.0.1:8080 would be a wrong setting of the gateway.
    for name in ("deployments.yaml", "topics.yaml"):
        assert "enableServiceLinks: false" in templates()[name]


def test_the_chart_has_the_rules_the_boards_and_the_query_of_this_release() -> None:
    files = {path.name: path.read_text() for path in (CHART / "files").iterdir()}
    assert files == {**boards(), "alerts.yaml": rule_file(), "load.promql": load_query()}


def test_there_are_five_examples_and_the_schema_accepts_them() -> None:
    assert set(EXAMPLES) == {"autoscaling", "monitoring", "production", "restricted", "try"}
    for example in EXAMPLES:
        assert [error.message for error in VALIDATOR.iter_errors(values(example))] == []


def test_only_the_address_of_kafka_has_no_default() -> None:
    (error,) = VALIDATOR.iter_errors(values())
    assert list(error.instance_path) == ["kafka", "bootstrapServers"]


# An example, a place in its values, and a wrong value for it.
WRONG: list[tuple[str, str, Any]] = [
    ("try", "kafka.bootstrapServers", "kafka"),
    ("try", "kafka.protocol", "TLS"),
    ("try", "kafka.ca.secret", "ca-without-tls"),
    ("try", "kafka.users.gateway.secret", "user-without-sasl"),
    ("production", "kafka.users.retrier.secret", ""),
    ("production", "kafka.mechanism", "GSSAPI"),
    ("production", "kafka.mechanism", "AWS_MSK_IAM"),
    ("try", "kafka.mechanism", "AWS_MSK_IAM"),
    ("production", "secrets.operatorKey", "a-key-that-is-here"),
    ("production", "gateway.env", {"HIFI_GATEWAY_OPERATOR_KEY": "hifi_secret"}),
    ("production", "env", {"HIFI_SECRET_KEYS": "key"}),
    ("production", "env", {"HIFI_KAFKA_PASSWORD": "hunter2"}),
    ("production", "observe.secretEnv", {"HIFI_OTLP_HEADERS": {"secret": "", "key": "headers"}}),
    ("production", "gateway.secretFiles", {"HIFI_GATEWAY_TLS_KEY_FILE": "tls.key"}),
    ("production", "images.registry", "registry.example/hifi"),
    ("production", "gateway.service.type", "Ingress"),
    ("autoscaling", "autoscaling.prometheus", ""),
    ("autoscaling", "delivery.autoscaling.ratedEventsPerSecond", 0),
    ("autoscaling", "retrier.autoscaling.by", "load"),
    ("autoscaling", "gateway.autoscaling.cpuPercent", 101),
    ("restricted", "networkPolicy.metricsFrom", [{}]),
    ("restricted", "networkPolicy.kafkaPorts", ["kafka"]),
    ("monitoring", "serviceMonitor.enabled", "yes"),
    ("monitoring", "serviceMonitor.labels", {"release": 1}),
    ("try", "auth", False),
    ("try", "gateway.workers", 0),
    ("try", "gateway.replica", 3),
    ("try", "gateway.env", {"HIFI_GATEWAY_EVENTS_MAX": 1_000_000}),
    ("try", "delivery.env", {"HIFI_DELIVERY_DRAIN_S": "600"}),
    ("try", "delivery.pod", {"containers": []}),
    ("try", "observe.replicas", -1),
    ("try", "probes.liveness", {"periodSeconds": 10}),
]  # fmt: skip


@pytest.mark.parametrize(("example", "place", "value"), WRONG, ids=str)
def test_the_schema_refuses_a_wrong_value(example: str, place: str, value: Any) -> None:
    read = values(example)
    *way, last = place.split(".")
    inside = read
    for name in way:
        inside = inside[name]
    inside[last] = value
    assert not VALIDATOR.is_valid(read)


def test_the_schema_accepts_each_mechanism_and_an_aws_identity_has_no_users() -> None:
    read = values("production")
    for mechanism in get_args(Mechanism):
        read["kafka"]["mechanism"] = mechanism
        assert VALIDATOR.is_valid(read) is (mechanism != "AWS_MSK_IAM")
    read["kafka"]["users"] = values("try")["kafka"]["users"]
    assert VALIDATOR.is_valid(read)
