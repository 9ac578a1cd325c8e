"""Decides what the gateway's HTTP application is made of."""

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.routing import Route

from gateway.publisher import Publisher
from gateway.routes import ConfigSource, EventsRoute, fail, list_streams, refuse
from gateway.settings import Settings
from shared.runtime.metrics import Metrics


def create_app(
    settings: Settings,
    *,
    publisher: Publisher,
    config: ConfigSource,
    metrics: Metrics,
) -> FastAPI:
    """Put the parts together. Who made the parts also starts and stops them."""
    # The pages of the framework load scripts from elsewhere; the document itself is ours.
    app = FastAPI(title="Hifi gateway", docs_url=None, redoc_url=None)
    app.state.config = config
    app.state.metrics = metrics
    events = EventsRoute(settings=settings, publisher=publisher, config=config, metrics=metrics)
    app.router.routes.insert(0, Route("/v1/streams/{stream}/events", events))
    app.add_route("/v1/streams", list_streams, methods=["GET"])
    app.add_exception_handler(HTTPException, refuse)
    app.add_exception_handler(Exception, fail)
    return app
