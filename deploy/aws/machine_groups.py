"""Makes groups of machines: their image, their rights, and their scaling."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from aws_cdk import (
    CfnAutoScalingRollingUpdate,
    CfnCreationPolicy,
    CfnResourceSignal,
    CfnTag,
    CfnUpdatePolicy,
    Environment,
    Fn,
    Stack,
)
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

from deploy.aws.kafka import KafkaStack
from deploy.aws.machine.load import NAMESPACE
from deploy.aws.machine.stay import END, START
from deploy.aws.network import OPEN, NetworkStack
from deploy.aws.services import MachineService, config_of, services_of
from deploy.aws.site import Site
from deploy.aws.watch import WatchStack

# A machine that is not ready in this time is replaced: a boot takes a minute or two.
_START_S = 600
# Longer than a unit may take to stop (machine/units.py).
_END_S = 150
# The time from a machine's start until its figures count.
_WARM_UP_S = 120
_DISK_GB = 40
_METRIC_S = 10
# The metric of a scaling policy: machines' processor time, or our own (machine/load.py).
CPU = "ASGAverageCPUUtilization"


@dataclass(frozen=True, slots=True)
class MachineGroup:
    """A group of identical machines."""

    name: str
    instance: str
    least: int
    most: int
    # The share of spot machines among those above `least`.
    spot_share: float
    subnets: str
    # The target of each metric; empty if the number of machines is fixed.
    tracked: Mapping[str, float] = field(default_factory=dict)
    target_group: str | None = None
    # Whether a machine that never gets ready fails the deployment.
    must_be_ready: bool = True


@dataclass(frozen=True, slots=True)
class Ground:
    """The stacks that machines need, deployed before them."""

    network: NetworkStack
    kafka: KafkaStack
    watch: WatchStack


class MachinesStack(Stack):
    """A stack with groups of machines."""

    def __init__(self, scope: Construct, site: Site, what: str, ground: Ground) -> None:
        super().__init__(scope, site.named(what), env=Environment(region=site.region))
        self.site = site
        self.network, self.kafka, self.watch = ground.network, ground.kafka, ground.watch

    def machines(self, group: MachineGroup, addresses: Mapping[str, str] | None = None) -> None:
        """Make a group, its machines' template, and their rights.

        `addresses`: variables with addresses from other stacks.
        """
        site, name = self.site, self.site.named(group.name)
        services = services_of(site, group.name)
        role = self._role(group, services)
        profile = iam.CfnInstanceProfile(self, f"{group.name} profile", roles=[role.role_name])
        resource = f"{group.name.title()}Group"
        config = config_of(
            site,
            group.name,
            services,
            stack=self.stack_name,
            resource=resource,
            cluster=self.kafka.cluster.attr_arn,
            secrets={user: each.ref for user, each in self.kafka.users.items()}
            | {secret: each.ref for secret, each in self.kafka.secrets.items()},
            workspace=self.watch.workspace.attr_prometheus_endpoint,
            addresses=addresses or {},
        )
        template = self._template(group, profile, self.to_json_string(config))
        made = self._group(group, name, resource, template)
        made.override_logical_id(resource)
        _roll(made, group)
        if group.most > group.least:
            self._scale(made, group)

    def _group(
        self, group: MachineGroup, name: str, resource: str, template: ec2.CfnLaunchTemplate
    ) -> autoscaling.CfnAutoScalingGroup:
        parts = autoscaling.CfnAutoScalingGroup
        launch = parts.LaunchTemplateSpecificationProperty(
            launch_template_id=template.ref, version=template.attr_latest_version_number
        )
        return autoscaling.CfnAutoScalingGroup(
            self,
            resource,
            auto_scaling_group_name=name,
            min_size=str(group.least),
            max_size=str(group.most),
            vpc_zone_identifier=self.network.subnets(group.subnets),
            capacity_rebalance=True,
            default_instance_warmup=_WARM_UP_S,
            # Not the balancer's check: while Kafka is down no gateway is ready, and a new one
            # would not be either. A dead service is restarted on its machine (machine/stay.py).
            health_check_type="EC2",
            target_group_arns=[group.target_group] if group.target_group else None,
            metrics_collection=[parts.MetricsCollectionProperty(granularity="1Minute")],
            mixed_instances_policy=parts.MixedInstancesPolicyProperty(
                launch_template=parts.LaunchTemplateProperty(launch_template_specification=launch),
                instances_distribution=parts.InstancesDistributionProperty(
                    on_demand_base_capacity=group.least,
                    on_demand_percentage_above_base_capacity=round(100 * (1 - group.spot_share)),
                    spot_allocation_strategy="price-capacity-optimized",
                ),
            ),
            lifecycle_hook_specification_list=[
                parts.LifecycleHookSpecificationProperty(
                    lifecycle_hook_name=hook,
                    lifecycle_transition=f"autoscaling:EC2_INSTANCE_{transition}",
                    heartbeat_timeout=timeout_s,
                    default_result=result,
                )
                for hook, transition, timeout_s, result in (
                    (
                        START,
                        "LAUNCHING",
                        _START_S,
                        "ABANDON" if group.must_be_ready else "CONTINUE",
                    ),
                    (END, "TERMINATING", _END_S, "CONTINUE"),
                )
            ],
            notification_configurations=[
                parts.NotificationConfigurationProperty(
                    topic_arn=self.watch.topic.topic_arn,
                    notification_types=[
                        "autoscaling:EC2_INSTANCE_LAUNCH_ERROR",
                        "autoscaling:EC2_INSTANCE_TERMINATE_ERROR",
                    ],
                )
            ],
            tags=[
                parts.TagPropertyProperty(key=key, value=value, propagate_at_launch=True)
                for key, value in (("Name", name), ("hifi:group", name))
            ],
        )

    def _role(self, group: MachineGroup, services: Sequence[MachineService]) -> iam.Role:
        name = self.site.named(group.name)
        role = iam.Role(
            self, f"{group.name} role", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com")
        )
        own = f"arn:{self.partition}:autoscaling:{self.region}:{self.account}:autoScalingGroup:*"
        stack = f"arn:{self.partition}:cloudformation:{self.region}:{self.account}:stack"
        mine = {"StringEquals": {"cloudwatch:namespace": NAMESPACE}}
        statements = [
            *self.kafka.rights(
                [service.name for service in services],
                sorted({secret for service in services for secret in service.secrets}),
            ),
            _allow(f"{own}:autoScalingGroupName/{name}", "autoscaling:CompleteLifecycleAction"),
            _allow(f"{stack}/{self.stack_name}/*", "cloudformation:SignalResource"),
            iam.PolicyStatement(
                actions=["cloudwatch:PutMetricData"], resources=["*"], conditions=mine
            ),
            # A shell without an open port (Session Manager).
            _allow(
                "*",
                "ssm:UpdateInstanceInformation",
                *(
                    f"ssmmessages:{verb}{kind}Channel"
                    for verb in ("Create", "Open")
                    for kind in ("Control", "Data")
                ),
            ),
        ]
        if group.name == "observe":
            statements += [
                _allow("*", "autoscaling:DescribeAutoScalingGroups"),
                _allow("*", "ec2:DescribeInstances", "ec2:DescribeAvailabilityZones"),
                _allow(self.watch.workspace.attr_arn, "aps:RemoteWrite"),
            ]
        for statement in statements:
            role.add_to_policy(statement)
        return role

    def _template(
        self, group: MachineGroup, profile: iam.CfnInstanceProfile, config: str
    ) -> ec2.CfnLaunchTemplate:
        parts = ec2.CfnLaunchTemplate
        rules = [self.network.groups[group.name].security_group_id]
        is_outside = group.subnets == OPEN
        # The address is for outgoing calls: the rules allow no incoming ones.
        address = parts.NetworkInterfaceProperty(
            device_index=0, associate_public_ip_address=True, groups=rules
        )
        disk = parts.EbsProperty(
            volume_size=_DISK_GB, volume_type="gp3", encrypted=True, delete_on_termination=True
        )
        return ec2.CfnLaunchTemplate(
            self,
            f"{group.name} template",
            launch_template_data=parts.LaunchTemplateDataProperty(
                image_id=self.site.image,
                instance_type=group.instance,
                iam_instance_profile=parts.IamInstanceProfileProperty(arn=profile.attr_arn),
                security_group_ids=None if is_outside else rules,
                network_interfaces=[address] if is_outside else None,
                metadata_options=parts.MetadataOptionsProperty(
                    http_tokens="required", http_put_response_hop_limit=1
                ),
                monitoring=parts.MonitoringProperty(enabled=True),
                block_device_mappings=[
                    parts.BlockDeviceMappingProperty(device_name="/dev/sda1", ebs=disk)
                ],
                user_data=Fn.base64(config),
                tag_specifications=[
                    parts.TagSpecificationProperty(
                        resource_type="volume", tags=[CfnTag(key="Name", value=group.name)]
                    )
                ],
            ),
        )

    def _scale(self, made: autoscaling.CfnAutoScalingGroup, group: MachineGroup) -> None:
        """Scale by each metric: out if any asks for more machines, in if all ask for fewer.

        Target tracking scales out after 3 points above its target, and in after 15 points below
        nine tenths of it: out quickly, in slowly.
        """
        parts = autoscaling.CfnScalingPolicy
        for metric, target in group.tracked.items():
            if metric == CPU:
                kind = {
                    "predefined_metric_specification": parts.PredefinedMetricSpecificationProperty(
                        predefined_metric_type=CPU
                    )
                }
            else:
                where = parts.MetricDimensionProperty(
                    name="Group", value=self.site.named(group.name)
                )
                stat = parts.TargetTrackingMetricStatProperty(
                    metric=parts.MetricProperty(
                        namespace=NAMESPACE, metric_name=metric, dimensions=[where]
                    ),
                    stat="Average",
                    period=_METRIC_S,
                )
                query = parts.TargetTrackingMetricDataQueryProperty(
                    id="figure", metric_stat=stat, return_data=True
                )
                kind = {
                    "customized_metric_specification": parts.CustomizedMetricSpecificationProperty(
                        metrics=[query]
                    )
                }
            autoscaling.CfnScalingPolicy(
                self,
                f"{group.name} by {metric}",
                auto_scaling_group_name=made.ref,
                policy_type="TargetTrackingScaling",
                target_tracking_configuration=parts.TargetTrackingConfigurationProperty(
                    target_value=target, **kind
                ),
            )


def _roll(made: autoscaling.CfnAutoScalingGroup, group: MachineGroup) -> None:
    """Let a new template replace machines one by one, each after the one before is ready."""
    # AWS requires a number below the maximum; `hifi plan` has a zone's machines to spare.
    in_service = min(group.least, group.most - 1)
    if group.must_be_ready:
        made.cfn_options.creation_policy = CfnCreationPolicy(
            resource_signal=CfnResourceSignal(count=group.least, timeout=f"PT{_START_S // 60}M")
        )
    made.cfn_options.update_policy = CfnUpdatePolicy(
        auto_scaling_rolling_update=CfnAutoScalingRollingUpdate(
            min_instances_in_service=in_service,
            max_batch_size=1,
            pause_time=f"PT{_START_S // 60}M",
            wait_on_resource_signals=group.must_be_ready,
            suspend_processes=["AlarmNotification", "AZRebalance", "ScheduledActions"],
        )
    )


def _allow(resource: str, *actions: str) -> iam.PolicyStatement:
    return iam.PolicyStatement(actions=list(actions), resources=[resource])
