"""Finds out how many events may go together to a destination that refuses some.

A batch is refused for a single event in it, so the refusal of a large batch proves nothing, and the
success of a small one little. Batches of the best size are refused half of the time. So the size
falls with each refusal of a batch of about that size, and grows with each success: to half or to
twice as much at first, by a twelfth once both have been seen. A size that is never refused grows
back to the owner's setting.
"""

from math import log2

from msgspec import Struct
from msgspec.structs import replace

# How far an answer moves the size, in doublings: at first, and once it is about right.
STEP_MAX, STEP_MIN = 1.0, 0.125
# This many equal answers in a row are no coincidence: the size is no longer about right.
ROW = 5
# Larger batches were cut before the size was known; smaller ones are halves, or no more events
# were there.
LEAST, MOST = 0.55, 1.5


class BatchSize(Struct, frozen=True, omit_defaults=True):
    # 0: the owner's setting.
    events: float = 0.0
    step: float = STEP_MAX
    # The number of equal answers in a row: above zero for batches taken, below for refusals.
    row: int = 0
    # The destination has refused a batch and then taken each of its events: it refuses by size, so
    # one half of a batch proves nothing about the other.
    is_by_size: bool = False


def most(state: BatchSize, count_max: int) -> int:
    """How many events go together, up to the owner's maximum."""
    return max(1, min(count_max, round(state.events))) if state.events else count_max


def per_request(state: BatchSize, count_max: int) -> float:
    """How many events get their outcome with each request, including requests for halves."""
    size = most(state, count_max)
    return size / (1 + log2(size)) if state.events else float(count_max)


def taken(
    state: BatchSize, event_count: int, *, count_max: int, is_last_suspect: bool
) -> BatchSize:
    """The state after a batch was taken; if it `is_last_suspect`, a refusal was to be expected."""
    if is_last_suspect and not state.is_by_size:
        state = replace(state, is_by_size=True)
    if not state.events or event_count < LEAST * state.events:
        return state
    state = _moved(state, 1)
    return BatchSize(is_by_size=state.is_by_size) if state.events >= count_max else state


def refused(
    state: BatchSize, event_count: int, *, count_max: int, is_too_large: bool, is_half: bool
) -> BatchSize:
    """The state after a batch was refused for its content, or for being too large.

    If the batch is small and `is_half` of a refused one, its refusal was to be expected.
    """
    if event_count == 1 and state.is_by_size:
        state = replace(state, is_by_size=False)
    size = state.events or float(count_max)
    if event_count > MOST * size or (is_half and event_count < LEAST * size):
        return state
    state = _moved(state if state.events else replace(state, events=size), -1)
    if is_too_large or state.is_by_size:
        return replace(state, events=max(1.0, min(state.events, event_count / 2)))
    return state


def _moved(state: BatchSize, way: int) -> BatchSize:
    if state.row * way < 0:
        step, row = max(STEP_MIN, state.step / 2), way
    else:
        row = state.row + way
        step = min(STEP_MAX, 2 * state.step) if row % ROW == 0 else state.step
    return replace(state, events=max(1.0, state.events * 2 ** (way * step)), step=step, row=row)
