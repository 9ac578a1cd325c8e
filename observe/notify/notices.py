"""Finds current trouble that is worth a message: with destinations, losses, or the audit."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from shared.config.configuration import Configuration
from shared.config.destination import Destination
from shared.config.outside.channel import Concern
from shared.flow.failing import WARN_AT, failing_part
from shared.flow.flow_record import FlowRecord
from shared.proof.overview import DestinationView, Overview, StreamVerdict
from shared.runtime.defaults import OVERDUE_AFTER_S

# The second of three warnings, as in deploy/alerts.
_SOON_AT = WARN_AT[1]
# The cause if people have acted themselves, which needs no message.
_BY_A_PERSON = "disabled"


@dataclass(frozen=True, slots=True)
class Notice:
    """One trouble, with the facts for a message about it."""

    concern: Concern
    # The name of a page in docs/runbooks, and of an alert.
    runbook: str
    # How long it must last before a message is sent: the same time as in the alert.
    holds_s: float
    says: str
    # Empty for trouble of Hifi as a whole, which concerns the operator.
    destination_id: str = ""
    tenant: str = ""
    waiting: int = 0

    @property
    def key(self) -> str:
        return f"{self.runbook} {self.destination_id}"

    @property
    def path(self) -> str:
        """Its page of the console."""
        return f"/streams/{self.destination_id}" if self.destination_id else "/"


# For each verdict: its concern, its alert, and the seconds that the alert waits.
_OF_VERDICTS: Mapping[StreamVerdict, tuple[Concern, str, float]] = {
    StreamVerdict.FAILING: (Concern.FAILING, "HifiDestinationFailing", 300),
    StreamVerdict.REJECTING: (Concern.FAILING, "HifiDestinationRejecting", 60),
    StreamVerdict.HELD: (Concern.HELD, "HifiDestinationHeld", 0),
    StreamVerdict.DISABLED: (Concern.HELD, "HifiDestinationHeld", 0),
    StreamVerdict.SLOW: (Concern.LAG, "HifiDestinationSlow", 900),
    StreamVerdict.RATE_LIMITED: (Concern.LAG, "HifiDestinationRateLimited", 900),
    StreamVerdict.STALLED: (Concern.LAG, "HifiStreamStopped", 120),
    StreamVerdict.LOSING: (Concern.LOSS, "HifiLoss", 0),
}


def notices_of(
    overview: Overview,
    configuration: Configuration,
    flows: Mapping[str, FlowRecord],
    *,
    now_ms: int,
) -> list[Notice]:
    """Return all current trouble; the overview itself must have no problem."""
    notices = [*_of_the_audit(overview)]
    for view in overview.destinations:
        to = configuration.destinations.get(view.destination_id)
        if to is not None:
            tenant = configuration.tenant_of(view.stream)
            notices += _of(view, to, tenant, flows.get(to.id), now_ms=now_ms)
    return notices


def untold_of(overview: Overview) -> set[str]:
    """Return the destinations whose state is unknown, so that their trouble may go on."""
    unknown = StreamVerdict.CANNOT_TELL
    return {view.destination_id for view in overview.destinations if view.verdict is unknown}


def _of(
    view: DestinationView, to: Destination, tenant: str, record: FlowRecord | None, *, now_ms: int
) -> Iterator[Notice]:
    def notice(topic: Concern, runbook: str, holds_s: float, says: str) -> Notice:
        waiting = view.backlog_events
        return Notice(topic, runbook, holds_s, says, to.id, tenant, waiting)

    if view.verdict is StreamVerdict.CANNOT_TELL:
        # The cause is not known yet; usually it is the operator of Hifi who must act.
        says = f"nobody can tell whether events are lost: {view.reason}"
        yield Notice(Concern.NO_AUDIT, "HifiCannotTell", 600, says, to.id)
    of_verdict = _OF_VERDICTS.get(view.verdict)
    is_late = view.verdict is not StreamVerdict.SLOW or view.cause != "slow_answers"
    if of_verdict is not None and is_late and view.cause != _BY_A_PERSON:
        yield notice(*of_verdict, f"{view.verdict.value}: {view.reason}")
    if view.balance.unaccounted:
        says = f"{view.balance.unaccounted:,} events have no outcome and count as lost so far"
        yield notice(Concern.LOSS, "HifiUnaccounted", 120, says)
    if record is None or to.is_disabled or view.verdict is StreamVerdict.DISABLED:
        return
    part = failing_part(record.flow, disable_after_s=to.disable_after_s, now_ms=now_ms)
    if part >= _SOON_AT:
        left_h = (1 - part) * to.disable_after_s / 3600
        says = f"it has taken nothing for a long time and will be disabled in {left_h:,.0f} h"
        yield notice(Concern.SOON_DISABLED, "HifiDestinationWillBeDisabled", 0, says)


def _of_the_audit(overview: Overview) -> Iterator[Notice]:
    if overview.audit.behind_s > OVERDUE_AFTER_S and not overview.audit.is_elsewhere:
        says = f"losses are not checked: {overview.audit.problem or 'the audit is behind'}"
        yield Notice(Concern.NO_AUDIT, "HifiAuditBehind", 300, says)
