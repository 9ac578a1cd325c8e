"""Carries out a plan on a running world, and recounts the books after each round."""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from deploy.local.process_faults import NotHereError
from shared.runtime.control_client import RefusedError
from tests.chaos.actions import LASTING, ROUND_S, Action, ChaosPlan
from tests.chaos.customers import Customers, GivenUpError
from tests.chaos.destinations import Destinations, open_destinations
from tests.chaos.evidence import owing, read_evidence, wrong_books, wrong_statements
from tests.chaos.faults import Faults
from tests.chaos.put_in import PutIn, put_in
from tests.chaos.recount import EventId, Finding, OwedDestination, WorldRecord, findings
from tests.chaos.run_log import RunLog
from tests.chaos.world import BOUNDS_MB, World, open_world

# Between rounds the books include work under way; after a short rest there is little of it.
_REST_S = 20.0
# At the end everything must come to rest: an open breaker parks events for half a minute, twice.
_LAST_REST_S = 240.0
# A slow refuser, which refuses six events in a hundred after 1 s, took 20,000 in eight minutes:
# this is half of that rate.
_PICKY_PER_S_MIN = 21.0
_LOOK_S = 1.0
# A minute is judged 2 s after its end, by an audit that runs every 10 s. If a gateway's clock was
# set 90 s ahead, the last minute has only begun by then.
_STATED_S = 210.0
_CHANGES_AT_ONCE = 4
_CHANGE_S = 180.0


@dataclass
class Campaign:
    """A run under way."""

    plan: ChaosPlan
    world: World
    destinations: Destinations
    customers: Customers
    faults: Faults
    log: RunLog
    found: list[Finding] = field(default_factory=list)
    # How many events the last recount expected at the destinations.
    owed: int = 0
    # How often each action was done, or could not be done.
    done: dict[str, int] = field(default_factory=dict)

    def run(self, fault: PutIn | None) -> None:
        self.log.say("the beginning")
        for action in self.plan.beginning:
            self._change(action)
        for number, actions in enumerate(self.plan.rounds, start=1):
            is_last = number == len(self.plan.rounds)
            self.log.say(f"round {number} of {len(self.plan.rounds)}")
            self.customers.send()
            if fault is not None and number == 1:
                self.log.say(put_in(fault, self.world, self.customers, self.destinations))
            self._round(actions)
            self._heal()
            self._rest(_LAST_REST_S + self._picky_s() if is_last else _REST_S)
            self._recount(is_last=is_last)

    def _round(self, actions: Iterable[Action]) -> None:
        """Start each action at its time, and end each lasting one at its end."""
        begun_s = time.monotonic()
        due = [(action.at_s, True, action) for action in actions]
        due += [(at_s + each.for_s, False, each) for at_s, _, each in due if each.kind in LASTING]
        changes: list[Future[None]] = []
        with ThreadPoolExecutor(_CHANGES_AT_ONCE) as pool:
            # A change may need earlier ones: it waits for the tenant's previous change, and taking
            # a freed stream waits for the previous changes of all tenants.
            last: dict[str, Future[None]] = {}
            for at_s, begins, action in sorted(due, key=lambda one: one[0]):
                time.sleep(max(0.0, begun_s + at_s - time.monotonic()))
                if action.kind in LASTING:
                    self._fault(action, begins=begins)
                elif action.kind.startswith("mood "):
                    self._mood(action)
                else:
                    before = [
                        change
                        for tenant, change in last.items()
                        if action.kind == "take freed stream" or tenant == action.tenant
                    ]
                    last[action.tenant] = pool.submit(self._change_after, before, action)
                    changes.append(last[action.tenant])
            time.sleep(max(0.0, begun_s + ROUND_S - time.monotonic()))
            # A change may wait for something that a fault blocks.
            self._end_faults()
            for change in changes:
                change.result(_CHANGE_S)

    def _mood(self, action: Action) -> None:
        path = f"/{action.tenant}/{action.stream}/{action.name}"
        self.destinations.put_in_mood(path, action.kind.removeprefix("mood "), for_s=action.for_s)
        self._note(action, "from now on")

    def _fault(self, action: Action, *, begins: bool, waits: bool = False) -> None:
        """Begin or end a fault; when a lasting fault ends, check that it took effect."""
        try:
            proof = self.faults.begin(action) if begins else self.faults.end(action, waits=waits)
        except NotHereError as error:
            self.log.say(f"could not: {action}: {error}")
            return
        if proof:
            self._note(action, proof)

    def _end_faults(self) -> None:
        for action in self.faults.under_way:
            self._fault(action, begins=False, waits=True)

    def _change_after(self, before: Iterable[Future[None]], action: Action) -> None:
        for change in before:
            change.result(_CHANGE_S)
        self._change(action)

    def _change(self, action: Action) -> None:
        try:
            self._note(action, self.customers.do(action))
        except NotHereError as error:
            self.log.say(f"could not: {action}: {error}")
        except (RefusedError, GivenUpError) as error:
            # The plan is possible: a tenant that follows it is never refused.
            self.log.say(f"FOUND {action}: {error}")
            self.found.append(Finding("change", f"{action.kind}: {error}"))

    def _note(self, action: Action, proof: str) -> None:
        self.done[action.kind] = self.done.get(action.kind, 0) + 1
        self.log.say(f"{action}: {proof}")

    def _heal(self) -> None:
        self.destinations.calm()
        self.world.wait_until_well()
        self.customers.pause()
        self.customers.resume_all()

    def _picky_s(self) -> float:
        """Return how long a destination that refuses slowly may need for its remaining events."""
        left = 0
        for owed in self.customers.owed():
            if f"/{owed.tenant}/{owed.stream}/{owed.name}" in self.destinations.picky:
                arrivals = self.destinations.arrivals
                got = {one.event_id for one in arrivals if one.destination_id == owed.id}
                left += len(self.customers.senders[owed.tenant, owed.stream].acked - got)
        return left / _PICKY_PER_S_MIN

    def _rest(self, patience_s: float) -> None:
        until_s = time.monotonic() + patience_s
        while behind := owing(self.world.kafka, self.customers.owed()):
            if time.monotonic() > until_s:
                self.log.say(f"still under way: {', '.join(behind)}")
                return
            time.sleep(_LOOK_S)
        self.log.say("nothing is under way")

    def _recount(self, *, is_last: bool) -> None:
        recorded = self.recorded(is_last=is_last)
        found = findings(recorded)
        acked = sum(map(len, recorded.acked.values()))
        acked_of = recorded.acked.get
        self.owed = sum(len(acked_of((one.tenant, one.stream), ())) for one in recorded.owed)
        self.log.say(
            f"{acked} acknowledged, {self.owed} owed to {len(recorded.owed)} destinations,"
            f" {len(recorded.arrivals)} arrivals, {len(recorded.claims)} receipts,"
            f" {sum(map(len, recorded.waiting.values()))} waiting,"
            f" {sum(map(len, recorded.dead.values()))} dead, {len(found)} findings"
        )
        for finding in found:
            self.log.say(f"FOUND {finding.what}: {finding.says}")
        # A fault stays in the books, but counts once.
        self.found += [finding for finding in found if finding not in self.found]

    def recorded(self, *, is_last: bool) -> WorldRecord:
        """Return all that is known now, and at the end also statements and the product's books."""
        senders = self.customers.senders
        owed = self.customers.owed()
        evidence = read_evidence(self.world.kafka, {stream for _, stream in senders}, owed)
        books: list[str] = []
        statements: list[str] = []
        sent = {one for sender in senders.values() for one in sender.sent}
        if is_last:
            books = [f"not at rest: {one}" for one in owing(self.world.kafka, owed)]
            books = books or wrong_books(self.world.kafka, owed)
            # Acknowledged events of removed streams have statements, too.
            least: Counter[str] = Counter()
            for (_, stream), sender in senders.items():
                least[stream] += len(sender.acked)
            statements = self._statements(sent, least, owed)
        return WorldRecord(
            acked={place: set(sender.acked) for place, sender in senders.items()},
            sent=sent,
            owed=owed,
            # Read after the product's claims: every arrival that it claims must be among these.
            arrivals=self.destinations.arrivals,
            early=list(self.destinations.early),
            log=evidence.log,
            waiting=evidence.waiting,
            dead=evidence.dead,
            queued=evidence.queued,
            claims=evidence.claims,
            maybe_stored={
                one: count
                for sender in senders.values()
                for one, count in sender.maybe_stored.items()
            },
            deaths=self.world.all_deaths(),
            peaks_mb=dict(self.world.peaks_mb),
            bounds_mb=BOUNDS_MB,
            statements=statements,
            books=books,
        )

    def _statements(
        self, sent: Iterable[str], least: Mapping[str, int], owed: Sequence[OwedDestination]
    ) -> list[str]:
        by_stream: dict[str, set[str]] = {}
        for one in sent:
            by_stream.setdefault(EventId.read(one).stream, set()).add(one)
        until_s = time.monotonic() + _STATED_S
        while True:
            wrong = wrong_statements(
                self.world.kafka, self.world.folder, sent=by_stream, least=least, owed=owed
            )
            # The next audit corrects the statement of a minute that has just changed.
            if not wrong or time.monotonic() > until_s:
                return wrong
            time.sleep(_LOOK_S)


def run_campaign(
    plan: ChaosPlan, *, folder: Path, log: RunLog, fault: PutIn | None = None
) -> Campaign:
    """Carry out a whole plan in a world of its own; the result has the findings."""
    log.say(str(plan))
    with open_destinations() as destinations, open_world(folder, brokers=plan.brokers) as world:
        customers = Customers(world.stack.gateway, world.operator_key, destinations, plan.seed)
        campaign = Campaign(plan, world, destinations, customers, Faults(world), log)
        try:
            campaign.run(fault)
        finally:
            campaign.faults.end_all()
            customers.stop()
    return campaign
