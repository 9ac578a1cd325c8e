"""Chooses how hypothesis searches: the same examples every time, or many new ones on request."""

import os

from hypothesis import settings

# The suite must not flake: the same examples at each run, and no database of earlier failures.
settings.register_profile("house", derandomize=True, max_examples=25, deadline=None, database=None)
# HYPOTHESIS_PROFILE=explore: for somebody who has changed the core and has a minute.
settings.register_profile("explore", max_examples=3_000, deadline=None, database=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "house"))
