"""Checks that hold for all of our templates: each reports its findings."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Resources = Mapping[str, Any]
ANYBODY = {"0.0.0.0/0", "::/0"}
# Resources whose data cannot be recreated.
KEEPS_DATA = {
    "AWS::MSK::Cluster",
    "AWS::KMS::Key",
    "AWS::SecretsManager::Secret",
    "AWS::S3::OpenStore",
    "AWS::APS::Workspace",
    "AWS::Logs::LogGroup",
}


def of_type(resources: Resources, *kinds: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, resource in resources.items():
        if resource["Type"] in kinds:
            yield name, resource.get("Properties", {})


def text_of(value: Any) -> str:
    """Return a template's text, with placeholders for values that only AWS knows."""
    match value:
        case str():
            return value
        case {"Fn::Join": [joint, parts]}:
            return str(joint).join(map(text_of, parts))
        case {"Fn::Base64": inner}:
            return text_of(inner)
        case _:
            return "known-later"


def user_data(template: Mapping[str, Any]) -> str:
    return text_of(template["LaunchTemplateData"].get("UserData", ""))


def nothing_is_open_but_the_balancer(resources: Resources) -> Iterator[str]:
    rules = of_type(resources, "AWS::EC2::SecurityGroup", "AWS::EC2::SecurityGroupIngress")
    for name, properties in rules:
        for rule in properties.get("SecurityGroupIngress", [properties]):
            is_open = {rule.get("CidrIp"), rule.get("CidrIpv6")} & ANYBODY
            if is_open and not (name.startswith("network/Balancer") and rule["FromPort"] == 443):
                yield f"{name} is open to anybody on {rule.get('FromPort')}"


def kafka_wants_tls_and_a_user(resources: Resources) -> Iterator[str]:
    for name, cluster in of_type(resources, "AWS::MSK::Cluster"):
        transit = cluster.get("EncryptionInfo", {}).get("EncryptionInTransit", {})
        if transit != {"ClientBroker": "TLS", "InCluster": True}:
            yield f"{name} does not require TLS"
        if cluster.get("ClientAuthentication") != {
            "Sasl": {"Scram": {"Enabled": True}},
            "Unauthenticated": {"Enabled": False},
        }:
            yield f"{name} admits others than SCRAM users"


def metadata_is_of_version_2(resources: Resources) -> Iterator[str]:
    for name, properties in of_type(resources, "AWS::EC2::LaunchTemplate"):
        options = properties["LaunchTemplateData"].get("MetadataOptions", {})
        if options != {"HttpTokens": "required", "HttpPutResponseHopLimit": 1}:
            yield f"{name} gives its metadata to any program"


def data_stays_and_is_encrypted(resources: Resources) -> Iterator[str]:
    for name, resource in resources.items():
        if resource["Type"] in KEEPS_DATA and resource.get("DeletionPolicy") != "Retain":
            yield f"{name} is deleted with its stack"
    for name, properties in of_type(resources, "AWS::EC2::LaunchTemplate"):
        for disk in properties["LaunchTemplateData"].get("BlockDeviceMappings", [{}]):
            if not disk.get("Ebs", {}).get("Encrypted"):
                yield f"{name} has a disk that is not encrypted"


def no_role_may_do_everything(resources: Resources) -> Iterator[str]:
    for name, properties in of_type(resources, "AWS::IAM::Policy"):
        for statement in properties["PolicyDocument"]["Statement"]:
            actions = statement["Action"]
            for action in [actions] if isinstance(actions, str) else actions:
                if "*" in action:
                    yield f"{name} may do {action}"


def no_secret_is_in_it(resources: Resources) -> Iterator[str]:
    for name, properties in of_type(resources, "AWS::SecretsManager::Secret"):
        if "SecretString" in properties:
            yield f"{name} has its secret in the template"
    for name, properties in of_type(resources, "AWS::EC2::LaunchTemplate"):
        data = user_data(properties)
        for word in ("PASSWORD", "SECRET_KEYS", "OPERATOR_KEY", "STATEMENT_KEY", "COOKIE_SECRET"):
            if word in data.upper():
                yield f"{name} tells its machines {word}"


def machines_are_in_three_zones(resources: Resources) -> Iterator[str]:
    groups = of_type(resources, "AWS::AutoScaling::AutoScalingGroup")
    subnets = {name: group.get("VPCZoneIdentifier", []) for name, group in groups}
    for name, cluster in of_type(resources, "AWS::MSK::Cluster"):
        subnets[name] = cluster["BrokerNodeGroupInfo"]["ClientSubnets"]
    for name, of_it in subnets.items():
        if len({json.dumps(subnet) for subnet in of_it}) != 3:
            yield f"{name} is not in three zones"


def machines_end_in_good_time(resources: Resources) -> Iterator[str]:
    for name, group in of_type(resources, "AWS::AutoScaling::AutoScalingGroup"):
        hooks = {
            hook["LifecycleTransition"].rpartition("_")[2]: hook
            for hook in group.get("LifecycleHookSpecificationList", [])
        }
        if hooks.get("TERMINATING", {}).get("HeartbeatTimeout", 0) < 120:
            yield f"{name} ends machines that have not drained"
        # Observers are an exception: they start before there are topics.
        is_kept = name.startswith("observe/")
        if hooks.get("LAUNCHING", {}).get("DefaultResult") != (
            "CONTINUE" if is_kept else "ABANDON"
        ):
            yield f"{name} keeps machines that never became ready"


CHECKS: tuple[Callable[[Resources], Iterator[str]], ...] = (
    nothing_is_open_but_the_balancer,
    kafka_wants_tls_and_a_user,
    metadata_is_of_version_2,
    data_stays_and_is_encrypted,
    no_role_may_do_everything,
    no_secret_is_in_it,
    machines_are_in_three_zones,
    machines_end_in_good_time,
)
