"""Follows the topic of replays: their requests and their progress."""

from shared.event.topics import REPLAYS
from shared.retry.replay import Replays, with_replay
from shared.runtime.kafka.topic_feed import TopicFeed


class ReplayFeed(TopicFeed[Replays]):
    """All replays, by stream and id."""

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__(bootstrap_servers, REPLAYS, empty={}, fold=with_replay, draft=dict)
