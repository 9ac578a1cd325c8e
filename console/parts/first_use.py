"""Guides a newcomer, command by command, to the first event that arrives."""

from dataclasses import dataclass

from console.parts.markup import Child, Safe, tag
from console.parts.pieces import section
from shared.proof.overview import Overview

# People who have sent more events than this need no guide, even if none has arrived.
_ACKED_MAX = 100
# The sample destination that `make up` runs, which takes everything.
_SAMPLE = "http://127.0.0.1:8090/"


@dataclass(frozen=True, slots=True)
class _FirstStep:
    title: str
    says: str
    command: str
    is_done: bool
    # The label and the path of the form that does it, for people with the permission.
    form: tuple[str, str] | None = None


def is_first_use(overview: Overview) -> bool:
    """Return whether few events were sent so far, and none has arrived anywhere."""
    has_arrived = any(view.balance.delivered for view in overview.takers)
    sent = sum(stream.acked for stream in overview.streams)
    return not (has_arrived or overview.removed or sent > _ACKED_MAX)


def first_steps(overview: Overview, *, has_key: bool, may_change: bool) -> Safe:
    """Return the steps, each with a form and a command to paste; finished steps are marked."""
    stream = overview.streams[0].name if overview.streams else "orders"
    steps = (
        _FirstStep(
            "A key",
            "Only if the gateway asks for keys. Create the first one with the operator key, which"
            " `hifi up` keeps in its folder.",
            "export HIFI_API_KEY=$(HIFI_API_KEY=$(cat data/operator-key)"
            " hifi keys create root --scope admin)",
            is_done=has_key,
            form=("New key …", "/keys/new"),
        ),
        _FirstStep(
            "A stream",
            "A named flow of events.",
            f"hifi streams put {stream}",
            is_done=bool(overview.streams),
            form=("New stream …", "/streams:new"),
        ),
        _FirstStep(
            "A destination",
            "The address that its events go to. This one is the sample destination that `hifi up`"
            " runs, which takes everything.",
            f"hifi destinations put {stream} shop {_SAMPLE}",
            is_done=bool(overview.destinations),
            form=("New destination …", f"/destinations/new?stream={stream}&destination=shop"),
        ),
        _FirstStep(
            "An event",
            "Any JSON will do. Once it is accepted, it is stored.",
            f"""hifi send {stream} '{{"id":"order-1","total":25}}'""",
            is_done=any(each.acked for each in overview.streams),
        ),
        _FirstStep(
            "See it arrive",
            "It arrives within a second or two: watch it here or in the terminal.",
            "hifi status",
            is_done=False,
        ),
    )
    shown = [_shown(step, may_change=may_change) for step in steps]
    return section("First steps", tag("ol", shown, class_="first"))


def _shown(step: _FirstStep, *, may_change: bool) -> Safe:
    title: list[Child] = [tag("strong", step.title)]
    if step.is_done:
        title.append(tag("span", " done", class_="good"))
    code = tag("code", step.command)
    command = tag("pre", code, tabindex="0", role="region", aria_label=step.title)
    says: list[Child] = [step.says]
    if step.form and may_change:
        name, path = step.form
        says += [" ", tag("a", name, href=path)]
    return tag("li", tag("p", title), tag("p", says, class_="quiet"), command)
