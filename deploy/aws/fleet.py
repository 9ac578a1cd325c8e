"""Makes the machines of a site: gateways behind a balancer, workers, observers; how many, when."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from aws_cdk import (
    CfnAutoScalingRollingUpdate,
    CfnCreationPolicy,
    CfnResourceSignal,
    CfnTag,
    CfnUpdatePolicy,
    Duration,
    Environment,
    Fn,
    RemovalPolicy,
    Stack,
)
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_elasticloadbalancingv2 as elb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from deploy.aws.kafka import KafkaStack
from deploy.aws.machine.load import LOAD, NAMESPACE, USE
from deploy.aws.machine.stay import END, START
from deploy.aws.network import HTTPS, INSIDE, OPEN, SENDING, NetworkStack
from deploy.aws.services import MachineService, config_of, services_of
from deploy.aws.site import Site
from deploy.aws.watch import WatchStack, alarms_and_dashboard, of_fleet
from shared.runtime import defaults

# A machine that is not ready after so long is given up: its boot takes a minute or two.
_START_S = 600
# Longer than a unit may take to stop (machine/units.py).
_END_S = 150
# From its start until a machine's figures count.
_WARM_UP_S = 120
# The balancer asks every 5 s, and gives up after two refusals: within the notice that a gateway
# gives before it takes nobody any more (services.py).
_CHECK_S = 5
_IDLE_S = 60
_CPU_TARGET_PERCENT = 60
_DISK_GB = 40
_METRIC_S = 10
# Targets of policies: machines' own processor time, or a figure of ours (machine/load.py).
_CPU = "ASGAverageCPUUtilization"


@dataclass(frozen=True, slots=True)
class MachineGroup:
    """Machines that are alike."""

    name: str
    instance: str
    least: int
    most: int
    # As a part of what is above the least.
    spot_share: float
    subnets: str
    # What its figure of ours is to be kept at; none: its number is fixed.
    tracked: Mapping[str, float] = field(default_factory=dict)
    target_group: str | None = None


class FleetStack(Stack):
    def __init__(
        self,
        scope: Construct,
        site: Site,
        network: NetworkStack,
        kafka: KafkaStack,
        watch: WatchStack,
    ) -> None:
        super().__init__(scope, site.named("fleet"), env=Environment(region=site.region))
        self._site, self._network, self._kafka, self._watch = site, network, kafka, watch
        balancer, targets = self._balancer()
        for group in _groups(site, targets.target_group_arn):
            self._machines(group, services_of(site, group.name))
        alarms_and_dashboard(
            self,
            site.named("fleet"),
            watch.topic,
            list(of_fleet(site, balancer.load_balancer_full_name, targets.target_group_full_name)),
        )

    def _balancer(self) -> tuple[elb.ApplicationLoadBalancer, elb.ApplicationTargetGroup]:
        site, vpc = self._site, self._network.vpc
        log = s3.Bucket(
            self,
            "AccessLog",
            encryption=s3.BucketEncryption.S3_MANAGED,
            enforce_ssl=True,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            removal_policy=RemovalPolicy.RETAIN,
            lifecycle_rules=[s3.LifecycleRule(expiration=Duration.days(90))],
        )
        balancer = elb.ApplicationLoadBalancer(
            self,
            "Balancer",
            vpc=vpc,
            internet_facing=True,
            security_group=self._network.groups["balancer"],
            vpc_subnets=ec2.SubnetSelection(subnet_group_name=OPEN),
            desync_mitigation_mode=elb.DesyncMitigationMode.STRICTEST,
            drop_invalid_header_fields=True,
            deletion_protection=True,
            idle_timeout=Duration.seconds(_IDLE_S),
        )
        balancer.log_access_logs(log)
        targets = elb.ApplicationTargetGroup(
            self,
            "Gateways",
            vpc=vpc,
            port=defaults.GATEWAY_PORT,
            protocol=elb.ApplicationProtocol.HTTP,
            target_type=elb.TargetType.INSTANCE,
            deregistration_delay=Duration.seconds(_IDLE_S),
            health_check=elb.HealthCheck(
                path="/readyz",
                port=str(defaults.GATEWAY_METRICS_PORT),
                interval=Duration.seconds(_CHECK_S),
                timeout=Duration.seconds(_CHECK_S - 1),
                healthy_threshold_count=2,
                unhealthy_threshold_count=2,
            ),
        )
        balancer.add_listener(
            "Https",
            port=HTTPS,
            open=False,
            ssl_policy=elb.SslPolicy.TLS13_RES,
            certificates=[elb.ListenerCertificate.from_arn(site.certificate)],
            default_target_groups=[targets],
        )
        return balancer, targets

    def _machines(self, group: MachineGroup, services: Sequence[MachineService]) -> None:
        """A group, what its machines start from, and what they may do."""
        site, name = self._site, self._site.named(group.name)
        role = self._role(group, services)
        profile = iam.CfnInstanceProfile(self, f"{group.name} profile", roles=[role.role_name])
        resource = f"{group.name.title()}Group"
        config = config_of(
            site,
            group.name,
            services,
            stack=self.stack_name,
            resource=resource,
            cluster=self._kafka.cluster.attr_arn,
            secrets={user: each.ref for user, each in self._kafka.users.items()}
            | {secret: each.ref for secret, each in self._kafka.secrets.items()},
            workspace=self._watch.workspace.attr_prometheus_endpoint,
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
            vpc_zone_identifier=self._network.subnets(group.subnets),
            capacity_rebalance=True,
            default_instance_warmup=_WARM_UP_S,
            health_check_type="ELB" if group.target_group else "EC2",
            health_check_grace_period=_START_S,
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
                    (START, "LAUNCHING", _START_S, "ABANDON"),
                    (END, "TERMINATING", _END_S, "CONTINUE"),
                )
            ],
            notification_configurations=[
                parts.NotificationConfigurationProperty(
                    topic_arn=self._watch.topic.topic_arn,
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
        name = self._site.named(group.name)
        role = iam.Role(
            self, f"{group.name} role", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com")
        )
        own = f"arn:{self.partition}:autoscaling:{self.region}:{self.account}:autoScalingGroup:*"
        stack = f"arn:{self.partition}:cloudformation:{self.region}:{self.account}:stack"
        mine = {"StringEquals": {"cloudwatch:namespace": NAMESPACE}}
        statements = [
            *self._kafka.rights(
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
                _allow(self._watch.workspace.attr_arn, "aps:RemoteWrite"),
            ]
        for statement in statements:
            role.add_to_policy(statement)
        return role

    def _template(
        self, group: MachineGroup, profile: iam.CfnInstanceProfile, config: str
    ) -> ec2.CfnLaunchTemplate:
        parts = ec2.CfnLaunchTemplate
        disk = parts.EbsProperty(
            volume_size=_DISK_GB, volume_type="gp3", encrypted=True, delete_on_termination=True
        )
        return ec2.CfnLaunchTemplate(
            self,
            f"{group.name} template",
            launch_template_data=parts.LaunchTemplateDataProperty(
                image_id=self._site.image,
                instance_type=group.instance,
                iam_instance_profile=parts.IamInstanceProfileProperty(arn=profile.attr_arn),
                security_group_ids=[self._network.groups[group.name].security_group_id],
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
        """By each figure; AWS goes out if any asks for more, and in when all ask for fewer.

        Target tracking goes out after 3 points above its target, and in after 15 below nine tenths
        of it: out quickly, in slowly.
        """
        parts = autoscaling.CfnScalingPolicy
        for metric, target in group.tracked.items():
            if metric == _CPU:
                kind = {
                    "predefined_metric_specification": parts.PredefinedMetricSpecificationProperty(
                        predefined_metric_type=_CPU
                    )
                }
            else:
                where = parts.MetricDimensionProperty(
                    name="Group", value=self._site.named(group.name)
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


def _groups(site: Site, target_group: str) -> Sequence[MachineGroup]:
    gateway, delivery = site.sizes.gateway, site.sizes.delivery
    spot = site.spot_share
    return (
        MachineGroup(
            "gateway",
            gateway.instance,
            gateway.count_min,
            gateway.count_max,
            spot,
            INSIDE,
            {_CPU: _CPU_TARGET_PERCENT, USE: gateway.use},
            target_group,
        ),
        MachineGroup(
            "workers",
            delivery.instance,
            delivery.count_min,
            delivery.count_max,
            spot,
            SENDING,
            {LOAD: delivery.use},
        ),
        MachineGroup("observe", site.observe_instance, site.observers, site.observers, 0, SENDING),
    )


def _roll(made: autoscaling.CfnAutoScalingGroup, group: MachineGroup) -> None:
    """A new template replaces one machine after the other, each when the one before was ready."""
    # One less than there may be, as AWS wants it; a plan has a zone's machines to spare.
    in_service = min(group.least, group.most - 1)
    made.cfn_options.creation_policy = CfnCreationPolicy(
        resource_signal=CfnResourceSignal(count=group.least, timeout=f"PT{_START_S // 60}M")
    )
    made.cfn_options.update_policy = CfnUpdatePolicy(
        auto_scaling_rolling_update=CfnAutoScalingRollingUpdate(
            min_instances_in_service=in_service,
            max_batch_size=1,
            pause_time=f"PT{_START_S // 60}M",
            wait_on_resource_signals=True,
            suspend_processes=["AlarmNotification", "AZRebalance", "ScheduledActions"],
        )
    )


def _allow(resource: str, *actions: str) -> iam.PolicyStatement:
    return iam.PolicyStatement(actions=list(actions), resources=[resource])
