"""Makes the machines of a site: gateways behind a balancer, workers, observers behind another."""

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_elasticloadbalancingv2 as elb
from aws_cdk import aws_s3 as s3
from constructs import Construct

from deploy.aws.machine.load import LOAD, USE
from deploy.aws.machine_groups import CPU, Ground, MachineGroup, MachinesStack
from deploy.aws.network import HTTPS, INSIDE, OPEN, SENDING
from deploy.aws.site import Site
from deploy.aws.watch import alarms_and_dashboard, of_fleet
from shared.runtime import defaults

# Balancers check every 5 s, and stop sending after two refusals. That is within the notice that a
# gateway gives before it refuses connections (services.py).
_CHECK_S = 5
_IDLE_S = 60
_CPU_TARGET_PERCENT = 60


class ObserveStack(MachinesStack):
    """The observers' machines, on which a person also creates topics before anything else works."""

    def __init__(self, scope: Construct, site: Site, ground: Ground) -> None:
        super().__init__(scope, site, "observe", ground)
        count, (balancer, targets) = site.observers, self._balancer()
        # The address at which any observer answers questions about events.
        self.address = f"http://{balancer.load_balancer_dns_name}:{defaults.OBSERVE_METRICS_PORT}"
        self.machines(
            MachineGroup(
                "observe",
                site.observe_instance,
                count,
                count,
                0,
                SENDING,
                target_group=targets.target_group_arn,
                must_be_ready=False,
            )
        )

    def _balancer(self) -> tuple[elb.NetworkLoadBalancer, elb.NetworkTargetGroup]:
        vpc, port = self.network.vpc, defaults.OBSERVE_METRICS_PORT
        balancer = elb.NetworkLoadBalancer(
            self,
            "Index",
            vpc=vpc,
            internet_facing=False,
            security_groups=[self.network.groups["index"]],
            vpc_subnets=ec2.SubnetSelection(subnet_group_name=INSIDE),
            cross_zone_enabled=True,
        )
        targets = elb.NetworkTargetGroup(
            self,
            "Observers",
            vpc=vpc,
            port=port,
            protocol=elb.Protocol.TCP,
            target_type=elb.TargetType.INSTANCE,
            # Observers accept connections only from the balancer.
            preserve_client_ip=False,
            health_check=_is_ready_at(port),
        )
        balancer.add_listener("Places", port=port, default_target_groups=[targets])
        return balancer, targets


class FleetStack(MachinesStack):
    """The machines that carry the traffic."""

    def __init__(self, scope: Construct, site: Site, ground: Ground, observe: str) -> None:
        super().__init__(scope, site, "fleet", ground)
        balancer, targets = self._balancer()
        gateway, delivery, spot = site.sizes.gateway, site.sizes.delivery, site.spot_share
        self.machines(
            MachineGroup(
                "gateway",
                gateway.instance,
                gateway.count_min,
                gateway.count_max,
                spot,
                INSIDE,
                {CPU: _CPU_TARGET_PERCENT, USE: gateway.use},
                targets.target_group_arn,
            ),
            {"HIFI_GATEWAY_OBSERVE": observe},
        )
        self.machines(
            MachineGroup(
                "workers",
                delivery.instance,
                delivery.count_min,
                delivery.count_max,
                spot,
                SENDING if site.way_out == "nat" else OPEN,
                {LOAD: delivery.use},
            )
        )
        alarms_and_dashboard(
            self,
            site.named("fleet"),
            self.watch.topic,
            list(of_fleet(site, balancer.load_balancer_full_name, targets.target_group_full_name)),
        )

    def _balancer(self) -> tuple[elb.ApplicationLoadBalancer, elb.ApplicationTargetGroup]:
        site, vpc = self.site, self.network.vpc
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
            security_group=self.network.groups["balancer"],
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
            health_check=_is_ready_at(defaults.GATEWAY_METRICS_PORT),
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


def _is_ready_at(port: int) -> elb.HealthCheck:
    return elb.HealthCheck(
        protocol=elb.Protocol.HTTP,
        path="/readyz",
        port=str(port),
        interval=Duration.seconds(_CHECK_S),
        timeout=Duration.seconds(_CHECK_S - 1),
        healthy_threshold_count=2,
        unhealthy_threshold_count=2,
    )
