"""Tells AWS when a machine is ready, and stops its services before AWS takes it away."""

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable, Mapping
from http.client import HTTPException
from typing import Any

from deploy.aws.machine.boot import aws_of
from deploy.aws.machine.calls import Aws, CallError
from deploy.aws.machine.instance import Instance

# AWS gives only two minutes' notice of a spot machine's end.
POLL_S = 5.0
_ANSWER_TIMEOUT_S = 5.0
# A service is restarted after this many missed checks in a row, which take a minute or more.
_SILENT_MAX = 12
# Longer than any unit may take to stop (units.py), and well within the hook's time.
_STOP_TIMEOUT_S = 110.0
# The template's names for the hooks.
START, END = "start", "end"


def stay(instance: Instance, *, poll_s: float = POLL_S) -> int:
    """Run until the machine must end; stop its services, and return the exit code of the stop."""
    config = instance.config
    aws = aws_of(instance, config)
    why = _until_ready(instance, config["services"], poll_s)
    if why is None:
        _say_ready(aws, instance.id, config)
        _say("ready")
        why = _until_end(instance, config["services"], poll_s)
    _say(f"ending: {why}")
    code = _systemctl("stop", config["services"])
    _say(f"stopped, exit code {code}")
    _complete(aws, instance.id, config["group"], END)
    return code


def _until_ready(
    instance: Instance, services: Mapping[str, Mapping[str, Any]], poll_s: float
) -> str | None:
    """Return None when all are ready, or why the machine must end before that."""
    waiting = [url for service in services.values() for url in service["ready"]]
    while waiting:
        if why := _why_end(instance):
            return why
        waiting = [url for url in waiting if not _says_yes(url)]
        if waiting:
            time.sleep(min(poll_s, 1.0))
    return None


def _until_end(instance: Instance, services: Mapping[str, Mapping[str, Any]], poll_s: float) -> str:
    """Return why the machine must end; restart dead services until then."""
    silent = dict.fromkeys(services, 0)
    while True:
        if why := _why_end(instance):
            return why
        for name, service in services.items():
            silent[name] = 0 if all(map(_says_yes, service["live"])) else silent[name] + 1
            if silent[name] >= _SILENT_MAX:
                silent[name] = 0
                _say(f"{name} does not answer, and is restarted")
                # Do not wait for the restart: a notice may come meanwhile.
                _systemctl("restart", [name], "--no-block")
        time.sleep(poll_s)


def _why_end(instance: Instance) -> str | None:
    try:
        return instance.why_end()
    except OSError as error:
        # One missing answer is no reason to end; ask again in the next round.
        _say(f"the metadata service does not answer: {error}")
        return None


def _says_yes(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=_ANSWER_TIMEOUT_S):  # noqa: S310 - loopback, ours
            return True
    except (OSError, HTTPException):
        return False


def _say_ready(aws: Aws, instance_id: str, config: Mapping[str, Any]) -> None:
    _complete(aws, instance_id, config["group"], START)
    try:
        aws.query(
            "cloudformation",
            "SignalResource",
            StackName=config["stack"],
            LogicalResourceId=config["resource"],
            UniqueId=instance_id,
            Status="SUCCESS",
        )
    except CallError as error:
        # Only a stack that is being rolled out waits for the signal.
        _say(f"nobody waits for the signal: {error}")


def _systemctl(what: str, services: Iterable[str], *how: str) -> int:
    command = ["systemctl", *how, what, *(f"hifi-{name}.service" for name in services)]
    try:
        ended = subprocess.run(command, check=False, timeout=_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return 124
    return ended.returncode


def _complete(aws: Aws, instance_id: str, group: str, hook: str) -> None:
    try:
        aws.query(
            "autoscaling",
            "CompleteLifecycleAction",
            AutoScalingGroupName=group,
            LifecycleHookName=hook,
            InstanceId=instance_id,
            LifecycleActionResult="CONTINUE",
        )
    except CallError as error:
        # AWS takes spot machines away whatever the group does, and hooks time out by themselves.
        _say(f"the group does not wait for {hook}: {error}")


def _say(text: str) -> None:
    sys.stderr.write(f"hifi-stay: {text}\n")
    sys.stderr.flush()
