"""The recount of a chaos run finds each fault in a faulty world, and none in a sound one."""

from dataclasses import replace

import pytest

from shared.proof.statement import NO_PREVIOUS, Counts, Statement
from tests.chaos.recount import (
    Arrival,
    Claim,
    Death,
    Finding,
    OwedDestination,
    StoredId,
    WorldRecord,
    findings,
    uneven_lines,
    unsigned,
)

# Two tenants with a stream each: t0 has a destination for all events and one for `a` only.
T0 = [f"t0.t0-s1.{'ab'[n % 2]}.{n}" for n in range(6)]
T1 = [f"t1.t1-s2.a.{n}" for n in range(3)]


def arrived(tenant: str, destination_id: str, *ids: str, label: bool = False) -> list[Arrival]:
    return [Arrival(tenant, destination_id, one, label) for one in ids]


def sound() -> WorldRecord:
    """Return a world in which every event, whatever happened to it, is where it should be."""
    return WorldRecord(
        acked={("t0", "t0-s1"): set(T0), ("t1", "t1-s2"): set(T1)},
        sent={*T0, *T1},
        owed=[
            OwedDestination("t0", "t0-s1", "all"),
            OwedDestination("t0", "t0-s1", "some", wants="a"),
            OwedDestination("t1", "t1-s2", "to"),
        ],
        arrivals=[
            *arrived("t0", "t0-s1/all", T0[0], T0[1], T0[2]),
            *arrived("t0", "t0-s1/all", T0[0], label=True),
            # The sender got no answer and sent it again: it is stored twice.
            *arrived("t0", "t0-s1/all", T0[2]),
            *arrived("t0", "t0-s1/some", T0[0], T0[2], T0[4]),
            *arrived("t1", "t1-s2/to", *T1),
        ],
        log={
            "t0-s1": {(0, n): one for n, one in enumerate([*T0, T0[2]])},
            "t1-s2": {(0, n): one for n, one in enumerate(T1)},
        },
        waiting={"t0-s1/all": {T0[3]}},
        dead={"t0-s1/all": {T0[4]}},
        queued={"t0-s1/all": {T0[5]}},
        claims=[Claim("t0-s1/all", ((0, 0, 3),)), Claim("t1-s2/to", ((0, 0, 3),))],
        maybe_stored={**dict.fromkeys([*T0, *T1], 1), T0[2]: 2},
        deaths=[Death("delivery", "ended with exit code 1", "no Kafka answers", is_excused=True)],
        peaks_mb={"gateway": 200},
        bounds_mb={"gateway": 300},
    )


def words(recorded: WorldRecord) -> list[str]:
    return [finding.what for finding in findings(recorded)]


def test_a_world_that_is_as_promised_has_no_findings() -> None:
    assert findings(sound()) == []


def test_a_receipt_for_what_never_came_is_found() -> None:
    world = sound()
    denied = [one for one in world.arrivals if one.event_id != T1[1]]
    found = findings(replace(world, arrivals=denied))
    assert found[0] == Finding("unaccounted", "t1-s2/to neither has nor will get t1.t1-s2.a.1")
    assert found[1].what == "false receipt"
    assert "t1.t1-s2.a.1" in found[1].says


def test_an_event_in_another_tenants_topic_is_found_where_it_arrives() -> None:
    world = sound()
    swapped = [*world.arrivals, *arrived("t1", "t1-s2/to", T0[0])]
    (found,) = findings(replace(world, arrivals=swapped))
    assert found.what == "foreign"
    assert "t1's t1-s2/to" in found.says


def test_a_2xx_for_what_is_not_stored_is_found() -> None:
    world = sound()
    lied = "t1.t1-s2.a.99"
    acked = {**world.acked, ("t1", "t1-s2"): {*T1, lied}}
    (found,) = findings(replace(world, acked=acked, sent={*world.sent, lied}))
    assert found == Finding("false ack", f"t1's t1-s2: answered 2xx, but not stored: {lied}")


def test_what_was_called_not_stored_and_is_there_is_found() -> None:
    world = sound()
    (found,) = findings(replace(world, maybe_stored={**world.maybe_stored, T1[2]: 0}))
    assert found == Finding("false refusal", f't1-s2: answered "not stored", but stored: {T1[2]}')


def test_what_is_stored_twice_is_found() -> None:
    world = sound()
    (found,) = findings(replace(world, maybe_stored={**world.maybe_stored, T0[2]: 1}))
    assert found.what == "stored twice"
    assert T0[2] in found.says


def stated(**destinations: Counts) -> Statement:
    """Return a statement about a minute with ten events."""
    return Statement("t0-s1", 60_000, 1, 10, 10, "00", destinations, 120_000, NO_PREVIOUS)


FIRST_AND_LATE = [
    OwedDestination("t0", "t0-s1", "first", since_ms=0),
    OwedDestination("t0", "t0-s1", "late", since_ms=100_000),
    OwedDestination("t1", "t1-s2", "elsewhere", since_ms=0),
]


@pytest.mark.parametrize(
    ("said", "at_ms", "stored", "wrong"),
    [
        (stated(first=Counts(7, 1, 1, {"kafka": 1})), 120_000, 10, []),
        (stated(first=Counts(10, 0, 0, {}), late=Counts(10, 0, 0, {})), 200_000, 10, []),
        (
            stated(first=Counts(10, 0, 0, {}), late=Counts(1, 0, 0, {})),
            120_000,
            10,
            ["late: 1 + 0 + 0 + 0 are 1 of 10 events"],
        ),
        (stated(first=Counts(10, 0, 0, {})), 200_000, 10, ["late was due, but has no line"]),
        (
            stated(first=Counts(10, 0, 0, {})),
            120_000,
            9,
            ["it counts 10 events, but the log has 9"],
        ),
    ],
)
def test_what_does_not_add_up_in_a_statement_is_found(
    said: Statement, at_ms: int, stored: int, wrong: list[str]
) -> None:
    assert list(uneven_lines(said, at_ms, stored=stored, owed=FIRST_AND_LATE)) == wrong


def test_an_event_that_is_nowhere_is_found() -> None:
    assert words(replace(sound(), waiting={})) == ["unaccounted"]
    assert words(replace(sound(), dead={})) == ["unaccounted"]
    assert words(replace(sound(), queued={})) == ["unaccounted"]


def test_what_nobody_has_posted_is_found() -> None:
    world = sound()
    made_up = [*world.arrivals, *arrived("t1", "t1-s2/to", "t1.t1-s2.a.77")]
    assert words(replace(world, arrivals=made_up)) == ["unsent"]


def test_a_repeat_without_a_label_is_found() -> None:
    world = sound()
    again = [*world.arrivals, *arrived("t0", "t0-s1/all", T0[1])]
    assert words(replace(world, arrivals=again)) == ["unlabelled"]
    labelled = [*world.arrivals, *arrived("t0", "t0-s1/all", T0[1], label=True)]
    assert words(replace(world, arrivals=labelled)) == []


def test_a_retry_before_its_time_is_found() -> None:
    world = sound()
    early = arrived("t0", "t0-s1/all", T0[1])
    assert words(replace(world, early=early)) == ["early"]
    twice = {stream: dict(log) for stream, log in world.log.items()}
    twice["t0-s1"][9, 9] = T0[1]
    sent = {**world.maybe_stored, T0[1]: 2}
    assert words(replace(world, early=early, log=twice, maybe_stored=sent)) == []


def test_a_death_without_a_word_and_one_without_a_cause_are_found() -> None:
    silent = Death("gateway", "was ended by SIGSEGV", "", is_excused=True)
    causeless = Death("observe", "ended with exit code 1", "no Kafka", is_excused=False)
    found = findings(replace(sound(), deaths=[silent, causeless]))
    assert [finding.what for finding in found] == ["death", "death"]
    assert "gives no reason" in found[0].says
    assert "no Kafka" in found[1].says


def test_a_process_that_grows_past_its_bound_is_found() -> None:
    assert words(replace(sound(), peaks_mb={"gateway": 301})) == ["memory"]


def test_what_statements_and_books_say_wrong_is_passed_on() -> None:
    assert words(replace(sound(), statements=["unsigned"], books=["1 unaccounted"])) == [
        "statement",
        "books",
    ]


def test_of_many_ids_some_are_named() -> None:
    world = replace(sound(), arrivals=[], claims=[], waiting={}, dead={}, queued={})
    says = findings(world)[0].says
    assert "and 1 more" in says


def test_which_ids_of_a_minute_were_not_signed_is_told() -> None:
    ledger = [StoredId(one, 0, at, 1_000 * at) for at, one in enumerate("ab")]
    log = [StoredId(one, 0, at, 1_000 * at) for at, one in enumerate("abcd")]

    def said(*signed: str) -> str:
        return unsigned(lambda ids: ids == set(signed), ledger=ledger, log=log)

    has = "the ledger has 2 ids, the log 4, 2 of which only the log has; signed:"
    some = f"{has} the ledger's and some that only the log has, without"
    assert said("a", "b", "c") == f"{some} d (0:3, 00:00:03.000000)"
    assert said(*"abcd") == f"{some} none"
    assert said("a").startswith(f"{has} some of the log's, without b (0:1, 00:00:01.000000), c")
    assert said("x") == (
        f"{has} no set of all ids up to some moment; only the log has c (0:2, 00:00:02.000000),"
        " d (0:3, 00:00:03.000000); only the ledger has none"
    )
    late = [StoredId("b", 0, 1, 1), StoredId("a", 0, 0, 2)]
    by_row = unsigned(lambda ids: ids == {"b"}, ledger=late, log=[])
    assert "some of the ledger's, without a (0:0, 00:00:00.002000)" in by_row
    many = unsigned(lambda _: False, ledger=[], log=[StoredId(str(n), 0, n, n) for n in range(50)])
    assert "10 more; only the ledger has none" in many
