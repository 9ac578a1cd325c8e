"""A real API server accepts the chart's objects; helm installs, upgrades and removes them."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.support.deploy.api_server import ApiServer, api_server
from tests.support.deploy.chart import CHART, EXAMPLES, NAMESPACE, RELEASE, ROLES, rendered

KINDS = (
    "deployments",
    "services",
    "poddisruptionbudgets",
    "jobs",
    "configmaps",
    "networkpolicies",
    "servicemonitors",
    "prometheusrules",
    "scaledobjects",
    "horizontalpodautoscalers",
)
STRICT = "pod-security.kubernetes.io"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with api_server(tmp_path_factory.mktemp("kubernetes")) as running:
        labels = {f"{STRICT}/{mode}": "restricted" for mode in ("enforce", "warn")}
        metadata = {"name": NAMESPACE, "labels": labels}
        running.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        yield running


def tried(server: ApiServer, *objects: dict[str, Any]) -> str:
    """Apply objects without an effect; return the server's complaints."""
    text = yaml.safe_dump_all(objects)
    ended = server.kubectl("apply", "--dry-run=server", "--filename", "-", text=text)
    if ended.returncode:
        return ended.stderr
    return "".join(line for line in ended.stderr.splitlines() if line.startswith("Warning"))


def pod_of(owner: dict[str, Any]) -> dict[str, Any]:
    template = owner["spec"]["template"]
    metadata = {"name": owner["metadata"]["name"], "namespace": NAMESPACE}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**template["metadata"], **metadata},
        "spec": template["spec"],
    }


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_server_accepts_every_object_without_a_warning(server: ApiServer, example: str) -> None:
    objects = rendered(example)
    assert tried(server, *objects) == ""
    wrong = json.loads(json.dumps(objects[0]).replace('"spec": {', '"spec": {"unknwon": 1, ', 1))
    assert "unknwon" in tried(server, wrong)


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_restricted_namespace_takes_every_pod(server: ApiServer, example: str) -> None:
    owners = [each for each in rendered(example) if each["kind"] in {"Deployment", "Job"}]
    assert len(owners) == len(ROLES) + 1
    pods = [pod_of(each) for each in owners]
    for pod in pods:
        # Classes of priority belong to the cluster.
        pod["spec"] = {k: v for k, v in pod["spec"].items() if k != "priorityClassName"}
    assert tried(server, *pods) == ""
    root = json.loads(json.dumps(pods[0]).replace('"runAsNonRoot": true', '"runAsNonRoot": false'))
    assert "violates PodSecurity" in tried(server, root)


def test_helm_installs_upgrades_goes_back_and_removes_everything(server: ApiServer) -> None:
    def helm(*arguments: str) -> str:
        # Nobody runs the Job of the hook here.
        ended = server.run("helm", *arguments, "--namespace", NAMESPACE)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def replicas() -> int:
        found = server.objects("deployments", NAMESPACE)
        assert set(found) == {f"{RELEASE}-{role}" for role in ROLES}
        number: int = found[f"{RELEASE}-delivery"]["spec"]["replicas"]
        return number

    def given(example: str) -> tuple[str, ...]:
        return (RELEASE, str(CHART), "--no-hooks", "--values", str(EXAMPLES[example]))

    before = {kind: set(server.objects(kind, NAMESPACE)) for kind in KINDS}
    assert "STATUS: deployed" in helm("install", *given("monitoring"))
    assert replicas() == 2
    assert f"{RELEASE}-boards" in server.objects("configmaps", NAMESPACE)
    helm("upgrade", *given("try"))
    assert replicas() == 1
    assert f"{RELEASE}-boards" not in server.objects("configmaps", NAMESPACE)
    helm("rollback", RELEASE, "1", "--no-hooks")
    assert replicas() == 2
    helm("upgrade", *given("autoscaling"))
    assert set(server.objects("scaledobjects", NAMESPACE)) == {
        f"{RELEASE}-gateway",
        f"{RELEASE}-delivery",
    }
    helm("uninstall", RELEASE, "--no-hooks")
    assert {kind: set(server.objects(kind, NAMESPACE)) for kind in KINDS} == before
