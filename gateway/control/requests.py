"""Decides how every request that sets something up is read, answered and waited for.

Who may do it, how large a body is taken, and how long an answer waits for our own feed.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.callers import Caller, Callers, ConfigSource
from gateway.control.store import ConfigRecord, ControlStore
from gateway.intake.admission import InFlight
from gateway.intake.request_body import Body, BodyLimits, ClientGoneError
from gateway.problems import Problem
from gateway.settings import Settings
from shared.config.access import Scope
from shared.config.checks import ConfigError
from shared.config.configuration import Configuration
from shared.runtime.clock import now_ms

# The largest object is a stream with its schema of 256 Ki characters, escaped.
_BODY_BYTES_MAX = 1_048_576
_BODIES_AT_ONCE = 4
_SEEN_TIMEOUT_S = 2.0
_SEEN_LOOK_S = 0.02

# The name of a setting, with those that it is in.
_SETTING = re.compile(r"[a-z0-9_]+(\.[A-Za-z0-9_-]+)*")

Handler = Callable[[Request, Caller], Awaitable[Response]]


class ControlRequests:
    """What all paths that set up and show have in common."""

    def __init__(
        self,
        *,
        settings: Settings,
        config: ConfigSource,
        callers: Callers,
        store: ControlStore,
    ) -> None:
        self.settings = settings
        self.store = store
        self._config = config
        self._callers = callers
        self._in_flight = InFlight(_BODIES_AT_ONCE * _BODY_BYTES_MAX)

    @property
    def configuration(self) -> Configuration:
        """As of now."""
        return self._config.configuration

    def route(self, path: str, **handlers: tuple[Scope, Handler]) -> Route:
        async def serve(request: Request) -> Response:
            scope, handle = handlers["GET" if request.method == "HEAD" else request.method]
            headers = {name: value.decode("latin-1") for name, value in request.scope["headers"]}
            state = request.scope.get("state", {})
            caller = self._callers.of_request(headers, state=state, now_ms=now_ms())
            if scope == "read" and caller.scopes & {"write", "admin"} and caller.origins is None:
                # Who may send, or set up, may also see what there is.
                return await handle(request, caller)
            caller.check(scope, origin=headers.get(b"origin"))
            return await handle(request, caller)

        return Route(path, serve, methods=list(handlers))

    async def body(self, request: Request) -> dict[str, Any]:
        """The JSON object in a request's body."""
        body = Body(
            request.receive,
            in_flight=self._in_flight,
            tenant="",
            overdue_bytes=0,
            limits=BodyLimits(
                body_bytes_max=_BODY_BYTES_MAX,
                decompressed_bytes_max=_BODY_BYTES_MAX,
                ratio_max=1,
                stall_s=self.settings.receive_deadline_s,
                total_s=self.settings.receive_total_s,
            ),
        )
        try:
            raw = await body.read(request.headers.get("content-length"))
            raw.decode()
            fields = msgspec.json.decode(raw or b"{}")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Problem("invalid_json", f"{error}.") from error
        except ClientGoneError as error:
            raise Problem("body_timeout", "The client left.") from error
        finally:
            body.release()
        if not isinstance(fields, dict):
            raise Problem("bad_object", "Send a JSON object.")
        return fields

    async def change(self, record: ConfigRecord, *, is_seen: Callable[[], bool]) -> None:
        """Store a change, and wait until our own feed has it: the next request meets it."""
        await self.store.write([record])
        for _ in range(round(_SEEN_TIMEOUT_S / _SEEN_LOOK_S)):
            if is_seen():
                return
            await asyncio.sleep(_SEEN_LOOK_S)


def built(build: Callable[..., Any], *given: Any) -> Any:
    """An object of the caller's making; what is wrong with it is told as a Problem."""
    try:
        return build(*given)
    except ConfigError as error:
        # Its text begins with the name of the setting: `auth.username: ...`.
        setting = str(error).partition(":")[0]
        pointer = "/" + setting.replace(".", "/") if _SETTING.fullmatch(setting) else None
        raise Problem("bad_object", f"{error}.", pointer=pointer) from error
    except (ValueError, TypeError) as error:
        raise Problem("bad_object", f"{error}.") from error


def as_json(shown: Mapping[str, Any], status: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(msgspec.json.encode(shown), status_code=status, media_type="application/json")
