"""Prepares a machine: fetches its secrets and writes its services' settings, into memory only.

A service's unit starts only if its file exists (units.py), so all machines use the same image.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from deploy.aws.machine.calls import Aws, CallError
from deploy.aws.machine.instance import Instance
from shared.runtime.files.whole_file import write_whole
from shared.runtime.setup_error import SetupError

# The fields of a user in MSK's secrets, and our variables for them.
_OF_USER = {"username": "HIFI_KAFKA_USER", "password": "HIFI_KAFKA_PASSWORD"}
# The characters that are special to systemd between double quotes.
_SPECIAL = str.maketrans({sign: f"\\{sign}" for sign in '\\"$`'})


def aws_of(instance: Instance, config: Mapping[str, Any]) -> Aws:
    return Aws(instance, region=config["region"], endpoint=config["endpoint"])


def prepare(instance: Instance, folder: Path) -> list[Path]:
    """Write the files of this machine; SetupError names the missing one."""
    config = instance.config
    if not config:
        raise SetupError("This machine has no user data: it was not started from the template.")
    aws = aws_of(instance, config)
    try:
        brokers = aws.brokers(config["cluster"])
    except CallError as error:
        raise SetupError(f"Kafka's addresses cannot be read: {error}") from error
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for service, settings in config["services"].items():
        path = folder / f"{service}.env"
        variables = {
            **settings["env"],
            f"HIFI_{service.upper()}_BOOTSTRAP_SERVERS": brokers,
            **dict(_secrets(aws, settings["secrets"])),
        }
        write_whole(path, environment_file(variables).encode(), mode=0o600)
        written.append(path)
    for name, content in config.get("files", {}).items():
        text = json.dumps(content).replace("INSTANCE", instance.id)
        write_whole(folder / name, text.encode(), mode=0o644)
        written.append(folder / name)
    return written


def environment_file(variables: Mapping[str, str]) -> str:
    """Return the text of systemd's EnvironmentFile= (systemd.exec(5))."""
    for name, value in variables.items():
        if "\n" in value or "\0" in value:
            raise SetupError(f"{name} has a line break or a NUL, which no variable may contain.")
    lines = (f'{name}="{value.translate(_SPECIAL)}"\n' for name, value in variables.items())
    return "".join(lines)


def _secrets(aws: Aws, names: list[str]) -> Iterator[tuple[str, str]]:
    for name in names:
        try:
            members = aws.secret(name)
        except CallError as error:
            raise SetupError(
                f"The secret {name} cannot be read: {error}. If it has no value yet, set one: see"
                " `The secrets` in docs/aws.md."
            ) from error
        for member, value in members.items():
            yield _OF_USER.get(member, member), value
