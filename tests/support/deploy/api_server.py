"""Runs a real Kubernetes API server with etcd, but without nodes and controllers."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from deploy.local.children import Child
from deploy.local.ports import pick_free
from tests.support.deploy.stack_fixtures import wait_until
from tests.support.suite.programs import program

_TOKEN = "a-token-of-this-test"
_STARTS_WITHIN_S = 120.0
# The kinds of the operators. Their schemas are in tests/kubernetes/test_chart_rendered.py.
_CUSTOM = (
    ("monitoring.coreos.com", "v1", "ServiceMonitor"),
    ("monitoring.coreos.com", "v1", "PrometheusRule"),
    ("keda.sh", "v1alpha1", "ScaledObject"),
)


@dataclass
class ApiServer:
    """An API server, and a file with which programs reach it."""

    kubeconfig: Path

    def kubectl(self, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
        return self.run("kubectl", *arguments, text=text)

    def run(self, name: str, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
        """Run kubectl or helm as an administrator."""
        return subprocess.run(
            [program(name), "--kubeconfig", str(self.kubeconfig), *arguments],
            input=text,
            capture_output=True,
            check=False,
            text=True,
            timeout=120,
        )

    def objects(self, kind: str, namespace: str) -> dict[str, dict[str, Any]]:
        listed = self.kubectl("get", kind, "--namespace", namespace, "--output", "json")
        assert listed.returncode == 0, listed.stderr
        return {each["metadata"]["name"]: each for each in json.loads(listed.stdout)["items"]}

    def apply(self, *objects: Any) -> None:
        made = self.kubectl("apply", "--filename", "-", text=_list(objects))
        assert made.returncode == 0, made.stderr


def _list(objects: Any) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})


@contextmanager
def api_server(folder: Path) -> Iterator[ApiServer]:
    store, peers, port = pick_free(3)
    client = f"http://127.0.0.1:{store}"
    key, tokens = folder / "key.pem", folder / "tokens.csv"
    made = ec.generate_private_key(ec.SECP256R1())
    form = PrivateFormat.TraditionalOpenSSL
    key.write_bytes(made.private_bytes(Encoding.PEM, form, NoEncryption()))
    tokens.write_text(f"{_TOKEN},admin,admin,system:masters\n")
    etcd = {
        "data-dir": folder / "etcd",
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": f"http://127.0.0.1:{peers}",
    }
    server = {
        "etcd-servers": client,
        "bind-address": "127.0.0.1",
        "secure-port": port,
        "cert-dir": folder / "certificates",
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": key,
        "service-account-signing-key-file": key,
        "service-cluster-ip-range": "10.0.0.0/24",
        "token-auth-file": tokens,
        "authorization-mode": "AlwaysAllow",
        # No other component runs here.
        "endpoint-reconciler-type": "none",
        "disable-admission-plugins": "ServiceAccount",
    }
    with ExitStack() as resources:
        for name, options in (("etcd", etcd), ("kube-apiserver", server)):
            argv = [program(name), *(f"--{option}={value}" for option, value in options.items())]
            child = Child(name, argv, log=folder / f"{name}.log")
            resources.callback(child.kill)
        url = f"https://127.0.0.1:{port}"
        wait_until(lambda: _is_ready(url), what="the server is ready", timeout_s=_STARTS_WITHIN_S)
        file = folder / "kubeconfig"
        file.write_text(json.dumps(_kubeconfig(url)))
        running = ApiServer(file)
        running.apply(*map(_definition, _CUSTOM))
        wait_until(lambda: _has_custom(running), what="the kinds of the operators are there")
        yield running


def _is_ready(url: str) -> bool:
    headers = {"authorization": f"Bearer {_TOKEN}"}
    try:
        # The server has made its own certificate.
        answer = httpx.get(f"{url}/readyz", headers=headers, verify=False, trust_env=False)
    except httpx.TransportError:
        return False
    return answer.status_code == httpx.codes.OK


def _has_custom(server: ApiServer) -> bool:
    listed = server.kubectl("api-resources", "--output", "name").stdout
    return all(f"{kind.lower()}s.{group}" in listed for group, _, kind in _CUSTOM)


def _kubeconfig(url: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [
            {"name": "test", "cluster": {"server": url, "insecure-skip-tls-verify": True}}
        ],
        "users": [{"name": "test", "user": {"token": _TOKEN}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    }


def _definition(custom: tuple[str, str, str]) -> dict[str, Any]:
    group, version, kind = custom
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{kind.lower()}s.{group}",
            # Groups of Kubernetes' own domain are protected.
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": f"{kind.lower()}s", "singular": kind.lower()},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": anything},
                }
            ],
        },
    }
