"""Makes the settings of a site's services; without secrets, because AWS stores templates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deploy.alerts.rules import SCRAPE_S
from deploy.aws.machine.units import DATA, JARS_CACHE, PROMETHEUS
from deploy.aws.site import Site
from deploy.aws.topics import topic_variables
from shared.runtime import defaults

_ANY = "0.0.0.0"  # noqa: S104 - the machine's security group limits who can reach it
# The copies of tables: one folder for all processes of a machine.
_TABLES = f"{DATA}/tables"
# The balancer sees two refusals in this time, and then sends no more requests (fleet.py).
_DRAIN_NOTICE_S = 15
_ENDPOINT = "https://{service}.{region}.amazonaws.com"


@dataclass(frozen=True, slots=True)
class MachineService:
    """A service, and the port at which its machine checks whether it is ready."""

    name: str
    port: int
    # Names in kafka.SECRETS.
    secrets: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)


def services_of(site: Site, group: str) -> Sequence[MachineService]:
    """Return the services that run on each machine of a group."""
    match group:
        case "gateway":
            return (_gateway(site),)
        case "workers":
            cluster = (
                {} if site.spark_master == "local" else {"HIFI_SPARK_MASTER": site.spark_master}
            )
            # Delivery and the retrier share what they learn about destinations' capacity. On a
            # cluster, its workers share it.
            flows = {} if cluster else {"FLOW_FOLDER": f"{DATA}/flows"}
            return (
                _lanes("delivery", defaults.DELIVERY_METRICS_PORT, flows, cluster),
                _lanes("retrier", defaults.RETRIER_METRICS_PORT, flows, {}),
                # Without a pipeline this process is small: Spark starts with the first pipeline.
                _lanes(
                    "pipelines",
                    defaults.PIPELINES_METRICS_PORT,
                    {"TABLES_FOLDER": _TABLES},
                    cluster,
                    secrets=(),
                ),
            )
        case _:
            return (_observe(site),)


def config_of(
    site: Site,
    group: str,
    services: Sequence[MachineService],
    *,
    stack: str,
    resource: str,
    cluster: str,
    secrets: Mapping[str, str],
    workspace: str,
    addresses: Mapping[str, str],
) -> Mapping[str, Any]:
    """Return the user data of a machine (machine/boot.py)."""
    config: dict[str, Any] = {
        "region": site.region,
        "endpoint": _ENDPOINT,
        "cluster": cluster,
        "group": site.named(group),
        "stack": stack,
        "resource": resource,
        "services": {
            service.name: {
                # Its Kafka user, and its other secrets.
                "secrets": [secrets[name] for name in (service.name, *service.secrets)],
                "env": {**topic_variables(site), **addresses, **service.env},
                "ready": _pages(site, service, "readyz"),
                "live": _pages(site, service, "livez"),
            }
            for service in services
        },
    }
    config["load"] = load = _load(site, group)
    config["files"] = {"load.json": load}
    if group == "observe":
        config["files"][PROMETHEUS] = prometheus(site, workspace)
    return config


def prometheus(site: Site, workspace: str) -> Mapping[str, Any]:
    """Return the settings of the agent that scrapes all machines; JSON is valid YAML."""
    metrics = defaults.GATEWAY_METRICS_PORT
    ports = {
        "gateway": range(metrics, metrics + site.gateway_cores),
        "workers": (
            defaults.DELIVERY_METRICS_PORT,
            defaults.RETRIER_METRICS_PORT,
            defaults.PIPELINES_METRICS_PORT,
        ),
        "observe": (defaults.OBSERVE_METRICS_PORT,),
    }
    return {
        "global": {
            "scrape_interval": f"{SCRAPE_S}s",
            # AWS keeps the samples of one of two replicas (see its pages on high availability).
            "external_labels": {"cluster": site.named("hifi"), "__replica__": "INSTANCE"},
        },
        "scrape_configs": [
            {
                "job_name": f"{group}-{port}",
                "ec2_sd_configs": [
                    {
                        "region": site.region,
                        "port": port,
                        "filters": [{"name": "tag:hifi:group", "values": [site.named(group)]}],
                    }
                ],
            }
            for group, of_group in ports.items()
            for port in of_group
        ],
        "remote_write": [
            {"url": f"{workspace}api/v1/remote_write", "sigv4": {"region": site.region}}
        ],
    }


def _pages(site: Site, service: MachineService, path: str) -> list[str]:
    """Return one page for each worker of a gateway, because a single worker may hang."""
    count = site.gateway_cores if service.name == "gateway" else 1
    ports = range(service.port, service.port + count)
    return [f"http://{defaults.HOST}:{port}/{path}" for port in ports]


def _load(site: Site, group: str) -> Mapping[str, Any]:
    """Return which load a machine publishes besides its disk waits, and for which group."""
    metrics = defaults.GATEWAY_METRICS_PORT
    ports: Sequence[int]
    what, whose, ports, sizes = {
        "gateway": (
            "gateway",
            "gateway",
            range(metrics, metrics + site.gateway_cores),
            site.sizes.gateway,
        ),
        "workers": ("waits", "workers", (), site.sizes.delivery),
        "observe": ("delivery", "workers", (defaults.OBSERVE_METRICS_PORT,), site.sizes.delivery),
    }[group]
    return {
        "what": what,
        "group": site.named(whose),
        "rating": sizes.rating,
        "pages": [f"http://{defaults.HOST}:{port}/metrics" for port in ports],
    }


def _gateway(site: Site) -> MachineService:
    env = {
        "HOST": _ANY,
        "WORKERS": str(site.gateway_cores),
        "HOSTS": site.domain,
        "DRAIN_NOTICE_S": str(_DRAIN_NOTICE_S),
        "TABLES_FOLDER": _TABLES,
    }
    return MachineService(
        "gateway",
        defaults.GATEWAY_METRICS_PORT,
        ("seal", "control"),
        {f"HIFI_GATEWAY_{name}": value for name, value in env.items()},
    )


def _lanes(
    name: str,
    port: int,
    more: Mapping[str, str],
    cluster: Mapping[str, str],
    *,
    secrets: Sequence[str] = ("seal",),
) -> MachineService:
    env = {
        "METRICS_HOST": _ANY,
        "FOLDER": f"{DATA}/{name}",
        "JARS_CACHE": JARS_CACHE,
        **more,
    }
    variables = {f"HIFI_{name.upper()}_{variable}": value for variable, value in env.items()}
    return MachineService(name, port, secrets, {**variables, **cluster})


def _observe(site: Site) -> MachineService:
    env = {
        "METRICS_HOST": _ANY,
        "FOLDER": f"{DATA}/observe",
        "JARS_CACHE": JARS_CACHE,
        # The console is on loopback: people reach it through Session Manager.
        "CONSOLE_GATEWAY": f"https://{site.domain}",
    }
    return MachineService(
        "observe",
        defaults.OBSERVE_METRICS_PORT,
        ("seal", "statements"),
        {f"HIFI_OBSERVE_{name}": value for name, value in env.items()},
    )
