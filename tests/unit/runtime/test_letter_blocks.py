"""A search for letters skips known blocks of other streams, and misses none of its stream's."""

from hypothesis import given
from hypothesis import strategies as st

from shared.event.record import KafkaPartition
from shared.runtime.kafka.lookup import letter_blocks
from shared.runtime.kafka.lookup.letter_blocks import BLOCK, SKIPPED_MIN, BlockReader, LetterBlocks

WHERE = KafkaPartition("hifi.dead", 0)


def read(
    blocks: LetterBlocks, log: dict[int, str], span: tuple[int, int], wanted: str
) -> tuple[list[int], int]:
    """Return the offsets of a stream's letters, and how many offsets were scanned."""
    found, gone_through = [], 0
    for start, end in blocks.to_read(WHERE, span, wanted.__eq__):
        seen = BlockReader(blocks, WHERE, start)
        for offset in range(start, end):
            gone_through += 1
            if offset in log:
                seen.see(offset, log[offset])
                found += [offset] if log[offset] == wanted else []
        seen.reach(end)
    return found, gone_through


@given(
    st.dictionaries(st.integers(0, 20 * BLOCK), st.sampled_from(["a", "b", "c"]), max_size=40),
    st.lists(
        st.tuples(st.integers(0, 20 * BLOCK), st.integers(0, 20 * BLOCK), st.sampled_from("abc")),
        max_size=5,
    ),
)
def test_whatever_was_read_before_all_that_is_wanted_is_found(
    log: dict[int, str], reads: list[tuple[int, int, str]]
) -> None:
    blocks = LetterBlocks()
    for start, end, wanted in reads:
        found, _ = read(blocks, log, (start, end), wanted)
        assert found == sorted(o for o, of in log.items() if start <= o < end and of == wanted)


def test_the_many_of_another_are_read_past_once() -> None:
    end = 100 * BLOCK
    log = dict.fromkeys(range(end), "theirs") | {7: "ours", end - 5: "ours"}
    blocks = LetterBlocks()
    assert read(blocks, log, (0, end + 3), "ours") == ([7, end - 5], end + 3)
    # The stream's two blocks, and the last, incomplete one.
    assert read(blocks, log, (0, end + 3), "ours") == ([7, end - 5], 2 * BLOCK + 3)
    assert len(read(blocks, log, (0, end + 3), "theirs")[0]) == end - 2
    # All blocks are skipped for another stream, even from the middle of a block.
    assert read(blocks, log, (20 * BLOCK + 1, end), "nobodys") == ([], 0)


def test_few_in_a_row_are_read_all_the_same() -> None:
    blocks = LetterBlocks()
    log = {0: "ours", SKIPPED_MIN * BLOCK: "ours"}
    span = 0, (SKIPPED_MIN + 1) * BLOCK
    read(blocks, log, span, "ours")
    assert list(blocks.to_read(WHERE, span, "ours".__eq__)) == [span]


def test_what_is_deleted_is_forgotten_and_another_topic_is_read_anew() -> None:
    blocks, end = LetterBlocks(), 40 * BLOCK
    read(blocks, {}, (0, end), "ours")
    blocks.keep({WHERE: (10 * BLOCK + 1, end)})
    assert list(blocks.to_read(WHERE, (0, end), "ours".__eq__)) == [(0, 10 * BLOCK)]
    blocks.keep({WHERE: (0, end - BLOCK)})
    assert list(blocks.to_read(WHERE, (0, end), "ours".__eq__)) == [(0, end)]


def test_a_block_of_very_many_streams_is_read_by_all() -> None:
    blocks = LetterBlocks()
    log = {at: f"s-{at}" for at in range(letter_blocks._STREAMS_MAX + 1)}
    read(blocks, log, (0, BLOCK), "ours")
    assert list(blocks.to_read(WHERE, (0, BLOCK), "ours".__eq__)) == [(0, BLOCK)]
