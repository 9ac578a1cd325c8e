"""The growth of an event in an expression, computed per member, as no two members share bytes."""

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DecimalType,
    IntegerType,
    MapType,
    StringType,
    StructType,
)

from pipelines.judging.growth import (
    NOTHING,
    Growth,
    Size,
    as_text,
    either,
    element,
    limited,
    of_each,
    of_member,
    of_written,
    read_as,
    retyped,
    shown,
    times,
    together,
    untyped,
    within,
    worst,
    worst_memory,
    written,
)
from pipelines.parts.heap import (
    NUMBER,
    PER_BYTE_MAX,
    TEXT,
    TypeOf,
    brackets_max,
    of_struct,
    type_of,
)
from shared.event.envelope import EVENT_BYTES_MAX

INT, TEXT_ = IntegerType(), StringType()
TEXTS = ArrayType(TEXT_)


def of(name: str, kind: DataType = TEXT_) -> Growth:
    return of_member(TypeOf(kind), name)


def mapped(kind: DataType) -> MapType:
    return MapType(TEXT_, kind)


def struct(**members: DataType) -> StructType:
    made = StructType()
    for name, kind in members.items():
        made.add(name, kind)
    return made


def bytes_of(growth: Growth) -> dict[tuple[str, ...], float]:
    return {path: size.bytes for path, size in growth.items()}


def test_members_beside_each_other_are_one_event() -> None:
    assert worst(together(map(of, "abc"))) == 1.0
    assert worst(together([of("a"), of("a"), of("b")])) == 2.0
    assert worst(NOTHING) == worst_memory(NOTHING) == 0.0


def test_a_part_of_a_member_counts_with_the_whole_of_it() -> None:
    whole = of("a", struct(x=TEXT_, y=TEXT_))
    parts = [within(whole, ["x"]), within(whole, ["y"])]
    assert worst(together(parts)) == 1.0
    assert worst(together([*parts, whole])) == 2.0
    assert within(whole, ["x"]) == of_member(TypeOf(TEXT_), "a", "x")
    assert within(whole, []) == whole
    assert bytes_of(within(times(whole, 2.0), ["x"])) == {("a",): 2.0}
    assert bytes_of(within(together([whole, of("b")]), ["x"])) == {("a",): 1.0, ("b",): 1.0}


def test_of_a_choice_the_largest_counts() -> None:
    choice = either([times(of("a"), 3.0), of("a"), of("b")])
    assert bytes_of(choice) == {("a",): 3.0, ("b",): 1.0}


def test_what_is_written_out_is_counted_by_itself() -> None:
    """A literal text is as long for a small event as for a large one."""
    growth = together([of("a"), times(of_written(10), 3.0), of_written(5)])
    assert (worst(growth), written(growth)) == (1.0, 35.0)
    assert written(either([of_written(10), of_written(20)])) == 20.0
    assert written(of("a")) == 0.0
    assert within(of_written(1), ["x"]) == of_written(1)
    # A list of a million elements takes the same memory for a small event as for a large one.
    assert worst_memory(of_written(0, 10**6)) == pytest.approx(TEXT * 10**6 / EVENT_BYTES_MAX)


@pytest.mark.parametrize(
    ("kind", "memory", "elements"),
    [
        (TEXT_, 1, 0),
        (struct(a=INT, b=TEXT_), 1, 0),
        (struct(), 1, 0),
        # `1,` `"",` `[],` `{},` and `"":1,` are the shortest forms of each.
        (ArrayType(INT), 1 + NUMBER / 2, 1 / 2),
        (ArrayType(DecimalType(10, 2)), 1 + NUMBER / 2, 1 / 2),
        (ArrayType(DecimalType(38, 2)), 1 + 120 / 2, 1 / 2),
        (TEXTS, 1 + TEXT / 3, 1 / 3),
        (ArrayType(BinaryType()), 1 + TEXT / 3, 1 / 3),
        (ArrayType(struct(a=INT, b=TEXT_)), 1 + of_struct(2) / 3, 1 / 3),
        (mapped(INT), 1 + (TEXT + NUMBER) / 5, 1 / 5),
        (ArrayType(mapped(INT)), 1 + 150 / 3, 1 / 3),
        # The inner elements are made of other bytes than the list around them.
        (ArrayType(ArrayType(INT)), 1 + 64 / 3, 1 / 2),
        (struct(a=ArrayType(struct(b=ArrayType(INT)))), 1 + of_struct(1) / 3, 1 / 2),
    ],
)
def test_a_byte_of_json_becomes_objects_by_its_type(
    kind: DataType, memory: float, elements: float
) -> None:
    assert TypeOf(kind).density == pytest.approx((memory, elements))
    assert worst_memory(of("a", kind)) == pytest.approx(memory)


def test_lists_of_wide_structs_have_as_many_brackets_as_an_event_may_have() -> None:
    wide = struct(a=ArrayType(struct(**{f"c{n}": INT for n in range(490)})))
    assert brackets_max(wide) == pytest.approx(PER_BYTE_MAX * EVENT_BYTES_MAX / of_struct(490))
    read = type_of(wide["a"].dataType, wide)
    assert read.density.memory == pytest.approx(1 + PER_BYTE_MAX)
    assert TypeOf(wide["a"].dataType).density.memory > 1_900
    # An event without lists has exactly its members' brackets, however wide it is.
    flat = struct(**{f"c{n}": struct(a=INT, b=INT) for n in range(200)})
    assert brackets_max(flat) > EVENT_BYTES_MAX
    assert brackets_max(struct(m=mapped(struct(a=mapped(INT))))) == pytest.approx(
        PER_BYTE_MAX * EVENT_BYTES_MAX / 150
    )


def test_a_part_takes_what_its_own_type_does() -> None:
    items = of("items", ArrayType(struct(sku=TEXT_, tags=TEXTS, by=mapped(INT))))
    assert worst_memory(items) > 20
    assert worst_memory(element(within(items, ["sku"]))) == 1
    assert within(items, ["sku"]) == of_member(TypeOf(TEXTS), "items", "sku")
    assert within(items, ["by", "some"]) == of_member(TypeOf(ArrayType(INT)), "items", "by", "some")
    assert worst_memory(element(element(items))) == pytest.approx(1 + TEXT / 3)
    extra = of("extra", mapped(TEXT_))
    assert within(extra, ["a"]) == of_member(TypeOf(TEXT_), "extra", "a")
    # Nothing is known about the parts of a computed value.
    made = untyped(together([items, of_written(1)]))
    assert worst_memory(element(made)) == pytest.approx(worst_memory(made))
    assert element(of("a")) == of("a")
    assert times(items, 1.0) == items


def test_what_is_made_has_a_type_and_may_have_an_element_for_each_byte() -> None:
    made = retyped(untyped(times(of("a"), 3.0)), TypeOf(ArrayType(TEXTS), is_read=False))
    made = {path: size._replace(memory=300.0, elements=3.0) for path, size in made.items()}
    assert worst_memory(element(made)) == 3 * (1 + TEXT)
    assert worst_memory(element(element(made))) == 3
    # A type that is already known is kept.
    assert retyped(of("a"), TypeOf(INT)) == of("a")


def test_a_text_that_is_read_becomes_objects_and_what_is_written_is_a_text() -> None:
    split = read_as(of("a"), TypeOf(TEXTS), TEXT)
    assert split[("a",)][:3] == (1.0, 1 + TEXT, 1.0)
    read = read_as(limited(of("a"), 1_000), TypeOf(TEXTS))
    assert worst_memory(read) == pytest.approx(4_000 / EVENT_BYTES_MAX * (1 + TEXT / 3))
    assert as_text(split) == {("a",): Size(1.0, 1.0)}
    # A struct is shown with all of its members, of which the event may contain none.
    wide = of("a", ArrayType(struct(**{f"c{n}": INT for n in range(20)})))
    assert worst(shown(wide)) > 20 * len("null, ") / len("{},")
    assert shown(of("a")) == {("a",): Size(1.0, 1.0)}
    # Read as one text, a list takes only its bytes, however much memory its texts would take.
    texts = of("tags", TEXTS)
    assert worst_memory(read_as(texts, TypeOf(TEXT_))) == 1
    assert limited(of("a"), -5)[("a",)].memory == 0


def test_what_is_made_for_each_element_is_made_as_often_as_there_are_any() -> None:
    tags = of("tags", TEXTS)
    each = of_each(tags, byte_count=3, memory=TEXT)
    assert each[("tags",)] == pytest.approx(Size(1.0, TEXT / 3, 1 / 3))
    assert of_each(of_written(16, 1_000), memory=10)[("",)] == Size(0.0, 10_000, 1_000)
