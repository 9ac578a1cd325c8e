"""What an expression may make of an event: reckoned by member, as no two are the same bytes."""

from pipelines.judging.growth import (
    NOTHING,
    either,
    of_member,
    of_written,
    times,
    together,
    within,
    worst,
    written,
)


def test_members_beside_each_other_are_one_event() -> None:
    assert worst(together(map(of_member, "abc"))) == 1.0
    assert worst(together([of_member("a"), of_member("a"), of_member("b")])) == 2.0
    assert worst(NOTHING) == 0.0


def test_a_part_of_a_member_counts_with_the_whole_of_it() -> None:
    parts = [of_member("a", "x"), of_member("a", "y")]
    assert worst(together(parts)) == 1.0
    assert worst(together([*parts, of_member("a")])) == 2.0
    assert within(of_member("a"), ["x"]) == {("a", "x"): 1.0}
    assert within(of_member("a"), []) == of_member("a")
    assert within(times(of_member("a"), 2.0), ["x"]) == {("a",): 2.0}
    assert within(together(map(of_member, "ab")), ["x"]) == {("a",): 1.0, ("b",): 1.0}


def test_of_a_choice_the_largest_counts() -> None:
    choice = either([times(of_member("a"), 3.0), of_member("a"), of_member("b")])
    assert choice == {("a",): 3.0, ("b",): 1.0}


def test_what_is_written_out_is_counted_by_itself() -> None:
    """A text of ours is as long for a small event as for a large one."""
    growth = together([of_member("a"), times(of_written(10), 3.0), of_written(5)])
    assert (worst(growth), written(growth)) == (1.0, 35.0)
    assert written(either([of_written(10), of_written(20)])) == 20.0
    assert written(of_member("a")) == 0.0
    assert within(of_written(1), ["x"]) == of_written(1)
