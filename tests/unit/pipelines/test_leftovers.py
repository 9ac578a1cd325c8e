"""Only leftovers that are known to be useless are deleted."""

from dataclasses import replace

import pytest

from pipelines.windows.leftovers import left_over, with_leftovers
from shared.config.configuration import Configuration, RemovedPipeline, Replacement
from shared.config.table import Table
from tests.unit.config.test_replacement import document

NAMES = {"sales"}
SECOND = document(generation=2)
TABLES = {"sums": Table("sums", written_by="sales", generation=2), "own": Table("own")}
BUILT = Replacement("sales", 4, document(generation=4), {"sums": 4})
RUNS = Configuration(pipelines={"sales": SECOND}, tables=TABLES)
BUILDS = replace(RUNS, replacements={"sales": BUILT})
GIVEN_UP = replace(RUNS, replacements={"sales": replace(BUILT, document=None)})
GONE = RemovedPipeline("sales", "default", "orders", 2, 0, keeps=True)
REMOVED = Configuration(removed_pipelines={"sales": GONE})


def left(configuration: Configuration, *, is_live: bool = True) -> set[str]:
    """Return the generations of topics that nobody needs."""
    topics = [f"hifi.kept.sales{it}" for it in ("", ".2", ".3", ".4", ".5", ".x")]
    topics += [f"hifi.table.sums{it}" for it in ("", ".2", ".3", ".4", ".5", ".x")]
    topics += ["hifi.kept.other", "hifi.table.own", "hifi.table.none", "hifi.stream.sales"]
    found = {each: left_over(each, configuration, NAMES, lambda _: is_live) for each in topics}
    assert {name for name in found.values() if name} <= NAMES
    return {each.removeprefix("hifi.") for each, name in found.items() if name}


def test_what_was_before_is_of_use_until_what_replaces_it_needs_it_no_more() -> None:
    assert left(RUNS) == {"kept.sales", "table.sums"}
    assert left(RUNS, is_live=False) == set()


def test_what_is_being_built_stays_and_attempts_before_it_go() -> None:
    before = {"kept.sales", "table.sums"}
    assert left(BUILDS) == before | {"kept.sales.3", "table.sums.3"}
    given_up = {"kept.sales.3", "kept.sales.4", "table.sums.3", "table.sums.4"}
    assert left(GIVEN_UP) == before | given_up


def test_what_a_removed_pipeline_kept_goes_and_its_tables_stay() -> None:
    assert left(REMOVED) == {"kept.sales", "kept.sales.2"}
    plain = replace(GONE, keeps=False)
    assert left(replace(REMOVED, removed_pipelines={"sales": plain})) == set()


def test_what_nobody_knows_may_be_newer_than_what_is_known() -> None:
    assert left(Configuration()) == set()


@pytest.mark.parametrize(
    ("configuration", "names"),
    [
        (RUNS, NAMES),
        (BUILDS, NAMES),
        (REMOVED, NAMES),
        (Configuration(pipelines={"sales": document()}), set()),
    ],
)
def test_who_may_have_left_something_is_looked_at(
    configuration: Configuration, names: set[str]
) -> None:
    assert with_leftovers(configuration) == names
