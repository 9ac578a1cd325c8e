"""Checks which steps and outputs a pipeline can have together."""

from collections.abc import Sequence
from typing import Any

from shared.config.model import ConfigError
from shared.config.steps.window import Keeping, WindowStep


def check_steps(steps: Sequence[Any]) -> None:
    """Raise ConfigError if there are two explodes, two keeping steps, or steps after a window."""
    explodes = [index for index, step in enumerate(steps) if step.member == "explode"]
    if len(explodes) > 1:
        wrong = "only one explode: use flatten(...) in it, or chain two pipelines by a stream"
        raise ConfigError(f"steps.{explodes[1]}.explode", wrong)
    keeping = [index for index, step in enumerate(steps) if isinstance(step, Keeping)]
    if len(keeping) > 1:
        wrong = "a pipeline has only one window or dedupe: chain two pipelines by a stream"
        raise ConfigError(f"steps.{keeping[1]}.{steps[keeping[1]].member}", wrong)
    if not keeping or not isinstance(steps[keeping[0]], WindowStep):
        return
    if keeping[0] + 1 < len(steps):
        wrong = "a window must be the last step: process its rows in the next pipeline"
        raise ConfigError(f"steps.{keeping[0] + 1}", wrong)
    if explodes:
        raise ConfigError(f"steps.{explodes[0]}.explode", "put the window into the next pipeline")


def check_outputs(steps: Sequence[Any], outputs: Sequence[Any]) -> None:
    """Raise ConfigError if an output does not suit the steps, or if two outputs get late events."""
    keeps = any(isinstance(step, Keeping) for step in steps)
    counts = any(isinstance(step, WindowStep) for step in steps)
    late_to = [position for position, each in enumerate(outputs) if getattr(each, "late", False)]
    if late_to and not counts:
        raise ConfigError(f"to.{late_to[0]}.late", "no event is late without a window step")
    if len(late_to) > 1:
        raise ConfigError(f"to.{late_to[1]}.late", "only one output can get late events")
    for index, output in enumerate(outputs):
        if keeps and getattr(output, "is_sink", False):
            raise ConfigError(f"to.{index}.{output.member}", "put it into the next pipeline")
        if not counts:
            continue
        if output.member == "dead" and not output.late:
            raise ConfigError(
                f"to.{index}.dead", "a window's row is not an event, so it cannot be dead"
            )
        if output.when is not None:
            raise ConfigError(f"to.{index}.when", "a window's rows go to all outputs")
        if getattr(output, "repost", False):
            raise ConfigError(f"to.{index}.repost", "a window's row is a new event")
