"""Events that a pipeline makes have the same ids each time, and none circulates forever."""

from shared.event.derived import HOPS_MAX, RESTORED, derived_id, hop, restore_of, via_of, window_id
from shared.event.record import Origin

PLACE = Origin("hifi.stream.orders", 3, 1234)


def test_an_id_is_made_like_this() -> None:
    assert derived_id("sales", 1, PLACE, 0) == (
        "9fe28900677ec995b7a2c2f6341a1828fb7c2fc345e9ab48154914671ad3b62f"
    )


def test_what_is_written_of_a_window_has_an_id_for_each_version() -> None:
    ids = {window_id("sales", 1, "DE@2026", version) for version in (1, 2, 2)}
    assert len(ids) == 2
    assert window_id("sales", 2, "DE@2026", 1) not in ids


def test_an_id_is_the_same_each_time_and_no_two_are_the_same() -> None:
    places = [("sales", 1, PLACE, 0), ("sales", 1, PLACE, 1), ("sales", 2, PLACE, 0)]
    places += [("sale", 1, PLACE, 0), ("sales", 1, PLACE._replace(offset=1), 234)]
    places += [("sales", 1, PLACE._replace(partition=31), 0)]
    ids = [derived_id(*place) for place in places]
    assert ids == [derived_id(*place) for place in places]
    assert len(set(ids)) == len(places)


def test_a_header_names_the_pipelines_that_an_event_has_come_through() -> None:
    assert via_of(None) == ()
    assert via_of(b"") == ()
    assert via_of(b"sales,by_country") == ("sales", "by_country")
    assert via_of(b"\xff") == ("\N{REPLACEMENT CHARACTER}",)


def test_a_header_names_the_last_restore_that_has_put_an_event_back() -> None:
    assert restore_of((("more", b""),)) == ""
    assert restore_of(((RESTORED, b"spring"), ("more", b""), (RESTORED, b"\xff"))) == "\ufffd"


def test_a_pipeline_takes_no_event_twice_and_none_that_has_come_too_far() -> None:
    far = tuple(f"p{nth}" for nth in range(HOPS_MAX))
    assert hop((), "sales") == "take"
    assert hop(far[1:], "sales") == "take"
    assert hop(far, "sales") == "too_many"
    assert hop(far, "p3") == "skip"
    assert hop(("sales",), "sales") == "skip"
