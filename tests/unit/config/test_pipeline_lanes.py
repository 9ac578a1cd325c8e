"""What a pipeline is to its stream, in the books: as a destination is."""

from typing import Any

import pytest

from shared.config.configuration import Configuration, RemovedPipeline
from shared.config.pipeline import Pipeline


def document(start: str) -> Pipeline:
    fields: dict[str, Any] = {"from": {"stream": "s", "start": start}, "to": [{"stream": "t"}]}
    return Pipeline.of({"name": "p", **fields})


@pytest.mark.parametrize(("start", "is_late"), [("earliest", False), ("latest", True)])
def test_one_that_has_begun_later_than_its_stream_owes_nothing_of_before(
    start: str,
    is_late: bool,  # noqa: FBT001 - from the table
) -> None:
    pipeline = document(start)
    known = Configuration().apply(pipeline.config_key, pipeline.to_json())
    assert known.starts_late(pipeline.lane_id) is is_late
    gone = RemovedPipeline("p", "default", "s", 1, removed_at_ms=1, starts_late=is_late)
    known = known.apply(gone.config_key, gone.to_json())
    assert known.starts_late(pipeline.lane_id) is is_late
    assert not known.starts_late("s/pipeline:other")
