"""Serves the second port: liveness, readiness and metrics. Nothing for customers."""

from dataclasses import dataclass
from http import HTTPStatus

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from gateway.callers import ConfigSource
from gateway.publish.copies_watch import CopiesWatch
from gateway.publish.publisher import Publisher
from gateway.publish.spool import Spool
from shared.metric_names import GATEWAY_CONFIG_AGE_SECONDS, GATEWAY_UP
from shared.runtime.metrics import Metrics


@dataclass
class Readiness:
    """Whether requests should be sent here: Kafka stores, and we are not on our way out.

    Old configuration, or too few copies of a stream, is no reason to stop taking events: it would
    take every gateway out at once. The probe says it nevertheless, for people, and the metric does,
    for alerts.
    """

    publisher: Publisher
    config: ConfigSource
    spool: Spool | None = None
    copies: CopiesWatch | None = None
    is_draining: bool = False

    @property
    def problem(self) -> str | None:
        if self.is_draining:
            return "the gateway is stopping"
        return None if self._can_spool else self.publisher.problem

    @property
    def worry(self) -> str | None:
        if self._can_spool and (problem := self.publisher.problem) is not None:
            return f"only for respond-async, on this disk: {problem}"
        return self.config.problem or (None if self.copies is None else self.copies.worry)

    @property
    def _can_spool(self) -> bool:
        return self.spool is not None and self.spool.has_room


def create_probes(readiness: Readiness, *, metrics: Metrics, config: ConfigSource) -> Starlette:
    """The application of the second port: /livez, /readyz, /metrics."""
    metrics.gauge(GATEWAY_UP).set_function(lambda: float(readiness.problem is None))
    metrics.gauge(GATEWAY_CONFIG_AGE_SECONDS).set_function(lambda: config.age_s)

    async def live(_: Request) -> Response:
        return PlainTextResponse("alive\n")

    async def ready(_: Request) -> Response:
        problem, worry = readiness.problem, readiness.worry
        if problem is not None:
            return PlainTextResponse(f"{problem}\n", status_code=HTTPStatus.SERVICE_UNAVAILABLE)
        return PlainTextResponse("ready\n" if worry is None else f"ready, but {worry}\n")

    async def scrape(_: Request) -> Response:
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return Starlette(
        routes=[Route("/livez", live), Route("/readyz", ready), Route("/metrics", scrape)]
    )
