"""What the answers to GETs and POSTs are made from, and where it comes from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from observe.console.authentication import Authentication, Identity
from observe.console.control_session import ControlSession
from observe.console.page_context import PageContext
from observe.console.page_request import PageRequest
from observe.console.pages.event_page import EventFinder
from shared.retry.schedule import RetrySchedule


@dataclass(frozen=True, slots=True)
class Sources:
    """Put together once, in the server."""

    authentication: Authentication
    context: Callable[[], PageContext]
    events: EventFinder
    # Where the gateway answers.
    gateway: str
    schedule: RetrySchedule
    now_ms: Callable[[], int]

    def page_request(self, identity: Identity, fields: Mapping[str, str]) -> PageRequest:
        """A request, with what there is now to answer it."""
        control = ControlSession(self.gateway, identity.session.api_key)
        return PageRequest(identity, fields, self.context(), control)
