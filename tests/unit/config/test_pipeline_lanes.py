"""The books treat a pipeline like a destination of its stream."""

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


def test_the_archives_of_a_stream_are_those_of_all_of_it_and_of_the_same_tenant() -> None:
    kept: list[dict[str, Any]] = [{"archive": "backup"}]
    documents = [
        document("earliest"),
        Pipeline.of({"name": "b", "from": {"stream": "s"}, "to": kept}),
        Pipeline.of({"name": "a", "from": {"stream": "s"}, "to": kept}),
        Pipeline.of({"name": "part", "from": {"stream": "s"}, "schema": "n INT", "to": kept}),
        Pipeline.of({"name": "else", "from": {"stream": "other"}, "to": kept}),
        Pipeline.of({"name": "theirs", "from": {"stream": "s"}, "to": kept, "tenant": "acme"}),
    ]
    known = Configuration()
    assert not known.reads_archives(documents[0].lane_id)
    for each in documents:
        known = known.apply(each.config_key, each.to_json())
    assert [it.name for it in known.archives_for(documents[0])] == ["a", "b"]
    assert [it.name for it in known.archives_for(documents[1])] == ["a"], (
        "it is not an archive for itself"
    )
    assert known.archives_for(documents[4]) == []
    assert known.reads_archives(documents[0].lane_id)
    assert not known.reads_archives("s/destination")
