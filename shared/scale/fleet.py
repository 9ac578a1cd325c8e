"""Simulates a fleet that follows its traffic, second by second, in whole events.

It is a fluid model: events arrive in lanes, and the instance that holds a lane delivers them, the
oldest first; the others wait. As with leases (shared/slots.py), lanes are assigned by their names,
so one instance may have more of them than another. Instances boot, metrics come late, lanes stop
while they move, and a zone may fail; a policy decides the number of instances. The counts are
exact: every event that arrived has been delivered or waits.
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
    """A lane's events: its share of a curve, which several lanes may have in common."""

    curve: Curve
    weight: float = 1.0
    # The name by which it is assigned (for a shard, that of its lease); its number if empty.
    name: str = ""
    # Held, dead or disabled: its events wait for a person or a destination, not for an instance.
    is_held: bool = False

    def arrived(self, at_s: int) -> int:
        """Return the number of events that arrived before second `at_s`."""
        return int(self.weight * self.curve[at_s])


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """The properties of a fleet, and the delays in it."""

    throughput: Throughput
    # From the order of an instance until it works.
    boot_s: int = 90
    # The period of a metric, and the delay until it is known.
    metric_s: int = 10
    metric_delay_s: int = 10
    # How long a lane stops when it moves to another instance: as planned, and from a lost one.
    handover_s: int = 3
    failover_s: int = 45
    count_min: int = 3
    count_max: int = 100
    # The initial number of instances.
    count_first: int = 3
    zones: int = 3
    zone_lost_at_s: int | None = None
    # An event is late after this long.
    late_s: int = 5


@dataclass(slots=True)
class FleetRun:
    """The results of a day: totals, and the figures of each second for a plot."""

    arrived: int = 0
    delivered: int = 0
    # Events not delivered at the end: in served lanes, and in held lanes.
    waiting: int = 0
    held: int = 0
    late: int = 0
    worst_age_s: int = 0
    # Paid seconds of instances, boot times included.
    instance_s: int = 0
    # How often the desired number changed.
    steps: int = 0
    # The sum of all events' waits, in event-seconds.
    waited_s: int = 0
    # How often a single lane was processed: the cost of the simulation.
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
    """Simulate a day of these lanes; their curves must have the same length."""
    return _Simulation(lanes, plan, policy).run()


@dataclass(slots=True)
class _ServedLane:
    """A lane that an instance serves."""

    load: LaneLoad
    slot: int
    # The index of its curve in the simulation.
    curve: int
    delivered: int = 0
    still_until_s: int = 0
    # The second in which its oldest waiting event arrived.
    oldest_s: int = 0

    def deliver(self, count: int, at_s: int, late_s: int) -> int:
        """Deliver this many events; return the number of late ones among them."""
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
    """A working instance with its lanes."""

    slots: frozenset[int]
    lanes: list[_ServedLane]
    # The weights of its lanes, by curve.
    weights: list[float]
    # Whether some lane has a backlog or is stopped. Otherwise all lanes have delivered everything,
    # and their positions are not recorded.
    is_busy: bool = False

    def fits(self, came: Sequence[int], capacity: int) -> bool:
        # Count one more event for each lane, because fractions of events are carried over.
        return sum(map(mul, came, self.weights), start=float(len(self.lanes))) <= capacity

    def write_down(self, now_s: int) -> None:
        """Record each lane's position, which is skipped while no lane has a backlog."""
        if not self.is_busy:
            for lane in self.lanes:
                lane.delivered = lane.load.arrived(now_s)
                lane.oldest_s = now_s
            self.is_busy = True


class _Instances:
    """The instances of a fleet: working, booting, desired."""

    def __init__(self, plan: FleetPlan) -> None:
        self._plan = plan
        self.desired = min(max(plan.count_first, plan.count_min), plan.count_max)
        # The working instances, the oldest first.
        self.names: list[str] = []
        self._begun = 0
        self._begin(self.desired)
        # For each group of new instances: when it is ready, and its size.
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
        """Set the desired number of instances; return whether it changed."""
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
        """Let booted instances work."""
        while self._booting and self._booting[0][0] <= at_s:
            self._begin(self._booting.popleft()[1])

    def lose_zone(self, at_s: int) -> None:
        """Remove a zone's share of the instances, rounded up; the other zones take over."""
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
        # All lanes' share of each curve.
        self._weights = [0.0] * len(self._curves)
        for lane in self._lanes:
            self._weights[lane.curve] += lane.load.weight
        self._instances = _Instances(plan)
        self._run = FleetRun()
        # By instance. While none works, `_NOBODY` holds all lanes and delivers nothing.
        self._holders: dict[str, _Holder] = {}
        # The largest share of each curve among all holders.
        self._fullest = _Holder(frozenset(), [], [])
        self._share_out(until_s=0)
        # The metrics of the current period, and those that are not known yet.
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
        # Waiting events that are already late count as late, too.
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
            # The metrics are old, but the desired number is the current one.
            seen = replace(self._unknown.popleft()[1], desired=instances.desired)
            self._run.steps += instances.wish(self._policy.wanted(seen), at_s)
        self._share_out(until_s=at_s + plan.handover_s)
        self._run.instance_s += instances.paid

    def _share_out(self, *, until_s: int) -> None:
        """Assign all lanes to the working instances; a moving lane stops until `until_s`."""
        before, names = self._holders, self._instances.names or [_NOBODY]
        if names == list(before):
            return
        owned = {name: before[name].slots if name in before else _NOTHING for name in names}
        owners = {slot: name for name, slots in shares(owned, SLOT_COUNT).items() for slot in slots}
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
        """Serve the holder's lanes; return the events done, those waiting, and the oldest's age."""
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
        # The lane that needs least comes first: the others divide what it leaves.
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
    """Return its oldest event's age, which is about the time since the day began."""
    return at_s if lane.arrived(at_s + 1) else 0
