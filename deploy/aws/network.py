"""Makes the network of a site: three zones, firewall rules, and a single open port.

Gateways have no access to the internet, and reach AWS through endpoints. Workers have a NAT in
their zone, so that destinations know which addresses call them; or each worker has an address of
its own, which is cheaper. Observe has a NAT, because its console signs people in at the site's own
address.
"""

from collections.abc import Iterator

from aws_cdk import Environment, RemovalPolicy, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_logs as logs
from constructs import Construct

from deploy.aws.site import ZONE_COUNT, Site
from shared.runtime import defaults

HTTPS = 443
# The port of MSK for SCRAM over TLS.
KAFKA_PORT = 9096
# Each group's subnet, and whether it may call any address outside.
OPEN, INSIDE, SENDING = "open", "inside", "sending"
_PEERS = {
    "balancer": False,
    "gateway": False,
    "workers": True,
    "observe": True,
    # The balancer in front of the observers.
    "index": False,
    "kafka": False,
    "endpoints": False,
    "image": True,
}
# The AWS services that machines without internet access call.
_ENDPOINTS = (
    "aps-workspaces",
    "autoscaling",
    "cloudformation",
    "kafka",
    "monitoring",
    "secretsmanager",
    "ssm",
    "ssmmessages",
)


def _flows(site: Site) -> Iterator[tuple[str, str, int, int]]:
    """Yield each allowed connection: source, target, first and last port."""
    metrics, workers = defaults.GATEWAY_METRICS_PORT, site.gateway_cores
    yield "balancer", "gateway", defaults.GATEWAY_PORT, defaults.GATEWAY_PORT
    yield "balancer", "gateway", metrics, metrics
    yield "observe", "gateway", metrics, metrics + workers - 1
    yield "gateway", "index", defaults.OBSERVE_METRICS_PORT, defaults.OBSERVE_METRICS_PORT
    yield "index", "observe", defaults.OBSERVE_METRICS_PORT, defaults.OBSERVE_METRICS_PORT
    yield "observe", "workers", defaults.DELIVERY_METRICS_PORT, defaults.RETRIER_METRICS_PORT
    yield "observe", "workers", defaults.PIPELINES_METRICS_PORT, defaults.PIPELINES_METRICS_PORT
    for group in ("gateway", "workers", "observe"):
        yield group, "kafka", KAFKA_PORT, KAFKA_PORT
    for group in ("gateway", "workers", "observe", "image"):
        yield group, "endpoints", HTTPS, HTTPS


class NetworkStack(Stack):
    def __init__(self, scope: Construct, site: Site) -> None:
        super().__init__(scope, site.named("network"), env=Environment(region=site.region))
        kinds = ec2.SubnetType
        subnets = {
            OPEN: kinds.PUBLIC,
            INSIDE: kinds.PRIVATE_ISOLATED,
            SENDING: kinds.PRIVATE_WITH_EGRESS,
        }
        self.vpc = ec2.Vpc(
            self,
            "Vpc",
            ip_addresses=ec2.IpAddresses.cidr(site.cidr),
            availability_zones=list(site.zones),
            # If workers have their own addresses, one NAT suffices for the remaining traffic.
            nat_gateways=ZONE_COUNT if site.way_out == "nat" else 1,
            restrict_default_security_group=False,
            subnet_configuration=[
                ec2.SubnetConfiguration(
                    name=name, subnet_type=kind, cidr_mask=20, map_public_ip_on_launch=False
                )
                if kind == kinds.PUBLIC
                else ec2.SubnetConfiguration(name=name, subnet_type=kind, cidr_mask=20)
                for name, kind in subnets.items()
            ],
            gateway_endpoints={
                "S3": ec2.GatewayVpcEndpointOptions(service=ec2.GatewayVpcEndpointAwsService.S3)
            },
        )
        log = logs.LogGroup(
            self,
            "Flows",
            retention=logs.RetentionDays.ONE_MONTH,
            removal_policy=RemovalPolicy.RETAIN,
        )
        self.vpc.add_flow_log(
            "FlowLog", destination=ec2.FlowLogDestination.to_cloud_watch_logs(log)
        )
        self.groups = {
            name: ec2.SecurityGroup(
                self,
                name.title(),
                vpc=self.vpc,
                description=f"{site.named(name)}",
                allow_all_outbound=calls_out,
            )
            for name, calls_out in _PEERS.items()
        }
        self._let(site)

    def _let(self, site: Site) -> None:
        for source, target, first, last in _flows(site):
            self.groups[target].connections.allow_from(
                self.groups[source], ec2.Port.tcp_range(first, last), f"from {source}"
            )
        balancer = self.groups["balancer"]
        balancer.add_ingress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(HTTPS), "senders of events")
        # S3 has a gateway endpoint, which needs no security group. The image's builder and the
        # workers may call any address anyway.
        for name in _ENDPOINTS:
            ec2.InterfaceVpcEndpoint(
                self,
                f"To {name}",
                vpc=self.vpc,
                service=ec2.InterfaceVpcEndpointService(
                    f"com.amazonaws.{site.region}.{name}", HTTPS
                ),
                private_dns_enabled=True,
                open=False,
                security_groups=[self.groups["endpoints"]],
                subnets=ec2.SubnetSelection(subnet_group_name=INSIDE),
            )

    def subnets(self, name: str) -> list[str]:
        """Return the ids of a kind's subnets, one in each zone."""
        return list(self.vpc.select_subnets(subnet_group_name=name).subnet_ids)
