"""The file of `hifi export --everything` has all that moves, and is read whole or not at all."""

import json
from dataclasses import fields

import pytest

from deploy.cli.applying.whole_export import (
    LEFT_BEHIND,
    MOVED,
    lines_of,
    not_opened,
    read_lines,
    topics_of,
)
from shared.config.access import ApiKey, Secret, Tenant
from shared.config.configuration import (
    ChangeCount,
    Configuration,
    RemovedPipeline,
    RemovedStream,
    Stream,
)
from shared.config.credentials import Bearer
from shared.config.destination import Destination
from shared.config.model import ConfigObject
from shared.config.table import Table
from shared.runtime.secret_box import SecretBox, new_key
from shared.runtime.setup_error import UsageError
from tests.support.pipelines.pipeline_runs import document

BOX = SecretBox([new_key()])
SHOP = Destination(
    "orders",
    "shop",
    "https://1.1.1.1/",
    auth=Bearer(token=BOX.seal("hush", owner="orders/shop")),
)
COUNTS = document(
    "counts",
    "orders",
    schema="k STRING",
    steps=[{"window": {"every": "1 day", "by": ["k"], "compute": {"n": "count(*)"}}}],
    to=[{"table": "by-day"}],
)


OBJECTS: list[ConfigObject] = [
    Tenant("acme"),
    ApiKey("key", (Secret("0" * 64),)),
    Stream("orders", partition_count=3),
    Table("by-day", written_by="counts"),
    SHOP,
    COUNTS,
    RemovedPipeline("old", "acme", "orders", 4, 5),
]


def configured(*objects: ConfigObject) -> Configuration:
    configuration = Configuration()
    for each in objects:
        configuration = configuration.apply(each.config_key, each.to_json())
    return configuration


def test_each_kind_of_object_moves_or_is_left_behind_on_purpose() -> None:
    assert {*MOVED, *LEFT_BEHIND} == {each.name for each in fields(Configuration)}


def test_what_is_written_is_read_again_and_needs_its_topics() -> None:
    left = [ChangeCount("acme", 3), RemovedStream("gone", "acme", 4, 5)]
    lines = list(lines_of(configured(*OBJECTS, *left)))
    assert json.loads(lines[0]) == {"export": 1, "objects": len(OBJECTS)}
    assert "hush" not in "".join(lines)
    assert read_lines(lines) == configured(*OBJECTS)
    topics = {each.name: each.partition_count for each in topics_of(read_lines(lines))}
    assert topics["hifi.stream.orders"] == 3
    assert {name.rpartition(".")[0] for name in topics} == {
        "hifi.stream",
        "hifi.table",
        "hifi.kept",
    }


def test_a_secret_needs_the_key_that_sealed_it() -> None:
    assert not_opened(configured(*OBJECTS), BOX) == []
    assert not_opened(configured(*OBJECTS), SecretBox([new_key()])) == ["orders/shop"]
    assert not_opened(configured(*OBJECTS), SecretBox([])) == ["orders/shop"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda _: [], "no file of"),
        (lambda _: ["kind: stream\n"], "no file of"),
        (lambda lines: lines[1:], "no file of"),
        (lambda _: ['{"export": 2, "objects": 0}'], "A newer Hifi"),
        (lambda lines: lines[:-1], f"has {len(OBJECTS)} objects, and {len(OBJECTS) - 1} are"),
        (lambda lines: [*lines[:3], lines[3][:20]], "Line 4"),
        (lambda lines: [*lines[:2], '{"key": "stream:x", "value": {"name": 5}}'], "Line 3"),
    ],
)
def test_what_is_not_whole_is_refused(change: object, says: str) -> None:
    lines = list(lines_of(configured(*OBJECTS)))
    with pytest.raises(UsageError, match=says):
        read_lines(change(lines))  # type: ignore[operator]
