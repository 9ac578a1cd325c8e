"""Defines alerts, and creates alerts for verdicts."""

from dataclasses import dataclass
from typing import Literal

from shared import metric_names as m
from shared.proof.overview import StreamVerdict

Severity = Literal["page", "ticket", "note"]

# The repository's documentation; clients/go/go.mod names the same repository.
DOCUMENTATION = "https://github.com/hifi-streams/hifi/blob/main"


@dataclass(frozen=True, slots=True)
class Alert:
    name: str
    severity: Severity
    expr: str
    summary: str
    # The meaning, and the first thing to check.
    description: str
    for_: str = "0s"

    @property
    def runbook(self) -> str:
        return f"docs/runbooks/{self.name}.md"

    @property
    def runbook_url(self) -> str:
        """The link that Alertmanager's templates and Grafana show."""
        return f"{DOCUMENTATION}/{self.runbook}"


# Metrics show a pipeline among the destinations of its stream.
DESTINATIONS, PIPELINES = (f',destination{sign}~".+/pipeline:.+"' for sign in "!=")


def judged(
    name: str,
    severity: Severity,
    verdicts: tuple[StreamVerdict, ...],
    description: str,
    *,
    whose: str = "",
    also: str = "",
    for_: str = "0s",
) -> Alert:
    """Return an alert for verdicts, in the words of console and command line."""
    words = "|".join(verdict.value for verdict in verdicts)
    metric = f'{m.OBSERVE_VERDICT.name}{{verdict=~"{words}"{whose}}}'
    # The alert must continue when the cause changes but the verdict stays the same.
    expr = f"max by (destination, verdict) ({metric}) > 0{also}"
    matchers = "{destination=%q,verdict=%q}"
    query = f'printf "{m.OBSERVE_VERDICT.name}{matchers}" $labels.destination $labels.verdict'
    cause = f'{{{{ with {query} | query }}}}: {{{{ . | first | label "cause" }}}}{{{{ end }}}}'
    summary = "{{ $labels.destination }} is {{ $labels.verdict }}" + cause
    return Alert(name, severity, expr, summary, description, for_)
