"""Writes the systemd units of an image: commands, users, and time limits for stops."""

from collections.abc import Mapping
from pathlib import Path

HOME, RUN, DATA = "/opt/hifi", "/run/hifi", "/var/lib/hifi"
JARS_CACHE = f"{HOME}/cache"
PROMETHEUS = "prometheus.yml"
_PYTHON = f"{HOME}/.venv/bin/python"
# Enough for a gateway's notice, its last answers and its open requests (docs/fleet.md), with some
# reserve. Delivery drains for 20 s, and then Spark ends.
_STOP_S = 100
# The command that starts each service; the gateway's variables set its number of workers.
SERVICES = {
    "gateway": f"{HOME}/.venv/bin/hifi gateway",
    "delivery": f"{_PYTHON} -m delivery",
    "retrier": f"{_PYTHON} -m retrier",
    "pipelines": f"{_PYTHON} -m pipelines",
    "observe": f"{_PYTHON} -m observe",
}


def units() -> Mapping[str, str]:
    """Return the text of each unit, by file name."""
    machine = f"{_PYTHON} -m deploy.aws.machine"
    boot = _unit(
        "Secrets and settings of this machine, in memory",
        unit=["Wants=network-online.target", "After=network-online.target"],
        service=[
            "Type=oneshot",
            "RemainAfterExit=yes",
            "RuntimeDirectory=hifi",
            "RuntimeDirectoryPreserve=yes",
            # Retry until the metadata service and the secrets' store answer. Restart= would not do:
            # a first failure would permanently cancel the start of all units that require this.
            "TimeoutStartSec=infinity",
            f"ExecStart=/bin/sh -c 'until {machine} boot --folder {RUN}; do sleep 10; done'",
        ],
    )
    services = {
        name: _unit(
            f"Hifi's {name}", unit=_after_boot(f"{name}.env"), service=_service(name, command)
        )
        for name, command in SERVICES.items()
    }
    # `stay` runs as root, because it stops the others.
    beside = {
        "stay": _unit(
            "Reports when this machine is ready, and stops its services in time",
            unit=["Requires=hifi-boot.service", "After=hifi-boot.service"],
            service=["Restart=on-failure", "RestartSec=5", f"ExecStart={machine} stay"],
        ),
        "load": _unit(
            "Publishes how much of its rating this machine uses",
            unit=_after_boot("load.json"),
            service=[
                "User=hifi",
                "Restart=always",
                "RestartSec=5",
                f"ExecStart={machine} load",
            ],
        ),
        "prometheus": _unit(
            "Forwards metrics to AWS' Prometheus",
            unit=_after_boot(PROMETHEUS),
            service=[
                "User=prometheus",
                "Restart=always",
                "RestartSec=5",
                "StateDirectory=hifi-prometheus",
                (
                    "ExecStart=/usr/bin/prometheus --enable-feature=agent"
                    f" --config.file={RUN}/{PROMETHEUS} --web.listen-address=127.0.0.1:9090"
                    " --storage.agent.path=/var/lib/hifi-prometheus"
                ),
            ],
        ),
    }
    return {
        f"hifi-{name}.service": text for name, text in {"boot": boot, **services, **beside}.items()
    }


def write_units(folder: Path) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in units().items():
        (folder / name).write_text(text, encoding="utf-8")
    return list(units())


def _after_boot(file: str) -> list[str]:
    return [
        "Requires=hifi-boot.service",
        "After=hifi-boot.service",
        f"ConditionPathExists={RUN}/{file}",
    ]


def _service(name: str, command: str) -> list[str]:
    return [
        "User=hifi",
        f"EnvironmentFile={RUN}/{name}.env",
        f"WorkingDirectory={HOME}",
        f"ExecStart={command}",
        "Restart=always",
        "RestartSec=2",
        # SIGTERM goes to the main process alone, which stops its children.
        "KillMode=mixed",
        f"TimeoutStopSec={_STOP_S}",
        "LimitNOFILE=65536",
        "StateDirectory=hifi",
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        f"ReadWritePaths={DATA} {JARS_CACHE}",
        "ProtectHome=yes",
        "PrivateTmp=yes",
    ]


def _unit(description: str, *, unit: list[str], service: list[str]) -> str:
    return "\n".join(
        [
            "[Unit]",
            f"Description={description}",
            *unit,
            "",
            "[Service]",
            *service,
            "",
            "[Install]",
            "WantedBy=multi-user.target",
            "",
        ]
    )
