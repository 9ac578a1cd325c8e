"""Lists every kind of worst tenant."""

from collections.abc import Mapping

from tests.support.neighbours.of_destinations import Crowd, Drips, Hanging, Replies, Reports
from tests.support.neighbours.of_pipelines import (
    Documents,
    Executors,
    Memory,
    Numbers,
    Patterns,
    Trials,
)
from tests.support.neighbours.of_requests import Bodies, Connections, Heads
from tests.support.neighbours.of_viewers import Channels, Links, Pages, Searches, Tables, Writes
from tests.support.neighbours.worst_tenant import Nothing, WorstTenant

# The last ones leave work that continues for a while after they have gone.
_ALL: tuple[type[WorstTenant], ...] = (
    *(Bodies, Heads, Connections),
    *(Pages, Searches, Channels, Tables, Writes, Links),
    *(Reports, Replies, Drips, Hanging, Crowd),
    *(Documents, Trials, Numbers, Patterns, Memory, Executors),
)
KINDS: Mapping[str, type[WorstTenant]] = {worst.kind: worst for worst in _ALL}
# Beside this one, figures differ only by their own variation.
CONTROLS: Mapping[str, type[WorstTenant]] = {Nothing.kind: Nothing}
ALL: Mapping[str, type[WorstTenant]] = {**CONTROLS, **KINDS}
