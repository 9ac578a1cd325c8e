"""Writes the systemd units of an image: commands, users, and time limits for stops."""

from collections.abc import Mapping
from pathlib import Path

HOME, RUN, DATA = "/opt/hifi", "/run/hifi", "/var/lib/hifi"
JARS_CACHE = f"{HOME}/cache"
PROMETHEUS = "prometheus.yml"
_PYTHON = f"{HOME}/.venv/bin/python"
# A gateway's notice, its last answers and what is under way (docs/fleet.md), and a little; delivery
# drains for 20 s and Spark ends then.
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
    """All of them, by the names of their files."""
    machine = f"{_PYTHON} -m deploy.aws.machine"
    boot = _unit(
        "Secrets and settings of this machine, in memory",
        unit=["Wants=network-online.target", "After=network-online.target"],
        service=[
            "Type=oneshot",
            "RemainAfterExit=yes",
            "RuntimeDirectory=hifi",
            "RuntimeDirectoryPreserve=yes",
            # Until the metadata service and the store of secrets have answered. Not by Restart=: a
            # first failure would end the starts of all that require this unit, for good.
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
    # Root, as it stops the others.
    beside = {
        "stay": _unit(
            "Says when this machine is ready, and ends it in good time",
            unit=["Requires=hifi-boot.service", "After=hifi-boot.service"],
            service=["Restart=on-failure", "RestartSec=5", f"ExecStart={machine} stay"],
        ),
        "load": _unit(
            "Says how much of its rating is used",
            unit=_after_boot("load.json"),
            service=[
                "User=hifi",
                "Restart=always",
                "RestartSec=5",
                f"ExecStart={machine} load",
            ],
        ),
        "prometheus": _unit(
            "Sends metrics on to AWS' Prometheus",
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
        # SIGTERM to the first process alone: it ends its own.
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
