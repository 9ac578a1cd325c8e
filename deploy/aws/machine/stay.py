"""Tells AWS when a machine is ready, and ends its services in good time before it is taken away."""

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

# Two minutes' notice and no more are given of a spot machine's end.
POLL_S = 5.0
_ANSWER_TIMEOUT_S = 5.0
# So often in a row a service does not say that it lives, a minute and more, before it is restarted.
_SILENT_MAX = 12
# Longer than any unit may take to stop (units.py), and well within the hook's.
_STOP_TIMEOUT_S = 110.0
# As the template calls the hooks.
START, END = "start", "end"


def stay(instance: Instance, *, poll_s: float = POLL_S) -> int:
    """Until the machine is to end, and its services have ended: how their stop ended."""
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
    """None once all are ready; or why the machine is to end before."""
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
                _say(f"{name} does not live, and is started again")
                # Do not wait for it: a notice may come in the meantime.
                _systemctl("restart", [name], "--no-block")
        time.sleep(poll_s)


def _why_end(instance: Instance) -> str | None:
    try:
        return instance.why_end()
    except OSError as error:
        # That it does not answer once is no reason to end, nor to stop asking.
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
        # Only a stack that is being rolled out waits for it.
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
        # AWS takes a spot machine away regardless of the group, and a hook has its own time.
        _say(f"the group does not wait for {hook}: {error}")


def _say(text: str) -> None:
    sys.stderr.write(f"hifi-stay: {text}\n")
    sys.stderr.flush()
