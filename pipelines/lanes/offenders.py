"""Remembers which tenants have ended executors, and how long each of them rests. Pure."""

from dataclasses import dataclass, field
from math import inf

# Each executor that ends costs all others some ten seconds. So a tenant rests longer after each:
# for 10 s, 20 s, 40 s and so on, up to 10 minutes, until it has ended no executor for an hour.
_FIRST_S, _MOST_S = 10.0, 600.0
_REMEMBERED_S = 3_600.0
# If this many pipelines of a tenant have ended executors, all its pipelines are suspects.
_MANY = 3


@dataclass(slots=True)
class Offenders:
    """The tenants of one process whose pipelines have ended executors within the last hour."""

    # For each tenant, when executors were ended, and by which of its pipelines.
    _ends: dict[str, list[tuple[float, str]]] = field(default_factory=dict)

    def ended_one(self, tenant: str, lane_id: str, now_s: float) -> float:
        """Remember an ended executor; return until when the tenant's suspects rest."""
        for whose in [*self._ends]:
            self._forget(whose, now_s)
        ends = self._ends.setdefault(tenant, [])
        ends.append((now_s, lane_id))
        return self.rests_until_s(tenant)

    def rests_until_s(self, tenant: str) -> float:
        """The time until which the tenant's suspects rest; past if no executor was ended."""
        if not (ends := self._ends.get(tenant)):
            return -inf
        last_s, _ = ends[-1]
        return last_s + min(_FIRST_S * 2.0 ** min(len(ends) - 1, 8), _MOST_S)

    def are_many(self, tenant: str, now_s: float) -> bool:
        """Whether enough of the tenant's pipelines have ended executors to suspect all."""
        self._forget(tenant, now_s)
        return len({lane_id for _, lane_id in self._ends.get(tenant, ())}) >= _MANY

    def _forget(self, tenant: str, now_s: float) -> None:
        """Forget executors that were ended more than an hour ago."""
        kept = [end for end in self._ends.pop(tenant, ()) if end[0] > now_s - _REMEMBERED_S]
        if kept:
            self._ends[tenant] = kept
