"""Plans a chaos run from its seed alone: each change and each fault, when and for how long.

A pure function: the same seed gives the same plan. It keeps track of what will exist at each
moment, so that an action is about something that exists; only the run shows whether it then
succeeds.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any, TypeAlias

from tests.chaos.actions import (
    AFTERMATH,
    CHANGES,
    FAULTS,
    FAULTS_OF_THREE,
    MOODS,
    ROUND_S,
    WORST,
    Action,
    Brokers,
    ChaosPlan,
)
from tests.chaos.broker_plan import planned

# Two cores run this many lanes beside Kafka, two Spark drivers and the senders.
_DESTINATIONS_MAX = 6
_TENANTS_MAX = 4
# The last fault begins at this time, so that it ends before its round.
_LAST_FAULT_S = 27.0
# Kafka is away for this much longer: the gateway waits 4 s for Kafka's reports before it answers.
_OUTAGE_S = 4.0
# Events a second: more than a stuck lane sends in a minute, but fewer than 32 requests at once can
# carry.
_PICKY_PACE = 25
# After this many rounds a stream has events in closed minutes.
_LATE_ROUNDS = 2
# A stream and the name of one of its destinations.
Place: TypeAlias = tuple[str, str]


def chaos_plan(seed: int, *, minutes: float, brokers: Brokers | None = None) -> ChaosPlan:
    """Return the plan of a seed; every third seed has three brokers by default."""
    dice = Random(seed)
    given: Brokers = brokers or (3 if seed % 3 == 0 else 1)
    drafter = _Drafter(dice)
    beginning = drafter.beginning()
    rounds = max(1, round(minutes * 60 / ROUND_S))
    # The other faults happen to one broker as well as to three.
    faults = _deck(dice, FAULTS if given == 1 else (*FAULTS, *FAULTS_OF_THREE, *FAULTS_OF_THREE))
    # Taking a freed stream needs a name that was given up, which few plans of three minutes have.
    changes = _deck(dice, (*CHANGES, "take freed stream"))
    # Drawn separately: a seed's other actions stay the same with or without it.
    worst = _worst(Random(f"{seed} worst"))
    drafted = (drafter.round(faults, changes) for _ in range(rounds))
    return ChaosPlan(
        seed,
        given,
        beginning,
        tuple(tuple(sorted([*actions, next(worst)], key=_at_s)) for actions in drafted),
    )


def _at_s(action: Action) -> float:
    return action.at_s


def _worst(dice: Random) -> Iterator[Action]:
    """Yield one tenant at its worst for each round, beside the other actions."""
    deal = _deck(dice, WORST)
    for nth in count(1):
        at_s, for_s = round(dice.uniform(0, 10), 1), round(dice.uniform(8, 16), 1)
        yield Action(at_s, deal(), tenant=f"worst-{nth}", for_s=for_s)


def _deck(dice: Random, cards: Sequence[str]) -> Callable[[], str]:
    """Return a function that deals all cards in a random order, then all of them again."""
    left: list[str] = []

    def deal() -> str:
        if not left:
            left.extend(dice.sample(cards, len(cards)))
        return left.pop()

    return deal


@dataclass
class _Drafter:
    """Writes down actions, and knows the state of the world after them."""

    dice: Random
    tenants: list[str] = field(default_factory=list)
    # Each stream's owner; then the names that were given up, with their former owners.
    streams: dict[str, str] = field(default_factory=dict)
    freed: dict[str, str] = field(default_factory=dict)
    # The settings of each destination; then the removed destinations whose stream still exists.
    destinations: dict[Place, dict[str, Any]] = field(default_factory=dict)
    removed: list[Place] = field(default_factory=list)
    paused: list[Place] = field(default_factory=list)
    # Every name is used once, so that only intended names are reused.
    numbers: Iterator[int] = field(default_factory=count)
    drafted: list[Action] = field(default_factory=list)
    at_s: float = 0.0
    # The rate of events to each stream, and the round in which the stream began.
    paces: dict[str, float] = field(default_factory=dict)
    begun: dict[str, int] = field(default_factory=dict)
    round_number: int = 0
    # The destination that refuses some events for as long as it exists.
    picky: Place | None = None
    # Whether leaders have moved because a broker was away.
    are_leaders_astray: bool = False

    def beginning(self) -> tuple[Action, ...]:
        for _ in range(2):
            self.make_tenant()
        self.make_destination()
        return self._taken()

    def round(self, faults: Callable[[], str], changes: Callable[[], str]) -> tuple[Action, ...]:
        self.round_number += 1
        for place in list(self.destinations):
            if place != self.picky:
                self._moods(place)
        if self.are_leaders_astray:
            self.are_leaders_astray = False
            self.at_s = self._between(0, 0.9)
            self._note(AFTERMATH, **planned(AFTERMATH, self.dice, outage_s=0))
        # One after the other: a Spark driver that died needs the cores to start again.
        for at_s in (self._between(1, 6), self._between(12, 17), self._between(24, _LAST_FAULT_S)):
            self.at_s = at_s
            fault = faults()
            self._fault(fault)
            if fault == "roll brokers":
                # Rolling brokers takes the rest of the round.
                break
        for at_s in sorted(self._between(1, ROUND_S - 4) for _ in range(4)):
            self.at_s = at_s
            self._change(changes)
        return self._taken()

    def _fault(self, fault: str) -> None:
        self.are_leaders_astray |= fault in {"roll brokers", "cut broker"}
        for_s = self._between(2, 8)
        if fault == "step clock":
            self._note(fault, for_s=for_s, seconds=self.dice.choice((-90, 90)))
            return
        if fault.startswith("skew"):
            # Up to an hour, and long enough to write waits and read them again.
            seconds = self.dice.choice((-1, 1)) * self.dice.choice((90, 900, 3_600))
            self._note(fault, for_s=for_s + _OUTAGE_S, seconds=seconds)
            return
        if fault in FAULTS_OF_THREE:
            self._note(fault, **planned(fault, self.dice, outage_s=for_s + _OUTAGE_S))
            return
        if "broker" in fault:
            for_s += _OUTAGE_S
        self._note(fault, for_s=for_s)

    def _moods(self, place: Place) -> None:
        """Add at most three bad moods of a destination; if two overlap, the later one counts."""
        for _ in range(self.dice.choice((0, 1, 2, 3))):
            # Long enough for requests to meet it even if delivery is just restarting.
            for_s = self._between(4, 16)
            self.at_s = self._between(0, ROUND_S - for_s)
            mood = self.dice.choice(MOODS)
            self._at(place, f"mood {mood}", for_s=for_s)

    def _change(self, changes: Callable[[], str]) -> None:
        """Make the next possible change; an impossible one gives its turn to the next kind."""
        for _ in range(len(CHANGES)):
            kind = changes()
            if getattr(self, kind.replace(" ", "_"))():
                return

    def make_tenant(self) -> bool:
        if len(self.tenants) >= _TENANTS_MAX or len(self.destinations) >= _DESTINATIONS_MAX:
            return False
        tenant = f"t{next(self.numbers)}"
        self.tenants.append(tenant)
        self._note("make tenant", tenant=tenant)
        self._new_stream(tenant)
        return True

    def change_tenant(self) -> bool:
        rate = self.dice.choice((30, 100, 1_000))
        self._note("change tenant", tenant=self.dice.choice(self.tenants), events_per_s=rate)
        return True

    def remove_tenant(self) -> bool:
        if len(self.tenants) <= 2:
            return False
        tenant = self.dice.choice(self.tenants)
        self.tenants.remove(tenant)
        for stream in [stream for stream, owner in self.streams.items() if owner == tenant]:
            self._forget(stream)
        self._note("remove tenant", tenant=tenant)
        return True

    def rotate_key(self) -> bool:
        self._note("rotate key", tenant=self.dice.choice(self.tenants))
        return True

    def make_stream(self) -> bool:
        if len(self.destinations) >= _DESTINATIONS_MAX:
            return False
        self._new_stream(self.dice.choice(self.tenants))
        return True

    def change_stream(self) -> bool:
        stream = self.dice.choice(list(self.streams))
        self._note("change stream", tenant=self.streams[stream], stream=stream)
        return True

    def remove_stream(self) -> bool:
        if len(self.streams) <= 2:
            return False
        stream = self.dice.choice(list(self.streams))
        tenant = self.streams[stream]
        self._forget(stream)
        self.freed[stream] = tenant
        self._note("remove stream", tenant=tenant, stream=stream)
        return True

    def remake_stream(self) -> bool:
        own = [stream for stream, tenant in self.freed.items() if tenant in self.tenants]
        if not own or len(self.destinations) >= _DESTINATIONS_MAX:
            return False
        stream = self.dice.choice(own)
        self.streams[stream] = tenant = self.freed.pop(stream)
        self.begun[stream] = self.round_number
        self._note("remake stream", tenant=tenant, stream=stream)
        self._new_destination(stream)
        return True

    def renew_stream(self) -> bool:
        stream = self.dice.choice(list(self.streams))
        tenant = self.streams[stream]
        if sum(place[0] != stream for place in self.destinations) >= _DESTINATIONS_MAX:
            return False
        self._forget(stream)
        self.streams[stream], self.begun[stream] = tenant, self.round_number
        self._note("renew stream", tenant=tenant, stream=stream)
        self._new_destination(stream)
        return True

    def take_freed_stream(self) -> bool:
        if not self.freed:
            return False
        stream = self.dice.choice(list(self.freed))
        tenant = self.dice.choice([one for one in self.tenants if one != self.freed[stream]])
        # Either tenant may have the stream afterwards: plan nothing more with it.
        del self.freed[stream]
        self._note("take freed stream", tenant=tenant, stream=stream, name="taker")
        return True

    def make_destination(self) -> bool:
        if len(self.destinations) >= _DESTINATIONS_MAX:
            return False
        self._new_destination(self.dice.choice(list(self.streams)))
        return True

    def make_late_destination(self) -> bool:
        """Create a late destination of a stream with closed minutes, one of which gets an event."""
        late = self.round_number - _LATE_ROUNDS
        old = [stream for stream in self.streams if self.begun[stream] <= late]
        if not old or len(self.destinations) >= _DESTINATIONS_MAX:
            return False
        self._new_destination(self.dice.choice(old), "make late destination")
        return True

    def make_picky_destination(self) -> bool:
        if self.picky in self.destinations or len(self.destinations) >= _DESTINATIONS_MAX:
            return False
        # The destination has a backlog before it answers at all, and can keep up with later events.
        stream = min(self.streams, key=lambda one: abs(self.paces[one] - _PICKY_PACE))
        self.picky = stream, f"d{next(self.numbers)}"
        self.destinations[self.picky] = {"batch_count_max": 100, "parallel_max": 32, "timeout_s": 9}
        settings = self.destinations[self.picky]
        self._at(self.picky, "make picky destination", down_s=self._between(8, 12), **settings)
        return True

    def change_destination(self) -> bool:
        place = self._any([one for one in self.destinations if one != self.picky])
        if place is None:
            return False
        # The filter stays: otherwise nobody could tell afterwards which events were due.
        wants = {name: value for name, value in self.destinations[place].items() if name == "wants"}
        self.destinations[place] = {**self._settings(), **wants}
        self._at(place, "change destination", **self.destinations[place])
        if place in self.paused:
            self.paused.remove(place)
        return True

    def pause_destination(self) -> bool:
        able = [one for one in self.destinations if one not in {*self.paused, self.picky}]
        place = self._any(able)
        if place is None:
            return False
        self.paused.append(place)
        self._at(place, "pause destination", **self.destinations[place])
        return True

    def resume_destination(self) -> bool:
        place = self._any(self.paused) or self._any(self.destinations)
        if place is None:
            return False
        if place in self.paused:
            self.paused.remove(place)
        self._at(place, "resume destination")
        return True

    def remove_destination(self) -> bool:
        place = self._any([one for one in self.destinations if one != self.picky])
        if place is None or len(self.destinations) <= 2:
            return False
        del self.destinations[place]
        self.paused = [one for one in self.paused if one != place]
        self.removed.append(place)
        self._at(place, "remove destination")
        return True

    def remake_destination(self) -> bool:
        place = self._any(self.removed)
        if place is None or len(self.destinations) >= _DESTINATIONS_MAX:
            return False
        self.removed.remove(place)
        self.destinations[place] = self._settings()
        self._at(place, "remake destination", **self.destinations[place])
        return True

    def redrive(self) -> bool:
        self._note("redrive", tenant=self.dice.choice(self.tenants))
        return True

    def _new_stream(self, tenant: str) -> None:
        stream = f"{tenant}-s{next(self.numbers)}"
        self.streams[stream], self.begun[stream] = tenant, self.round_number
        pace: dict[str, Any] = {
            "batch": self.dice.choice((1, 5, 20)),
            "every_s": self.dice.choice((0.2, 0.5)),
        }
        self.paces[stream] = pace["batch"] / pace["every_s"]
        self._note("make stream", tenant=tenant, stream=stream, **pace)
        self._new_destination(stream)

    def _new_destination(self, stream: str, kind: str = "make destination") -> None:
        place = stream, f"d{next(self.numbers)}"
        wants = {"wants": "a"} if self.dice.random() < 0.2 else {}
        self.destinations[place] = {**self._settings(), **wants}
        self._at(place, kind, **self.destinations[place])

    def _settings(self) -> dict[str, Any]:
        return {
            "batch_count_max": self.dice.choice((1, 10, 100)),
            "parallel_max": self.dice.choice((1, 2, 4)),
            "order": self.dice.choice(("none", "none", "key")),
            "compression": self.dice.choice(("none", "gzip")),
            "body_format": self.dice.choice(("json", "ndjson")),
            "hold_on_rejects": self.dice.random() < 0.3,
        }

    def _forget(self, stream: str) -> None:
        del self.streams[stream]
        for place in [place for place in self.destinations if place[0] == stream]:
            del self.destinations[place]
        self.paused = [place for place in self.paused if place[0] != stream]
        self.removed = [place for place in self.removed if place[0] != stream]

    def _any(self, places: Sequence[Place] | dict[Place, Any]) -> Place | None:
        return self.dice.choice(list(places)) if places else None

    def _at(self, place: Place, kind: str, *, for_s: float = 0.0, **settings: Any) -> None:
        stream, name = place
        tenant = self.streams[stream]
        self._note(kind, tenant=tenant, stream=stream, name=name, for_s=for_s, **settings)

    def _note(
        self,
        kind: str,
        tenant: str = "",
        stream: str = "",
        name: str = "",
        for_s: float = 0.0,
        **settings: Any,
    ) -> None:
        made = Action(
            round(self.at_s, 1), kind, tenant, stream, name, for_s, tuple(settings.items())
        )
        self.drafted.append(made)

    def _taken(self) -> tuple[Action, ...]:
        drafted, self.drafted = self.drafted, []
        # Sorting keeps the order of actions that are due at the same moment.
        return tuple(sorted(drafted, key=lambda action: action.at_s))

    def _between(self, low: float, high: float) -> float:
        return round(self.dice.uniform(low, high), 1)
