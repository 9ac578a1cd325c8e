"""Describes a destination's recent answers, for its page and for `hifi destinations`."""

from observe.lag.trouble import words_of
from shared import wording
from shared.proof.overview import DestinationView


def last_answers(view: DestinationView) -> list[tuple[str, str]]:
    """Return a destination's last successes and refusals, without its own words."""
    facts = []
    if view.lately.total:
        outcomes = ("delivered", "refused", "failed", "rate_limited")
        counts = [f"{getattr(view.lately, name):,} {name.replace('_', '-')}" for name in outcomes]
        facts.append(("Outcomes of the last 5 min", ", ".join(counts)))
    if view.last_ok_at_ms:
        facts.append(("Last taken at", wording.moment(view.last_ok_at_ms)))
    if (answer := view.last_refusal) is not None:
        facts.append(
            ("Last refusal", f"{words_of(answer.reason)} at {wording.moment(answer.at_ms)}")
        )
    return facts
