"""Simulates a fleet that follows its traffic, second by second, in whole events.

A fluid model: events arrive in lanes, and the instance that holds a lane delivers them. The rest
wait, oldest first. Lanes are shared out as leases share them (shared/slots.py), by their names: so
an instance may have more of them than another. Instances boot, metrics come late, lanes stand still
while they move, a zone may fail; a policy says how many instances there are to be. Every event that
arrived has been delivered or waits, exactly.
"""

from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from operator import mul

from shared.scale.policy import FleetMetrics, Policy
from shared.scale.throughput import Throughput
from shared.scale.traffic import Curve
from shared.slots import SLOT_COUNT, shares, slot_of

# The holder of all lanes while no instance works.
_NOBODY = "nobody"
_NOTHING: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class LaneLoad:
    """A lane's events: its part of a curve, which several lanes may share."""

    curve: Curve
    weight: float = 1.0
    # The name by which it is shared out, for a shard as it is leased; without one, its number.
    name: str = ""
    # Held, dead or disabled: its events wait for a person or a destination, not for us.
    is_held: bool = False

    def arrived(self, at_s: int) -> int:
        """Before second `at_s` began."""
        return int(self.weight * self.curve[at_s])


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """The parts of a fleet, and how long everything takes in it."""

    throughput: Throughput
    # From the wish for an instance until it works.
    boot_s: int = 90
    # Over how long a metric is averaged, and how much later it is known.
    metric_s: int = 10
    metric_delay_s: int = 10
    # How long a lane stands still that moves to another instance: as planned, and from a lost one.
    handover_s: int = 3
    failover_s: int = 45
    count_min: int = 3
    count_max: int = 100
    # How many there are at first.
    count_first: int = 3
    zones: int = 3
    zone_lost_at_s: int | None = None
    # Later than this is late.
    late_s: int = 5


@dataclass(slots=True)
class FleetRun:
    """The results of a day: totals, and the figures of each second for a plot."""

    arrived: int = 0
    delivered: int = 0
    # Not delivered at the end: of lanes that are served, and of those that are held.
    waiting: int = 0
    held: int = 0
    late: int = 0
    worst_age_s: int = 0
    # Seconds of instances that are paid for: booting counts.
    instance_s: int = 0
    # How often the wish was changed.
    steps: int = 0
    # The waits of all events, added up: event-seconds.
    waited_s: int = 0
    # How often a single lane was looked at: what a simulation costs.
    lane_visits: int = 0
    ready: "array[int]" = field(default_factory=lambda: array("l"))
    capacity: "array[int]" = field(default_factory=lambda: array("q"))
    arrivals: "array[int]" = field(default_factory=lambda: array("q"))
    backlog: "array[int]" = field(default_factory=lambda: array("q"))
    age_s: "array[int]" = field(default_factory=lambda: array("l"))

    @property
    def late_share(self) -> float:
        return self.late / self.arrived if self.arrived else 0.0

    @property
    def mean_wait_s(self) -> float:
        return self.waited_s / self.delivered if self.delivered else 0.0

    @property
    def instance_hours(self) -> float:
        return self.instance_s / 3_600


def simulate(lanes: Sequence[LaneLoad], plan: FleetPlan, policy: Policy) -> FleetRun:
    """A day of these lanes, which must be equally long."""
    return _Simulation(lanes, plan, policy).run()


@dataclass(slots=True)
class _ServedLane:
    """A lane that is served."""

    load: LaneLoad
    slot: int
    # Which of the simulation's curves it has a part of.
    curve: int
    delivered: int = 0
    still_until_s: int = 0
    # The second in which its oldest waiting event arrived.
    oldest_s: int = 0

    def deliver(self, count: int, at_s: int, late_s: int) -> int:
        """Deliver this many events; count how many of them were late."""
        came_late = self.load.arrived(max(0, at_s - late_s))
        late = max(0, min(self.delivered + count, came_late) - self.delivered)
        self.delivered += count
        return late

    def age_s(self, at_s: int) -> int:
        while self.oldest_s <= at_s and self.load.arrived(self.oldest_s + 1) <= self.delivered:
            self.oldest_s += 1
        return max(0, at_s - self.oldest_s)


@dataclass(slots=True)
class _Holder:
    """An instance that works, with the lanes that it holds."""

    slots: frozenset[int]
    lanes: list[_ServedLane]
    # The weights of its lanes, by curve.
    weights: list[float]
    # Whether some lane has a backlog or stands still; else all of them are where they can be, and
    # nobody writes down where that is.
    is_busy: bool = False

    def fits(self, came: Sequence[int], capacity: int) -> bool:
        # One more for each lane, as parts of events are carried over.
        return sum(map(mul, came, self.weights), start=float(len(self.lanes))) <= capacity

    def write_down(self, now_s: int) -> None:
        """Write down how far each lane is, which is not done while none has a backlog."""
        if not self.is_busy:
            for lane in self.lanes:
                lane.delivered = lane.load.arrived(now_s)
                lane.oldest_s = now_s
            self.is_busy = True


class _Instances:
    """The instances of a fleet: working, booting, wished for."""

    def __init__(self, plan: FleetPlan) -> None:
        self._plan = plan
        self.desired = min(max(plan.count_first, plan.count_min), plan.count_max)
        # The working instances, the oldest first.
        self.names: list[str] = []
        self._begun = 0
        self._begin(self.desired)
        # When each group of new ones is ready, and how many those are.
        self._booting: deque[tuple[int, int]] = deque()

    @property
    def ready(self) -> int:
        return len(self.names)

    @property
    def paid(self) -> int:
        return self.ready + sum(count for _, count in self._booting)

    def _begin(self, count: int) -> None:
        self.names += [f"{number:09}" for number in range(self._begun, self._begun + count)]
        self._begun += count

    def wish(self, count: int, at_s: int) -> bool:
        """Have this many from now on; say whether that is another number."""
        count = min(max(count, self._plan.count_min), self._plan.count_max)
        if count == self.desired:
            return False
        self.desired = count
        self.settle(at_s)
        return True

    def settle(self, at_s: int) -> None:
        """Start missing instances; end surplus ones, the youngest first."""
        missing = self.desired - self.paid
        if missing > 0:
            self._booting.append((at_s + self._plan.boot_s, missing))
        while missing < 0 and self._booting:
            ready_at_s, count = self._booting.pop()
            if count + missing > 0:
                self._booting.append((ready_at_s, count + missing))
            missing += count
        if missing < 0:
            del self.names[missing:]

    def boot(self, at_s: int) -> None:
        """Let instances work that have booted."""
        while self._booting and self._booting[0][0] <= at_s:
            self._begin(self._booting.popleft()[1])

    def lose_zone(self, at_s: int) -> None:
        """A zone fails with its part of all, of the odd ones too; the others take over."""
        zones = self._plan.zones
        del self.names[::zones]
        self._booting = deque((when, count - -(-count // zones)) for when, count in self._booting)
        self.settle(at_s)


class _Simulation:
    def __init__(self, lanes: Sequence[LaneLoad], plan: FleetPlan, policy: Policy) -> None:
        self._plan, self._policy = plan, policy
        self._all = lanes
        self._held = [lane for lane in lanes if lane.is_held]
        served = [lane for lane in lanes if not lane.is_held]
        self._curves = list({id(lane.curve): lane.curve for lane in served}.values())
        places = {id(curve): place for place, curve in enumerate(self._curves)}
        self._lanes = [
            _ServedLane(lane, slot_of(lane.name or f"{number}"), places[id(lane.curve)])
            for number, lane in enumerate(served)
        ]
        # The part of each curve that all lanes have together.
        self._weights = [0.0] * len(self._curves)
        for lane in self._lanes:
            self._weights[lane.curve] += lane.load.weight
        self._instances = _Instances(plan)
        self._run = FleetRun()
        # Keyed by instance. While none works, `_NOBODY` holds all lanes, and does nothing.
        self._holders: dict[str, _Holder] = {}
        # The largest part of each curve that any holder has.
        self._fullest = _Holder(frozenset(), [], [])
        self._share_out(until_s=0)
        # The metrics gathered since the last period began, and those that are not known yet.
        self._done = self._could = self._came = 0
        self._unknown: deque[tuple[int, FleetMetrics]] = deque()

    def run(self) -> FleetRun:
        length_s = min((len(lane.curve) - 1 for lane in self._all), default=0)
        for at_s in range(length_s):
            self._change_instances(at_s)
            self._serve(at_s)
            self._observe(at_s)
        run = self._run
        run.arrived = sum(lane.arrived(length_s) for lane in self._all)
        run.held = sum(lane.arrived(length_s) for lane in self._held)
        for holder in self._holders.values():
            holder.write_down(length_s)
        run.delivered = sum(lane.delivered for lane in self._lanes)
        # Events that still wait and are late already count as late, too.
        late_at_s = max(0, length_s - self._plan.late_s)
        run.late += sum(
            max(0, lane.load.arrived(late_at_s) - lane.delivered) for lane in self._lanes
        )
        return run

    def _change_instances(self, at_s: int) -> None:
        instances, plan = self._instances, self._plan
        if at_s == plan.zone_lost_at_s:
            instances.lose_zone(at_s)
            self._share_out(until_s=at_s + plan.failover_s)
        instances.boot(at_s)
        while self._unknown and self._unknown[0][0] <= at_s:
            # The metrics are old, but how many are wished for is known at once.
            seen = replace(self._unknown.popleft()[1], desired=instances.desired)
            self._run.steps += instances.wish(self._policy.wanted(seen), at_s)
        self._share_out(until_s=at_s + plan.handover_s)
        self._run.instance_s += instances.paid

    def _share_out(self, *, until_s: int) -> None:
        """Let those that work hold all lanes; one that moves stands still meanwhile."""
        before, names = self._holders, self._instances.names or [_NOBODY]
        if names == list(before):
            return
        held = {name: before[name].slots if name in before else _NOTHING for name in names}
        owners = {slot: name for name, slots in shares(held, SLOT_COUNT).items() for slot in slots}
        now_s = len(self._run.ready)
        was_with: dict[int, str] = {}
        for name, holder in before.items():
            holder.write_down(now_s)
            was_with |= {id(lane): name for lane in holder.lanes}
        self._holders = {name: _Holder(_NOTHING, [], [0.0] * len(self._curves)) for name in names}
        for lane in self._lanes:
            name = owners[lane.slot]
            if before and was_with[id(lane)] != name:
                lane.still_until_s = max(lane.still_until_s, until_s)
            self._holders[name].lanes.append(lane)
        for name, holder in self._holders.items():
            holder.slots = frozenset(slot for slot, owner in owners.items() if owner == name)
            holder.is_busy = bool(before)
            for lane in holder.lanes:
                holder.weights[lane.curve] += lane.load.weight
        columns = zip(*(holder.weights for holder in self._holders.values()), strict=True)
        most = max((holder.lanes for holder in self._holders.values()), key=len)
        self._fullest = _Holder(_NOTHING, most, [max(column) for column in columns])

    def _serve(self, at_s: int) -> None:
        run, ready = self._run, self._instances.ready
        capacity = int(self._plan.throughput.of(ready)) if ready else 0
        each = capacity // max(ready, 1)
        came = [curve[at_s + 1] - curve[at_s] for curve in self._curves]
        came_now = int(sum(map(mul, came, self._weights)))
        busy = [holder for holder in self._holders.values() if holder.is_busy]
        if busy or not self._fullest.fits(came, each):
            busy = [
                holder
                for holder in self._holders.values()
                if holder.is_busy or not holder.fits(came, each)
            ]
        waits = age_s = 0
        done = came_now
        for holder in busy:
            holder.write_down(at_s)
            done -= int(sum(map(mul, came, holder.weights)))
            served, left, oldest_s = self._serve_holder(holder, at_s, each)
            done, waits, age_s = done + served, waits + left, max(age_s, oldest_s)
        run.ready.append(ready)
        run.capacity.append(capacity)
        run.arrivals.append(came_now)
        run.backlog.append(waits)
        run.age_s.append(age_s)
        run.waiting = waits
        run.waited_s += waits
        run.worst_age_s = max(run.worst_age_s, age_s)
        self._done += done
        self._could += capacity
        self._came += came_now

    def _serve_holder(self, holder: _Holder, at_s: int, capacity: int) -> tuple[int, int, int]:
        """Give each lane its part: events done, events that wait, the age of the oldest."""
        run, lanes = self._run, holder.lanes
        run.lane_visits += len(lanes)
        wishes = []
        waits, is_still = 0, False
        for place, lane in enumerate(lanes):
            backlog = lane.load.arrived(at_s + 1) - lane.delivered
            waits += backlog
            if lane.still_until_s > at_s:
                is_still = True
            elif backlog:
                wishes.append((backlog, place))
        done, left = 0, capacity
        # The lane that wants least comes first: the others share the part that it leaves.
        wishes.sort()
        for rank, (wish, place) in enumerate(wishes):
            part = min(wish, left // (len(wishes) - rank))
            left -= part
            done += part
            run.late += lanes[place].deliver(part, at_s, self._plan.late_s)
        waits -= done
        age_s = max((lane.age_s(at_s) for lane in lanes), default=0) if waits else 0
        holder.is_busy = waits > 0 or is_still
        return done, waits, age_s

    def _observe(self, at_s: int) -> None:
        plan, instances, run = self._plan, self._instances, self._run
        if (at_s + 1) % plan.metric_s:
            return
        ages = [run.age_s[-1], *(_held_age_s(lane, at_s) for lane in self._held)]
        seen = FleetMetrics(
            at_s=at_s + 1,
            ready=instances.ready,
            desired=instances.desired,
            use=self._done / self._could if self._could else 1.0,
            arrivals=self._came / plan.metric_s,
            backlog=run.backlog[-1],
            age_s=max(ages),
            rating=plan.throughput.of(max(instances.ready, 1)) / max(instances.ready, 1),
        )
        self._unknown.append((at_s + 1 + plan.metric_delay_s, seen))
        self._done = self._could = self._came = 0


def _held_age_s(lane: LaneLoad, at_s: int) -> int:
    """Its first event has waited since the day began, or near it."""
    return at_s if lane.arrived(at_s + 1) else 0
