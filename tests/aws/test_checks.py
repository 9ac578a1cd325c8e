"""Every check passes on our templates, and fails on a stack that is bad on purpose."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, CfnResource, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_msk as msk
from aws_cdk import aws_s3 as s3
from cfnlint.api import ManualArgs, lint

from deploy.aws import app as ours
from deploy.aws.findings import reasons
from tests.support.deploy.aws_sites import site_of
from tests.support.deploy.template_checks import CHECKS

# Zones are given by name, because brokers and machines must be in the same ones.
LINT = ManualArgs(ignore_checks=["W3010"], regions=["us-east-1"])
# The findings of cdk-nag about the stack of `seed`, which nobody acknowledges.
SEEDED = {"S10", "IAM5[Action::*]", "MSK2"}


def seed(app: App) -> None:
    """Add a stack with one of each thing that is forbidden."""
    stack = Stack(app, "bad")
    anybody = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "CidrIp": "0.0.0.0/0"}
    everything = {"Effect": "Allow", "Action": "*", "Resource": "*"}
    s3.CfnBucket(stack, "OpenStore")
    iam.CfnPolicy(
        stack,
        "All",
        policy_name="all",
        roles=["r"],
        policy_document={"Version": "2012-10-17", "Statement": [everything]},
    )
    parts = msk.CfnCluster
    msk.CfnCluster(
        stack,
        "Open",
        cluster_name="open",
        kafka_version="3.9.x",
        number_of_broker_nodes=2,
        broker_node_group_info=parts.BrokerNodeGroupInfoProperty(
            instance_type="kafka.m7g.large", client_subnets=["subnet-1", "subnet-2"]
        ),
        encryption_info=parts.EncryptionInfoProperty(
            encryption_in_transit=parts.EncryptionInTransitProperty(client_broker="PLAINTEXT")
        ),
    )
    # Resources that the CDK's own types would refuse.
    raw: dict[str, tuple[str, dict[str, Any]]] = {
        "Shell": (
            "EC2::SecurityGroup",
            {"GroupDescription": "shell", "SecurityGroupIngress": [anybody]},
        ),
        "Told": ("SecretsManager::Secret", {"SecretString": "hunter2"}),
        "Machine": ("EC2::LaunchTemplate", {"LaunchTemplateData": {"UserData": "password=x"}}),
        "Group": (
            "AutoScaling::AutoScalingGroup",
            {"MinSize": [], "MaxSize": "1", "Sizes": 3, "VPCZoneIdentifier": ["subnet-1"]},
        ),
    }
    for name, (kind, properties) in raw.items():
        CfnResource(stack, name, type=f"AWS::{kind}", properties=properties)


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the bad stack beside ours; no finding in ours is acknowledged."""
    path = tmp_path_factory.mktemp("bad")
    patch = pytest.MonkeyPatch()
    patch.setattr(ours, "acknowledge", lambda *_: None)
    app = ours.app_of(site_of(), str(path))
    patch.undo()
    seed(app)
    with pytest.raises(RuntimeError, match="AwsSolutions"):
        app.synth()
    return path


@pytest.mark.parametrize("check", CHECKS)
def test_no_template_has_what_must_not_be(check: Any, resources: dict[str, Any]) -> None:
    assert list(check(resources)) == []


@pytest.mark.parametrize("check", CHECKS)
def test_each_check_finds_what_is_bad(check: Any, bad: Path) -> None:
    template = json.loads((bad / "bad.template.json").read_text())
    assert list(check(template["Resources"]))


def test_cdk_nag_finds_what_is_bad_and_what_is_acknowledged_and_nothing_else(bad: Path) -> None:
    report = json.loads((bad / "validation-report.json").read_text())
    (nag,) = (each for each in report["pluginReports"] if each["pluginName"] == "AwsSolutions")
    found: dict[bool, set[str]] = {True: set(), False: set()}
    for violation in nag["violations"]:
        for where in violation["violatingConstructs"]:
            found[where["constructPath"].startswith("bad/")].add(violation["ruleName"])
    assert {f"AwsSolutions-{rule}" for rule in SEEDED} <= found[True]
    # Exactly these: an acknowledgement that is no longer needed would hide future findings.
    assert found[False] == {rule.removeprefix("AwsSolutions::") for rule in reasons(site_of())}


def test_whoever_asks_the_network_fails() -> None:
    with (
        socket.socket() as anybody,
        pytest.raises(AssertionError, match="a test of templates calls"),
    ):
        anybody.connect(("192.0.2.1", 443))


def linted(template: Path) -> list[str]:
    return [str(match) for match in lint(template.read_text(), config=LINT)]


def test_cfn_lint_finds_nothing_in_ours(folder: Path) -> None:
    templates = sorted(folder.glob("*.template.json"))
    assert len(templates) == 6
    assert {path.name: linted(path) for path in templates} == {path.name: [] for path in templates}


def test_cfn_lint_finds_what_is_bad(bad: Path) -> None:
    assert any("'Sizes' was unexpected" in each for each in linted(bad / "bad.template.json"))
