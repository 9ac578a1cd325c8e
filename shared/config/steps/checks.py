"""Checks which steps and outputs a pipeline can have beside one another."""

from collections.abc import Sequence
from typing import Any

from shared.config.model import ConfigError
from shared.config.steps.window import Keeping, WindowStep


def check_steps(steps: Sequence[Any]) -> None:
    """At most one step explodes, at most one keeps something, and windows make rows."""
    explodes = [index for index, step in enumerate(steps) if step.member == "explode"]
    if len(explodes) > 1:
        wrong = "it explodes once: put flatten(...) in the first, or chain two by a stream"
        raise ConfigError(f"steps.{explodes[1]}.explode", wrong)
    keeping = [index for index, step in enumerate(steps) if isinstance(step, Keeping)]
    if len(keeping) > 1:
        wrong = "one pipeline has one window or dedupe: chain two by a stream"
        raise ConfigError(f"steps.{keeping[1]}.{steps[keeping[1]].member}", wrong)
    if not keeping or not isinstance(steps[keeping[0]], WindowStep):
        return
    if keeping[0] + 1 < len(steps):
        wrong = "what a window writes are rows: chain what is done with them by a stream"
        raise ConfigError(f"steps.{keeping[0] + 1}", wrong)
    if explodes:
        raise ConfigError(f"steps.{explodes[0]}.explode", "chain the window by a stream")


def check_outputs(steps: Sequence[Any], outputs: Sequence[Any]) -> None:
    """Rows of windows go to all streams and tables; late events go to one place."""
    keeps = any(isinstance(step, Keeping) for step in steps)
    counts = any(isinstance(step, WindowStep) for step in steps)
    late_to = [position for position, each in enumerate(outputs) if getattr(each, "late", False)]
    if late_to and not counts:
        raise ConfigError(f"to.{late_to[0]}.late", "nothing is late where there is no window step")
    if len(late_to) > 1:
        raise ConfigError(f"to.{late_to[1]}.late", "what is late goes to one place")
    for index, output in enumerate(outputs):
        if keeps and getattr(output, "is_sink", False):
            raise ConfigError(f"to.{index}.{output.member}", "chain it by a stream")
        if not counts:
            continue
        if output.member == "dead" and not output.late:
            raise ConfigError(
                f"to.{index}.dead", "a row of a window is no event that could be dead"
            )
        if output.when is not None:
            raise ConfigError(f"to.{index}.when", "a window's rows go to all: chain by a stream")
        if getattr(output, "repost", False):
            raise ConfigError(f"to.{index}.repost", "a row of a window is a new event")
