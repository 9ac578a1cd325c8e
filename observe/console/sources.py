"""Says what the answers to GETs and POSTs are made of, and where it comes from."""

from collections.abc import Callable
from dataclasses import dataclass

from observe.console.authentication import Authentication
from observe.console.page_context import PageContext
from observe.console.pages.dead_page import DeadDesk
from observe.console.pages.event_page import EventFinder
from shared.retry.schedule import RetrySchedule


@dataclass(frozen=True, slots=True)
class Sources:
    """Put together once, in the server."""

    doors: Authentication
    scene: Callable[[], PageContext]
    events: EventFinder
    dead: DeadDesk
    schedule: RetrySchedule
    now_ms: Callable[[], int]
