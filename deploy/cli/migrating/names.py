"""Lists the names that have changed and that stand for nothing else; CHANGELOG.md has them all."""

from collections.abc import Mapping

from shared.metric_names import RENAMED

SETTINGS: Mapping[str, str] = {
    "HIFI_DELIVERY_SLOTS": "HIFI_DELIVERY_TASK_PLACES",
    "HIFI_OBSERVE_BLIND_AFTER_S": "HIFI_OBSERVE_OVERDUE_AFTER_S",
    "HIFI_OBSERVE_SETTLE_S": "HIFI_OBSERVE_CHECK_AFTER_S",
    "HIFI_PIPELINES_SLOTS": "HIFI_PIPELINES_TASK_PLACES",
    "HIFI_RETRIER_SLOTS": "HIFI_RETRIER_TASK_PLACES",
}
ALERTS: Mapping[str, str] = {"HifiDestinationThrottled": "HifiDestinationRateLimited"}
LOG_LINES: Mapping[str, str] = {"executor.places_held": "executor.tasks_stuck"}
ALL: Mapping[str, str] = {**SETTINGS, **RENAMED, **ALERTS, **LOG_LINES}
