"""Makes the monitoring of a site: alert rules in AWS's Prometheus, alarms, a dashboard."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from aws_cdk import Duration, Environment, RemovalPolicy, Stack
from aws_cdk import aws_aps as aps
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from deploy.alerts.rule_file import rule_file
from deploy.aws.machine.load import DISK_WAIT, LAG, LOAD, NAMESPACE, USE
from deploy.aws.site import Site

# The alarm's share of a broker's sustained rate (docs/sizing.md plans up to 75 %).
_BROKER_USE_MAX = 0.8
_DISK_USE_MAX_PERCENT = 70
# A machine that waits for its disk a fifth of the time is slow, though its processors are idle.
_DISK_WAIT_MAX_PERCENT = 20
# A late service with half idle processors waits for something else: a lock, a disk, a slow
# destination. More machines do not help then.
_IDLE_BELOW_PERCENT = 50
_SLOW_S = 1.0
_MB = 1_000_000
_METRICS_A_ROW = 4
_WIDTH = 24 // _METRICS_A_ROW


@dataclass(frozen=True, slots=True)
class MetricAlarm:
    """An alarm on a CloudWatch metric: its limit, and how long it must be exceeded."""

    what: str
    namespace: str
    metric: str
    dimensions: Mapping[str, str]
    limit: float
    statistic: str = "Maximum"
    period_s: int = 60
    points: int = 3
    # If False, missing data raises the alarm too, because then nothing scales.
    may_be_silent: bool = True
    # If set, the alarm also requires idle processors in this group.
    idle_group: str | None = None

    @property
    def limit_shown(self) -> float:
        """The limit of the drawn figure: 0 for a combination, which is 1 if both parts hold."""
        return self.limit if self.idle_group is None else 0

    def seen(self) -> cloudwatch.IMetric:
        metric = cloudwatch.Metric(
            namespace=self.namespace,
            metric_name=self.metric,
            dimensions_map=dict(self.dimensions),
            statistic=self.statistic,
            period=Duration.seconds(self.period_s),
        )
        if self.idle_group is None:
            return metric
        processors = cloudwatch.Metric(
            namespace="AWS/EC2",
            metric_name="CPUUtilization",
            dimensions_map={"AutoScalingGroupName": self.idle_group},
            statistic="Average",
        )
        return cloudwatch.MathExpression(
            expression=f"IF(figure > {self.limit} AND processors < {_IDLE_BELOW_PERCENT}, 1, 0)",
            using_metrics={"figure": metric, "processors": processors},
            period=Duration.seconds(self.period_s),
            label=self.what,
        )


def of_kafka(site: Site) -> Iterator[MetricAlarm]:
    """Yield Kafka's alarms, most of them for each broker."""
    brokers = range(1, site.sizes.kafka.broker_count + 1)
    cluster = {"Cluster Name": site.named("kafka")}
    yield MetricAlarm("no leader", "AWS/Kafka", "OfflinePartitionsCount", cluster, 0)
    limits = {"UnderMinIsrPartitionCount": 0.0}
    if site.is_express:
        used = _BROKER_USE_MAX * _MB
        limits["BytesInPerSec"] = used * site.broker.in_mb_s
        limits["BytesOutPerSec"] = used * site.broker.out_mb_s
    else:
        limits["KafkaDataLogsDiskUsed"] = _DISK_USE_MAX_PERCENT
    for broker in brokers:
        where = cluster | {"Broker ID": str(broker)}
        for metric, limit in limits.items():
            yield MetricAlarm(f"broker {broker}: {metric}", "AWS/Kafka", metric, where, limit)


def of_fleet(site: Site, balancer: str, targets: str) -> Iterator[MetricAlarm]:
    """Yield the alarms of machines, of the balancer, and of the scaling."""
    front = {"LoadBalancer": balancer}
    yield MetricAlarm(
        "the balancer answers 5xx itself",
        "AWS/ApplicationELB",
        "HTTPCode_ELB_5XX_Count",
        front,
        10,
        "Sum",
    )
    yield MetricAlarm(
        "gateways that are not ready",
        "AWS/ApplicationELB",
        "UnHealthyHostCount",
        front | {"TargetGroup": targets},
        0,
        points=10,
    )
    yield from _of_waits(site, front)
    for group, sizes in (("gateway", site.sizes.gateway), ("workers", site.sizes.delivery)):
        where = {"AutoScalingGroupName": site.named(group)}
        if sizes.count_max > sizes.count_min:
            what, most = f"{group} is as large as it may be", sizes.count_max - 1
            yield MetricAlarm(what, "AWS/AutoScaling", "GroupDesiredCapacity", where, most)
    yield MetricAlarm(
        "gateways by their rating", NAMESPACE, USE, {"Group": site.named("gateway")}, 0.9
    )
    where = {"Group": site.named("workers")}
    yield MetricAlarm(
        "delivery by its rating", NAMESPACE, LOAD, where, 1.0, points=10, may_be_silent=False
    )
    yield MetricAlarm(
        "events are late: the scaling was wrong", NAMESPACE, LAG, where, site.lag_target_s, points=5
    )


def _of_waits(site: Site, front: Mapping[str, str]) -> Iterator[MetricAlarm]:
    """Yield alarms for waits for locks and disks, which processor time does not show."""
    for group in ("gateway", "workers", "observe"):
        where = {"Group": site.named(group)}
        what = f"{group} waits for its disk"
        yield MetricAlarm(what, NAMESPACE, DISK_WAIT, where, _DISK_WAIT_MAX_PERCENT, points=5)
    yield MetricAlarm(
        "requests are slow, and processors idle: locks or waits",
        "AWS/ApplicationELB",
        "TargetResponseTime",
        front,
        _SLOW_S,
        "p99",
        points=5,
        idle_group=site.named("gateway"),
    )
    yield MetricAlarm(
        "events are late, and processors idle: locks or waits",
        NAMESPACE,
        LAG,
        {"Group": site.named("workers")},
        site.lag_target_s,
        points=5,
        idle_group=site.named("workers"),
    )


class WatchStack(Stack):
    def __init__(self, scope: Construct, site: Site) -> None:
        super().__init__(scope, site.named("watch"), env=Environment(region=site.region))
        key = kms.Key(self, "Key", enable_key_rotation=True, removal_policy=RemovalPolicy.RETAIN)
        self.topic = sns.Topic(self, "Alarms", master_key=key, enforce_ssl=True)
        self.topic.add_subscription(subscriptions.EmailSubscription(site.email))
        for service in ("cloudwatch.amazonaws.com", "aps.amazonaws.com"):
            who = iam.ServicePrincipal(service)
            here = {"StringEquals": {"aws:SourceAccount": self.account}}
            key.add_to_resource_policy(
                iam.PolicyStatement(
                    principals=[who],
                    actions=["kms:GenerateDataKey", "kms:Decrypt"],
                    resources=["*"],
                    conditions=here,
                )
            )
            self.topic.add_to_resource_policy(
                iam.PolicyStatement(
                    principals=[who],
                    actions=["sns:Publish", "sns:GetTopicAttributes"],
                    resources=[self.topic.topic_arn],
                    conditions=here,
                )
            )
        self.workspace = aps.CfnWorkspace(
            self,
            "Prometheus",
            alias=site.named("prometheus"),
            alert_manager_definition=self.to_json_string(self._alertmanager(site)),
        )
        self.workspace.apply_removal_policy(RemovalPolicy.RETAIN)
        aps.CfnRuleGroupsNamespace(
            self, "Rules", name="hifi", workspace=self.workspace.attr_arn, data=rule_file()
        )
        alarms_and_dashboard(self, site.named("kafka"), self.topic, list(of_kafka(site)))

    def _alertmanager(self, site: Site) -> Mapping[str, object]:
        """Return the Alertmanager settings that AWS accepts; JSON is valid YAML."""
        receivers = [
            {
                "name": severity,
                "sns_configs": [
                    {
                        "topic_arn": self.topic.topic_arn,
                        "sigv4": {"region": site.region},
                        "subject": f"hifi {site.name}: {severity}",
                        "send_resolved": True,
                    }
                ],
            }
            for severity in ("page", "ticket")
        ]
        route = {
            "receiver": "quiet",
            "group_by": ["alertname"],
            "routes": [
                {"receiver": one["name"], "matchers": [f'severity="{one["name"]}"']}
                for one in receivers
            ],
        }
        # Notes are not sent to anybody: Grafana shows them.
        config = {"route": route, "receivers": [{"name": "quiet"}, *receivers]}
        return {"alertmanager_config": json.dumps(config)}


def alarms_and_dashboard(
    scope: Construct, name: str, topic: sns.ITopic, watched: Sequence[MetricAlarm]
) -> None:
    """Make an alarm for each metric, which notifies `topic`, and a dashboard with all of them."""
    board = cloudwatch.Dashboard(scope, "Dashboard", dashboard_name=name)
    row: list[cloudwatch.IWidget] = []
    for each in watched:
        metric = each.seen()
        treatment = cloudwatch.TreatMissingData
        alarm = cloudwatch.Alarm(
            scope,
            f"Alarm {each.what}",
            metric=metric,
            alarm_description=f"{name}: {each.what}",
            threshold=each.limit_shown,
            evaluation_periods=each.points,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
            treat_missing_data=(
                treatment.NOT_BREACHING if each.may_be_silent else treatment.BREACHING
            ),
        )
        alarm.add_alarm_action(actions.SnsAction(topic))
        row.append(cloudwatch.GraphWidget(title=each.what, left=[metric], width=_WIDTH))
        if len(row) == _METRICS_A_ROW:
            board.add_widgets(*row)
            row = []
    board.add_widgets(*row)
