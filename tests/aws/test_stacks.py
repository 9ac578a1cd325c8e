"""The templates of a site: its sizes, network paths, Kafka and machines."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from deploy.alerts.rules import GROUPS
from deploy.aws.topics import EXPRESS_TOPIC_KEYS, topic_specs, topic_variables
from shared.event.rights import RIGHTS
from shared.event.topic_safety import IN_SYNC_MIN, Copies
from tests.support.deploy.aws_sites import plan, site_of
from tests.support.deploy.template_checks import of_type, user_data

# These hold data: if one changes its name, AWS replaces it with an empty one.
KEPT = {
    "kafka/Cluster": "AWS::MSK::Cluster",
    "kafka/Seal": "AWS::SecretsManager::Secret",
    "kafka/Control": "AWS::SecretsManager::Secret",
    "kafka/Statements": "AWS::SecretsManager::Secret",
    "watch/Prometheus": "AWS::APS::Workspace",
}


# A machine may read its secrets and find Kafka, report on itself, and offer a shell without an open
# port.
MACHINES_MAY = {
    *("secretsmanager:GetSecretValue", "kms:Decrypt", "kafka:GetBootstrapBrokers"),
    *("autoscaling:CompleteLifecycleAction", "cloudformation:SignalResource"),
    *("cloudwatch:PutMetricData", "ssm:UpdateInstanceInformation"),
    *("ssmmessages:CreateControlChannel", "ssmmessages:OpenControlChannel"),
    *("ssmmessages:CreateDataChannel", "ssmmessages:OpenDataChannel"),
}
# Observers find the machines to ask for metrics, and their number.
OBSERVERS_MAY = {
    *("autoscaling:DescribeAutoScalingGroups", "ec2:DescribeInstances"),
    *("ec2:DescribeAvailabilityZones", "aps:RemoteWrite"),
}


def one(resources: dict[str, Any], kind: str) -> Any:
    ((_, properties),) = of_type(resources, kind)
    return properties


def groups_of(resources: dict[str, Any]) -> dict[str, Any]:
    found = of_type(resources, "AWS::AutoScaling::AutoScalingGroup")
    return {group["AutoScalingGroupName"].removeprefix("hifi-prod-"): group for _, group in found}


def told(resources: dict[str, Any], group: str) -> dict[str, Any]:
    """The user data that machines of a group find."""
    stack = "observe" if group == "observe" else "fleet"
    name = f"{stack}/{group}template"
    config: dict[str, Any] = json.loads(user_data(resources[name]["Properties"]))
    return config


def test_the_template_has_the_numbers_of_the_plan(resources: dict[str, Any], folder: Path) -> None:
    kind = folder.name.rstrip("0123456789")
    planned = json.loads(plan("json", kind))
    brokers = one(resources, "AWS::MSK::Cluster")
    assert brokers["NumberOfBrokerNodes"] == planned["brokers"]["count"]
    node = brokers["BrokerNodeGroupInfo"]
    assert node["InstanceType"] == planned["brokers"]["size"]
    disk = planned["site"]["kafka"]["disk_gb"]
    storage = {"StorageInfo": {"EBSStorageInfo": {"VolumeSize": disk}}} if disk else {}
    assert {key: node[key] for key in storage} == storage
    assert ("StorageInfo" in node) == bool(disk)
    groups = groups_of(resources)
    for ours, theirs in (("gateway", "gateways"), ("workers", "delivery")):
        assert int(groups[ours]["MaxSize"]) == planned[theirs]["count"]
        template = resources[f"fleet/{ours}template"]["Properties"]["LaunchTemplateData"]
        assert template["InstanceType"] == planned[theirs]["instance"]["name"]
    assert int(groups["observe"]["MaxSize"]) == 1
    env = told(resources, "gateway")["services"]["gateway"]["env"]
    topics = {row["name"]: row["partitions"] for row in planned["topics"]}
    assert int(env["HIFI_KAFKA_LEDGER_PARTITIONS"]) == topics["hifi.acked"]
    assert int(env["HIFI_KAFKA_RETRY_PARTITIONS"]) == topics["hifi.retry.*"]


def test_what_holds_data_keeps_its_name(resources: dict[str, Any]) -> None:
    assert {name: resources[name]["Type"] for name in KEPT} == KEPT
    users = {
        properties["Name"]
        for name, properties in of_type(resources, "AWS::SecretsManager::Secret")
        if name not in KEPT
    }
    # MSK accepts no other names.
    assert users == {f"AmazonMSK_hifi_prod_{user}" for user in RIGHTS}


def test_gateways_have_no_way_out_and_everybody_one_to_the_brokers(
    resources: dict[str, Any],
) -> None:
    is_nat = len(list(of_type(resources, "AWS::EC2::NatGateway"))) == 3
    workers = resources["fleet/workerstemplate"]["Properties"]["LaunchTemplateData"]
    assert ("NetworkInterfaces" in workers) is not is_nat
    groups = groups_of(resources)
    network = {name: r for name, r in resources.items() if name.startswith("network/")}
    routed = {
        route["RouteTableId"]["Ref"]
        for _, route in of_type(network, "AWS::EC2::Route")
        if route.get("DestinationCidrBlock") == "0.0.0.0/0"
    }
    tables = {
        link["SubnetId"]["Ref"]: link["RouteTableId"]["Ref"]
        for _, link in of_type(network, "AWS::EC2::SubnetRouteTableAssociation")
    }
    ways = {
        group: {
            tables[subnet]
            for subnet in tables
            for each in properties["VPCZoneIdentifier"]
            if subnet in json.dumps(each)
        }
        & routed
        for group, properties in groups.items()
    }
    assert {group: len(found) for group, found in ways.items()} == {
        "gateway": 0,
        "workers": 3,
        "observe": 3,
    }


def test_gateways_find_observers_by_a_balancer_that_nobody_else_may_call(
    resources: dict[str, Any],
) -> None:
    balancers = {
        each["Type"]: each
        for _, each in of_type(resources, "AWS::ElasticLoadBalancingV2::LoadBalancer")
    }
    assert balancers["network"]["Scheme"] == "internal"
    logged = {"Key": "access_logs.s3.enabled", "Value": "true"}
    assert logged in balancers["application"]["LoadBalancerAttributes"]
    assert groups_of(resources)["observe"]["TargetGroupARNs"]
    calls = {
        rule["Description"]: (rule["FromPort"], rule["ToPort"], json.dumps(rule["GroupId"]))
        for _, rule in of_type(resources, "AWS::EC2::SecurityGroupIngress")
        if "Index" in json.dumps(rule)
    }
    assert {name: ports[:2] for name, ports in calls.items()} == {
        "from gateway": (8084, 8084),
        "from index": (8084, 8084),
    }
    assert "Index" in calls["from gateway"][2]
    assert "Observe" in calls["from index"][2]


@pytest.mark.parametrize("kind", ["express", "standard"])
def test_topics_are_set_as_msk_lets_one_set_them(kind: str) -> None:
    env = topic_variables(site_of(kind))
    left_out = frozenset(filter(None, env.get("HIFI_KAFKA_TOPIC_KEYS_LEFT_OUT", "").split(",")))
    copies = Copies(3, 2, None, left_out)
    keys = {key for spec in topic_specs() for key in copies.creation_settings_of(spec)}
    if kind == "express":
        assert keys <= EXPRESS_TOPIC_KEYS
        assert IN_SYNC_MIN in left_out
    else:
        assert IN_SYNC_MIN in keys
        assert left_out == frozenset()


def test_machines_come_quickly_and_go_slowly_by_figures_of_ten_seconds(
    resources: dict[str, Any], folder: Path
) -> None:
    targets = {}
    for name, policy in of_type(resources, "AWS::AutoScaling::ScalingPolicy"):
        tracking = policy["TargetTrackingConfiguration"]
        assert "DisableScaleIn" not in tracking
        custom = tracking.get("CustomizedMetricSpecification")
        if custom is None:
            metric = tracking["PredefinedMetricSpecification"]["PredefinedMetricType"]
        else:
            (query,) = custom["Metrics"]
            assert query["MetricStat"]["Period"] == 10
            metric = query["MetricStat"]["Metric"]["MetricName"]
        targets[name.removeprefix("fleet/").split("by")[0], metric] = tracking["TargetValue"]
    wanted = {("workers", "LoadPerMachine"): 0.7}
    if folder.name.startswith("standard"):
        wanted |= {("gateway", "ASGAverageCPUUtilization"): 60, ("gateway", "RatedUse"): 0.6}
    # Other sites plan the fewest gateways that are allowed: there is nothing to scale.
    assert targets == wanted


def test_each_service_is_told_where_to_be_and_to_drain(resources: dict[str, Any]) -> None:
    gateway = told(resources, "gateway")
    # AWS limits the length, and the data of the machine with the most cores must fit as well.
    assert max(len(json.dumps(told(resources, group))) for group in groups_of(resources)) < 8_192
    assert {group["HealthCheckType"] for group in groups_of(resources).values()} == {"EC2"}
    env = gateway["services"]["gateway"]["env"]
    assert env["HIFI_GATEWAY_DRAIN_NOTICE_S"] == "15"
    assert re.fullmatch("http://.+:8084", env["HIFI_GATEWAY_OBSERVE"])
    assert env["HIFI_KAFKA_PROTOCOL"] == "SASL_SSL"
    assert set(told(resources, "workers")["services"]) == {"delivery", "retrier", "pipelines"}
    # Each service has its own user of Kafka, and no more secrets than it needs. They are only
    # counted: values that only AWS knows are placeholders here.
    secrets = {
        name: len(service["secrets"])
        for group in ("gateway", "workers", "observe")
        for name, service in told(resources, group)["services"].items()
    }
    assert secrets == {"gateway": 3, "delivery": 2, "retrier": 2, "pipelines": 1, "observe": 3}
    files = told(resources, "observe")["files"]
    jobs = {each["job_name"] for each in files["prometheus.yml"]["scrape_configs"]}
    assert {"gateway-8081", "gateway-8082", "workers-8082", "workers-8083", "workers-8085"} <= jobs


def test_the_alert_rules_are_those_of_the_repository(resources: dict[str, Any]) -> None:
    data = one(resources, "AWS::APS::RuleGroupsNamespace")["Data"]
    assert data == Path("deploy/alerts/hifi.yaml").read_text()
    # AWS accepts at most 20 rules in a group.
    assert max(map(len, GROUPS.values())) <= 20
    alarms = [alarm for _, alarm in of_type(resources, "AWS::CloudWatch::Alarm")]
    metrics = {alarm.get("MetricName") for alarm in alarms}
    wanted = {"LagSeconds", "LoadPerMachine", "UnderMinIsrPartitionCount", "DiskWaitPercent"}
    assert wanted <= metrics


def test_who_is_late_with_idle_processors_is_told_of(resources: dict[str, Any]) -> None:
    """A lock or a wait does not show in processor time, and more machines do not help."""
    found = {}
    for _, alarm in of_type(resources, "AWS::CloudWatch::Alarm"):
        if "Metrics" not in alarm:
            continue
        assert alarm["AlarmActions"]
        (judged,) = (each for each in alarm["Metrics"] if "Expression" in each)
        names = {
            each["MetricStat"]["Metric"]["MetricName"]
            for each in alarm["Metrics"]
            if "MetricStat" in each
        }
        assert (alarm["Threshold"], "CPUUtilization" in names) == (0, True)
        (late,) = names - {"CPUUtilization"}
        found[late] = judged["Expression"]
    assert found == {
        "LagSeconds": "IF(figure > 5.0 AND processors < 50, 1, 0)",
        "TargetResponseTime": "IF(figure > 1.0 AND processors < 50, 1, 0)",
    }


def test_a_role_may_do_what_is_listed_here_and_nothing_else(resources: dict[str, Any]) -> None:
    found: dict[str, set[str]] = {}
    for name, policy in of_type(resources, "AWS::IAM::Policy"):
        role = re.sub("(role)?DefaultPolicy.*", "", name)
        for statement in policy["PolicyDocument"]["Statement"]:
            actions = statement["Action"]
            found.setdefault(role, set()).update([actions] if isinstance(actions, str) else actions)
    assert found == {
        "fleet/gateway": MACHINES_MAY,
        "fleet/workers": MACHINES_MAY,
        "observe/observe": MACHINES_MAY | OBSERVERS_MAY,
        "image/Builder": {"s3:GetObject"},
        "network/VpcFlowLogIAMRole": {
            f"logs:{may}" for may in ("CreateLogStream", "DescribeLogStreams", "PutLogEvents")
        },
    }
