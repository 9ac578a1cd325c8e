"""Choose how hypothesis searches, and leave simulations out of the coverage."""

import os
from collections.abc import Iterator

import pytest
from coverage import Coverage
from hypothesis import settings

# The suite must not flake: the same examples in each run, and no database of earlier failures.
settings.register_profile("house", derandomize=True, max_examples=25, deadline=None, database=None)
# HYPOTHESIS_PROFILE=explore: a search of about a minute, for changes to the core.
settings.register_profile("explore", max_examples=3_000, deadline=None, database=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "house"))


@pytest.fixture(autouse=True)
def _of_simulations_nothing_is_counted(request: pytest.FixtureRequest) -> Iterator[None]:
    """Switch coverage off in simulations, which it slows down; other tests cover all that code."""
    is_simulation = request.node.get_closest_marker("simulation") is not None
    counting = Coverage.current() if is_simulation else None
    if counting is None:
        yield
        return
    counting.stop()
    try:
        yield
    finally:
        counting.start()
