"""Helm renders five examples of the chart into objects that Kubernetes and its operators accept."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema_rs
import pytest
import yaml

from deploy.alerts.rule_file import rule_file
from deploy.dashboards.boards import boards
from deploy.scaling.load_query import load_query
from shared.runtime import defaults
from tests.support.deploy.chart import (
    CHART,
    EXAMPLES,
    NAMESPACE,
    RELEASE,
    ROLES,
    helm,
    rendered,
    values,
    variables,
)

# The oldest Kubernetes of Chart.yaml, and the newest with schemas.
KUBERNETES = ("1.27", "1.37")
CUSTOM = {
    "ServiceMonitor": "cloudcoil.models.prometheus_operator.v1",
    "PrometheusRule": "cloudcoil.models.prometheus_operator.v1",
    "ScaledObject": "cloudcoil.models.keda.v1alpha1",
}
EVERY = pytest.mark.parametrize("example", EXAMPLES)


def of_kind(example: str, kind: str) -> dict[str, dict[str, Any]]:
    found = [each for each in rendered(example) if each["kind"] == kind]
    return {each["metadata"]["name"].removeprefix(f"{RELEASE}-"): each for each in found}


def pods(example: str) -> dict[str, dict[str, Any]]:
    """Return the templates of pods by role, the one of the Job included."""
    owners = of_kind(example, "Deployment") | of_kind(example, "Job")
    return {role: owner["spec"]["template"] for role, owner in owners.items()}


def container(pod: Mapping[str, Any]) -> dict[str, Any]:
    (only,) = pod["spec"]["containers"]
    return dict(only)


def env(example: str, role: str) -> dict[str, Any]:
    """Return a role's variables: their values, or the places of their secrets."""
    rows = container(pods(example)[role])["env"]
    found = {row["name"]: row.get("value", row.get("valueFrom")) for row in rows}
    assert len(found) == len(rows)
    return found


@EVERY
def test_helm_lint_has_nothing_to_say(example: str) -> None:
    ended = helm("lint", "--strict", CHART, "--values", EXAMPLES[example])
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_helm_refuses_values_that_the_schema_refuses() -> None:
    ended = helm("template", RELEASE, CHART)
    assert ended.returncode != 0
    assert "bootstrapServers" in ended.stderr


def test_helm_refuses_a_grace_period_that_is_shorter_than_a_drain() -> None:
    short = ("--set", "terminationGracePeriodSeconds=80")
    ended = helm("template", RELEASE, CHART, "--values", EXAMPLES["try"], *short)
    assert "80: gateway needs at least 85" in ended.stderr


@EVERY
@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes_accepts_every_object(example: str, version: str) -> None:
    validate = pytest.importorskip("kubernetes_validate").validate
    own = [each for each in rendered(example) if each["kind"] not in CUSTOM]
    assert len(own) > len(ROLES)
    for each in own:
        validate(each, version, strict=True)


@EVERY
def test_operators_accept_their_objects(example: str) -> None:
    for each in rendered(example):
        if each["kind"] in CUSTOM:
            model = getattr(pytest.importorskip(CUSTOM[each["kind"]]), each["kind"])
            schema = closed(model.model_json_schema())
            assert [str(error) for error in jsonschema_rs.iter_errors(schema, each)] == []


def closed(schema: Any) -> Any:
    """Return a schema that refuses members that it does not name."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    inside = {name: closed(each) for name, each in schema.items()}
    is_open = isinstance(inside.get("properties"), dict) and "type" in inside
    return {**inside, "additionalProperties": False} if is_open else inside


def test_the_examples_have_every_kind_of_object() -> None:
    kinds = {each["kind"] for example in EXAMPLES for each in rendered(example)}
    assert kinds == {
        *CUSTOM, "ConfigMap", "Deployment", "HorizontalPodAutoscaler", "Job", "NetworkPolicy",
        "PodDisruptionBudget", "Service",
    }  # fmt: skip


@EVERY
def test_every_object_is_in_the_namespace_and_has_a_name_of_its_own(example: str) -> None:
    names = [(each["kind"], each["metadata"]["name"]) for each in rendered(example)]
    assert len(names) == len(set(names))
    assert {each["metadata"]["namespace"] for each in rendered(example)} == {NAMESPACE}


@EVERY
def test_pods_are_as_the_standard_restricted_asks(example: str) -> None:
    assert set(pods(example)) == {*ROLES, "topics"}
    for pod in pods(example).values():
        spec, own = pod["spec"], container(pod)["securityContext"]
        assert (spec["automountServiceAccountToken"], spec["enableServiceLinks"]) == (False, False)
        assert spec["securityContext"]["runAsNonRoot"]
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert own == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        kinds = {kind for each in spec["volumes"] for kind in each if kind != "name"}
        assert kinds <= {"emptyDir", "secret"}
        written = {each["mountPath"] for each in container(pod)["volumeMounts"]}
        assert written >= {"/tmp", "/var/lib/hifi"}


@EVERY
def test_each_role_runs_its_program_and_is_probed_on_its_port(example: str) -> None:
    read = values(example)
    for role in ROLES:
        pod = pods(example)[role]
        own = container(pod)
        assert own["command"] == [f"hifi-{role}"]
        image = "gateway" if role == "gateway" else "engine"
        assert own["image"] == f"{read['images']['registry']}hifi-{image}:0.1.0"
        ports = {each["name"]: each["containerPort"] for each in own["ports"]}
        assert ports["metrics"] == getattr(defaults, f"{role.upper()}_METRICS_PORT")
        probes = {name: own[f"{name}Probe"] for name in ("startup", "readiness", "liveness")}
        for name, probe in probes.items():
            path = "/readyz" if name == "readiness" else "/livez"
            assert probe == {"httpGet": {"path": path, "port": "metrics"}, **read["probes"][name]}
        assert pod["spec"]["terminationGracePeriodSeconds"] == 100
    gateway = container(pods(example)["gateway"])["ports"]
    assert len(gateway) == 1 + read["gateway"]["workers"]


@EVERY
def test_each_role_gets_its_variables(example: str) -> None:
    for role in ROLES:
        given = variables(role, example) | values(example)[role]["env"]
        assert given.items() <= env(example, role).items()


@EVERY
def test_selectors_find_their_pods_and_no_others(example: str) -> None:
    labels = {role: pod["metadata"]["labels"] for role, pod in pods(example).items()}
    wanted: dict[str, set[str]] = {role: {role} for role in labels}

    def found(selector: Mapping[str, str]) -> set[str]:
        return {role for role, own in labels.items() if selector.items() <= own.items()}

    for kind in ("Deployment", "PodDisruptionBudget"):
        for role, each in of_kind(example, kind).items():
            assert found(each["spec"]["selector"]["matchLabels"]) == wanted[role]
    for role, each in of_kind(example, "NetworkPolicy").items():
        assert found(each["spec"]["podSelector"]["matchLabels"]) == wanted[role]
    services = {
        name: found(each["spec"]["selector"]) for name, each in of_kind(example, "Service").items()
    }
    assert services == {
        "gateway": {"gateway"},
        "console": {"observe"},
        "observe": {"observe"},
        # The Job's pod has no port that is called metrics.
        "metrics": set(labels),
    }
    for name, service in of_kind(example, "Service").items():
        ports = {port["name"] for role in services[name] for port in named_ports(example, role)}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports


def named_ports(example: str, role: str) -> list[dict[str, Any]]:
    ports: list[dict[str, Any]] = container(pods(example)[role]).get("ports", [])
    return ports


@EVERY
def test_services_that_roles_call_exist(example: str) -> None:
    services = of_kind(example, "Service")
    told = [env(example, "gateway")["HIFI_GATEWAY_OBSERVE"]]
    if example != "production":
        told.append(env(example, "observe")["HIFI_OBSERVE_CONSOLE_GATEWAY"])
    for url in told:
        found = re.fullmatch(rf"http://{RELEASE}-(\w+):(\d+)", url)
        assert found, url
        assert int(found[2]) in {port["port"] for port in services[found[1]]["spec"]["ports"]}


def test_secrets_come_from_secrets_only() -> None:
    secret = {
        name: at["secretKeyRef"]
        for role in pods("production")
        for name, at in env("production", role).items()
        if isinstance(at, dict)
    }
    assert secret == {
        "HIFI_SECRET_KEYS": {"name": "hifi-keys", "key": "secret-keys"},
        "HIFI_GATEWAY_OPERATOR_KEY": {"name": "hifi-operator", "key": "operator-key"},
        "HIFI_OBSERVE_STATEMENT_KEY": {"name": "hifi-statements", "key": "statement-key"},
        "HIFI_OBSERVE_CONSOLE_COOKIE_SECRET": {"name": "hifi-console", "key": "cookie-secret"},
        "HIFI_OTLP_HEADERS": {"name": "collector", "key": "headers"},
        "HIFI_KAFKA_USER": {"name": "hifi-kafka-operator", "key": "user"},
        "HIFI_KAFKA_PASSWORD": {"name": "hifi-kafka-operator", "key": "password"},
    }
    assert env("production", "observe")["HIFI_KAFKA_USER"] == "hifi-observe"
    for role in ("gateway", "delivery", "retrier", "pipelines"):
        at = env("production", role)["HIFI_KAFKA_PASSWORD"]["secretKeyRef"]
        assert at["name"] == f"hifi-kafka-{role}"
    # Only observers sign statements, and only the gateway has the operator's key.
    holders = {
        name: {role for role in pods("production") if name in env("production", role)}
        for name in ("HIFI_OBSERVE_STATEMENT_KEY", "HIFI_GATEWAY_OPERATOR_KEY", "HIFI_SECRET_KEYS")
    }
    assert list(holders.values()) == [{"observe"}, {"gateway"}, set(ROLES)]


@EVERY
def test_each_file_that_a_variable_names_is_mounted(example: str) -> None:
    for role, pod in pods(example).items():
        mounts = {
            each["mountPath"]: each["name"]
            for each in container(pod)["volumeMounts"]
            if each["mountPath"].startswith("/etc/hifi/")
        }
        volumes = {each["name"]: each for each in pod["spec"]["volumes"]}
        there = {
            f"{path}/{item['path']}"
            for path, name in mounts.items()
            for item in volumes[name]["secret"]["items"]
        }
        texts = [value for value in env(example, role).values() if isinstance(value, str)]
        assert {text for text in texts if text.startswith("/etc/")} == there
    with_tls = {role for role in pods(example) if "HIFI_KAFKA_CA_FILE" in env(example, role)}
    is_encrypted = values(example)["kafka"]["protocol"].endswith("SSL")
    assert with_tls == (set(pods(example)) if is_encrypted else set())


def test_topics_are_made_before_the_roles_start() -> None:
    for example in EXAMPLES:
        (job,) = of_kind(example, "Job").values()
        assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
        granted = ["--grant"] if example == "production" else []
        assert container(pods(example)["topics"])["command"] == ["hifi", "topics", *granted]


def test_keda_scales_by_the_load_that_hifi_publishes() -> None:
    objects = of_kind("autoscaling", "ScaledObject")
    assert set(objects) == {"gateway", "delivery"}
    selector = f'namespace="{NAMESPACE}",job="{RELEASE}-metrics"'
    (trigger,) = objects["delivery"]["spec"]["triggers"]
    told = trigger["metadata"]
    assert told["query"].strip() == load_query().replace("$selector", selector).strip()
    # 70 % of 20,000 events/s for each pod.
    assert (trigger["metricType"], told["threshold"]) == ("AverageValue", "14000")
    by_rate, by_cpu = objects["gateway"]["spec"]["triggers"]
    assert f"{{{selector}}}" in by_rate["metadata"]["query"]
    assert by_rate["metadata"]["threshold"] == "24000"
    assert by_cpu["metadata"] == {"value": "60"}
    assert set(of_kind("autoscaling", "HorizontalPodAutoscaler")) == {"retrier", "pipelines"}
    # An autoscaler sets the number of a role's pods, so the chart does not.
    owners = of_kind("autoscaling", "Deployment")
    assert {role for role in owners if "replicas" in owners[role]["spec"]} == {"observe"}


def test_network_policies_open_what_is_needed() -> None:
    policies = {role: each["spec"] for role, each in of_kind("restricted", "NetworkPolicy").items()}
    assert set(policies) == {*ROLES, "topics"}

    def ports(role: str, side: str) -> set[int]:
        return {
            port["port"] for rule in policies[role][side] or () for port in rule.get("ports", ())
        }

    own = {role: getattr(defaults, f"{role.upper()}_METRICS_PORT") for role in ROLES}
    assert {role: ports(role, "ingress") for role in policies} == {
        "gateway": {8080, 8081, 8082},
        **{role: {own[role]} for role in ("delivery", "retrier", "pipelines")},
        "observe": {8084, 8088},
        "topics": set(),
    }
    usual = {53, 5353, 9093, 4318}
    assert {role: ports(role, "egress") - usual for role in policies} == {
        **{role: set() for role in policies},
        "gateway": {8084},
        "observe": {8080},
    }
    outside = {role for role, spec in policies.items() if "ipBlock" in json.dumps(spec["egress"])}
    assert outside == {"delivery", "retrier", "pipelines", "observe"}


def test_boards_rules_and_monitors_are_those_of_this_release() -> None:
    (rule,) = of_kind("monitoring", "PrometheusRule").values()
    assert rule["spec"] == yaml.safe_load(rule_file())
    config = of_kind("monitoring", "ConfigMap")["boards"]
    shown = {name: json.loads(text) for name, text in config["data"].items()}
    assert shown == {f"hifi-{name}": json.loads(text) for name, text in boards().items()}
    (monitor,) = of_kind("monitoring", "ServiceMonitor").values()
    service = of_kind("monitoring", "Service")["metrics"]
    chosen = monitor["spec"]["selector"]["matchLabels"]
    assert chosen.items() <= service["metadata"]["labels"].items()
    others = of_kind("monitoring", "Service")
    assert (
        sum(chosen.items() <= each["metadata"]["labels"].items() for each in others.values()) == 1
    )
    asked = [each["port"] for each in monitor["spec"]["endpoints"]]
    assert asked == [each["name"] for each in service["spec"]["ports"]]
    for each, label in ((rule, "release"), (monitor, "release"), (config, "grafana_dashboard")):
        assert label in each["metadata"]["labels"]


def test_a_role_may_have_an_image_of_another_release() -> None:
    # An upgrade that needs an order goes role by role.
    objects = rendered(
        "try", "--set", "images.tag=0.2.0", "--set", "gateway.image=hifi-gateway:0.1.0"
    )
    images = {
        each["metadata"]["name"]: container(each["spec"]["template"])["image"]
        for each in deployments(objects)
    }
    assert images.pop("hifi-gateway") == "hifi-gateway:0.1.0"
    assert set(images.values()) == {"hifi-engine:0.2.0"}


def deployments(objects: tuple[dict[str, Any], ...]) -> Iterator[dict[str, Any]]:
    return (each for each in objects if each["kind"] == "Deployment")
