"""The alerts for pipelines that are stalled, refused or late, or that give events up.

Lost and unaccounted events raise the same alerts as for a destination (rules.py).
"""

from deploy.alerts.alert import PIPELINES, Alert, judged
from shared import metric_names as m
from shared.proof.overview import StreamVerdict
from shared.runtime.defaults import SLOW_AFTER_S

_LATE_MAX = 100
_ENDED = m.PIPELINES_EXECUTOR_ENDED.name

PIPELINE_ALERTS: tuple[Alert, ...] = (
    Alert(
        "HifiPipelineStopped",
        "page",
        f"max by (pipeline) ({m.PIPELINES_LANE_STALLED_SECONDS.name}) > 0"
        f" or max by (pipeline) ({m.PIPELINES_LANE_UP.name}) < 1",
        "The pipeline {{ $labels.pipeline }} makes no progress",
        "It fails again and again, or hangs. Its events wait in their stream for as long as the"
        " stream keeps them.",
        for_="5m",
    ),
    judged(
        "HifiPipelineRefused",
        "ticket",
        (StreamVerdict.DISABLED,),
        "Its document is stored but cannot run: the console shows why, and where the error is. The"
        " pipeline does not run, and its events wait in their stream.",
        whose=PIPELINES,
        for_="1m",
    ),
    judged(
        "HifiPipelineBehind",
        "ticket",
        (StreamVerdict.SLOW,),
        f"Its events are over {SLOW_AFTER_S} s late: more arrive than it can process, or something"
        " else takes the processors.",
        whose=PIPELINES,
        for_="15m",
    ),
    judged(
        "HifiPipelineDeadLetters",
        "ticket",
        (StreamVerdict.REJECTING,),
        "At least half of its events of the last minute became dead letters. Most often its schema"
        " does not match the events.",
        whose=PIPELINES,
        for_="1m",
    ),
    Alert(
        "HifiPipelineEndsExecutors",
        "ticket",
        # A counter that appears for the first time shows no increase.
        f"sum by (tenant, pipeline) ({_ENDED} unless {_ENDED} offset 1h) > 0"
        f" or sum by (tenant, pipeline) (increase({_ENDED}[1h])) > 0",
        "{{ $labels.pipeline }} of {{ $labels.tenant }} ends the executor of all pipelines",
        "One of its events, or its document, takes all memory of the executor, even when nothing"
        " else runs there. Each time, other pipelines wait for seconds, until Hifi has found the"
        " event and holds it back.",
    ),
    Alert(
        "HifiPipelineLate",
        "ticket",
        "sum by (pipeline) (increase("
        f'{m.PIPELINES_EVENTS.name}{{outcome="late"}}[15m])) > {_LATE_MAX}',
        "Events of {{ $labels.pipeline }} come too late for their windows",
        "Hifi counts and keeps them, but they are in no window. Clocks of senders are wrong, or"
        " `late` is shorter than the time that events take to arrive.",
    ),
)
