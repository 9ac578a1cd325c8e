"""The alerts of pipelines: one that stands still, is refused, is late, or gives its events up.

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
        "The pipeline {{ $labels.pipeline }} does not go on",
        "It fails again and again, or hangs. Its events wait in their stream, for as long as that"
        " keeps them.",
        for_="5m",
    ),
    judged(
        "HifiPipelineRefused",
        "ticket",
        (StreamVerdict.DISABLED,),
        "Its document was put, and cannot be run: the console says why, and where in it. Nothing of"
        " it runs, and its events wait in their stream.",
        whose=PIPELINES,
        for_="1m",
    ),
    judged(
        "HifiPipelineBehind",
        "ticket",
        (StreamVerdict.SLOW,),
        f"Its events are over {SLOW_AFTER_S} s late: more come than it gets done, or something else"
        " takes the processors.",
        whose=PIPELINES,
        for_="15m",
    ),
    judged(
        "HifiPipelineDeadLetters",
        "ticket",
        (StreamVerdict.REJECTING,),
        "At least half of the events of the last minute became dead letters in it: most often its"
        " schema is not that of the events.",
        whose=PIPELINES,
        for_="1m",
    ),
    Alert(
        "HifiPipelineEndsExecutors",
        "ticket",
        # A counter that appears for the first time shows no increase.
        f"sum by (tenant, pipeline) ({_ENDED} unless {_ENDED} offset 1h) > 0"
        f" or sum by (tenant, pipeline) (increase({_ENDED}[1h])) > 0",
        "{{ $labels.pipeline }} of {{ $labels.tenant }} ends what works on all pipelines' events",
        "An event of it, or its document, takes all memory of the executor, with nothing else at"
        " work in that. Others wait for seconds each time, until the event is found and rests.",
    ),
    Alert(
        "HifiPipelineLate",
        "ticket",
        "sum by (pipeline) (increase("
        f'{m.PIPELINES_EVENTS.name}{{outcome="late"}}[15m])) > {_LATE_MAX}',
        "Events of {{ $labels.pipeline }} come too late for their windows",
        "They are counted and kept, and are in no window: clocks of senders are off, or `late` is"
        " too short for how long events are under way.",
    ),
)
