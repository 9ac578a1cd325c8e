"""A pipeline's replacement is an object of its own; an abandoned one has no effect."""

from dataclasses import replace
from typing import Any

import pytest

from shared.config.configuration import Configuration, Replacement
from shared.config.pipeline import Pipeline
from shared.config.pipeline_state import PipelineState
from shared.config.table import Table

WINDOW = {"window": {"every": "1 minute", "compute": {"z": "count(*)", "a": "max(n)"}}}


def document(name: str = "sales", **fields: Any) -> Pipeline:
    given = {"name": name, "from": {"stream": "orders"}, "to": [{"table": "sums"}]}
    return Pipeline.of({**given, "schema": "n INT", "steps": [WINDOW], **fields})


CURRENT, NEXT = document(), document(generation=2)
BUILT = Replacement("sales", 2, NEXT, {"sums": 4, "gone": 2})
SUMS = Table("sums", written_by="sales", generation=3)


def test_it_comes_back_as_it_was_with_its_columns_in_their_order() -> None:
    read = Configuration().apply(BUILT.config_key, BUILT.to_json())
    assert read.replacements == {"sales": BUILT}
    assert read.replacements["sales"].document is not None
    assert read.replacements["sales"].document.fingerprint == NEXT.fingerprint


def test_it_is_run_beside_what_it_is_to_replace_and_its_tables_are_followed() -> None:
    known = Configuration(
        pipelines={"sales": CURRENT}, replacements={"sales": BUILT}, tables={"sums": SUMS}
    )
    assert known.replacement_of("sales") == NEXT
    assert known.replacement_of("other") is None
    assert known.documents == [CURRENT, NEXT]
    assert known.followed_tables == [SUMS, replace(SUMS, generation=4)]
    assert list(known.pipelines_at("orders")) == [CURRENT, NEXT]


@pytest.mark.parametrize(
    ("pipelines", "built"),
    [
        ({}, BUILT),
        ({"sales": NEXT}, BUILT),
        ({"sales": CURRENT}, replace(BUILT, document=None)),
    ],
)
def test_what_was_left_behind_is_nothing(
    pipelines: dict[str, Pipeline], built: Replacement
) -> None:
    known = Configuration(pipelines=pipelines, replacements={"sales": built}, tables={"sums": SUMS})
    assert known.replacement_of("sales") is None
    assert known.documents == list(pipelines.values())
    assert known.followed_tables == [SUMS]


def test_it_is_of_the_pipeline_that_it_is_called_after() -> None:
    with pytest.raises(ValueError, match="another pipeline or generation"):
        Replacement("sales", 2, document("other", generation=2))
    with pytest.raises(ValueError, match="another pipeline or generation"):
        Replacement("sales", 3, NEXT)


@pytest.mark.parametrize(
    ("standing", "has_caught_up", "is_level"),
    [
        ("replacing", True, True),
        # A replacement that has not caught up is never level, even if there is little to read.
        ("replacing", False, False),
        ("checking", True, False),
        ("running", True, False),
    ],
)
def test_it_can_take_its_place_once_it_has_caught_up(
    standing: Any, *, has_caught_up: bool, is_level: bool
) -> None:
    state = PipelineState("f", standing, behind=0, has_caught_up=has_caught_up)
    assert state.is_level == is_level
