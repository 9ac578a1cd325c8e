"""The step of a pipeline that calls a function."""

from typing import ClassVar

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from shared.config.model import CONFIG
from shared.config.values import FunctionName


@dataclass(frozen=True, slots=True, config=ConfigDict(**CONFIG, extra="forbid"))
class Call:
    """Calls a function that an operator has installed; it adds members to the event."""

    member: ClassVar[str] = "call"
    call: FunctionName
