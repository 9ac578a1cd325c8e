"""Decides what the second port says: alive, ready, and the metrics. Nothing for customers."""

from http import HTTPStatus

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from gateway.publisher import Publisher
from shared.runtime.metrics import Metrics


class Readiness:
    """Whether requests should be sent here: Kafka answers, and we are not on our way out."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self.is_draining = False

    @property
    def problem(self) -> str | None:
        return "the gateway is stopping" if self.is_draining else self._publisher.problem


def create_probes(readiness: Readiness, *, metrics: Metrics) -> Starlette:
    """The application of the second port: /livez, /readyz, /metrics."""

    async def live(_: Request) -> Response:
        return PlainTextResponse("alive\n")

    async def ready(_: Request) -> Response:
        problem = readiness.problem
        if problem is None:
            return PlainTextResponse("ready\n")
        return PlainTextResponse(f"{problem}\n", status_code=HTTPStatus.SERVICE_UNAVAILABLE)

    async def scrape(_: Request) -> Response:
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return Starlette(
        routes=[Route("/livez", live), Route("/readyz", ready), Route("/metrics", scrape)]
    )
