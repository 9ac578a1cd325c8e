"""Each service has the Kafka permissions that it needs, and no other service's."""

import pytest

from shared.event.rights import OPERATOR, RIGHTS, Right, table
from shared.event.topics import (
    CONFIG,
    LANE_GROUP_PREFIX,
    RECEIPTS,
    STATEMENTS,
    lane_group,
    lease_group,
    stream_topic,
)


def may(user: str, operation: str, name: str) -> bool:
    return any(
        operation in right.operations
        and (name.startswith(right.name) if right.is_prefix else name == right.name)
        for right in RIGHTS[user]
    )


def test_all_rights_are_about_what_is_ours_but_to_see_how_full_the_disks_are() -> None:
    assert {
        user: right
        for user, rights in RIGHTS.items()
        for right in rights
        if not right.name.startswith(("hifi.", "hifi-"))
    } == {OPERATOR: Right("cluster", "kafka-cluster", ("Alter", "Describe"))}


@pytest.mark.parametrize(
    ("name", "operation", "who"),
    [
        (stream_topic("orders"), "Write", {"gateway", "pipelines"}),
        # The retrier reads streams for replays.
        (
            stream_topic("orders"),
            "Read",
            {"gateway", "delivery", "retrier", "pipelines", "observe"},
        ),
        (CONFIG, "Write", {"gateway"}),
        # The gateway writes receipts of resent dead letters.
        (RECEIPTS, "Write", {"gateway", "delivery", "retrier", "pipelines"}),
        (CONFIG, "Read", {"gateway", "delivery", "retrier", "pipelines", "observe"}),
        (STATEMENTS, "Write", {"observe"}),
        (STATEMENTS, "Read", {"observe", "gateway"}),
        (stream_topic("orders"), "Delete", set()),
        (lane_group("orders/to"), "Read", {"delivery", "retrier", "pipelines"}),
        (lease_group("retrier"), "Read", {"delivery", "retrier", "pipelines", "observe"}),
    ],
)
def test_who_may_is_who_must(name: str, operation: str, who: set[str]) -> None:
    assert lane_group("orders/to").startswith(LANE_GROUP_PREFIX)
    assert {user for user in RIGHTS if may(user, operation, name)} - {OPERATOR} == who
    assert may(OPERATOR, operation, name)


def test_the_table_has_a_line_for_each_right() -> None:
    lines = table().splitlines()
    assert len(lines) == 2 + sum(len(rights) for rights in RIGHTS.values())
    assert "| delivery | topic | `hifi.stream.*` | Read, Describe |" in lines
