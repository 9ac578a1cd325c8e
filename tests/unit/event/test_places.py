"""The places where an index finds events, and the other places that must be read."""

from shared.event.places import Places, last_part
from shared.event.record import KafkaPartition

P0, P1 = KafkaPartition("t", 0), KafkaPartition("t", 1)


def test_stretches_that_touch_are_read_as_one() -> None:
    places = Places(((1, 5, 6), (0, 7, 8), (1, 4, 5), (1, 9, 10)))
    assert places.of("t") == {P0: [(7, 8)], P1: [(4, 6), (9, 10)]}


def test_of_an_index_that_knows_nothing_all_is_to_be_read() -> None:
    assert Places().unknown({P0: (3, 50), P1: (0, 0)}) == {P0: [(3, 50)], P1: [(0, 0)]}


def test_what_is_known_is_passed_over_and_what_is_little_is_read_on_the_way() -> None:
    known = ((0, 5_000, 9_000), (0, 100, 2_000), (1, 0, 700), (1, 800, 850), (2, 0, 9))
    assert Places(known=known).unknown({P0: (500, 9_100), P1: (0, 1_000)}) == {
        P0: [(500, 500), (2_000, 5_000), (9_000, 9_100)],
        P1: [(0, 0), (700, 1_000)],
    }


def test_what_is_known_beyond_the_log_is_no_matter() -> None:
    known = ((0, 0, 100), (0, 200, 9_000), (0, 10_000, 20_000))
    assert Places(known=known).unknown({P0: (150, 1_000)}) == {P0: [(150, 200), (1_000, 1_000)]}


def test_the_last_part_lies_in_one_stretch() -> None:
    stretches = [(0, 10), (20, 20), (30, 90)]
    assert last_part(stretches, 100, 50) == (40, 90)
    assert last_part(stretches, 40, 50) == (30, 40)
    assert last_part(stretches, 30, 5) == (5, 10)
    assert last_part(stretches, 0, 5) is None
