"""Says what the answers to GETs and POSTs are made of, and where it comes from."""

from collections.abc import Callable
from dataclasses import dataclass

from observe.console.dead_page import DeadDesk
from observe.console.doors import Doors
from observe.console.event_page import EventFinder
from observe.console.scene import Scene
from shared.schedule import RetrySchedule


@dataclass(frozen=True, slots=True)
class Sources:
    """Put together once, in the server."""

    doors: Doors
    scene: Callable[[], Scene]
    events: EventFinder
    dead: DeadDesk
    schedule: RetrySchedule
    now_ms: Callable[[], int]
