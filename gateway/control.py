"""Decides what can be set up over HTTP: streams, API keys and quotas, live everywhere at once.

Everything rests in the config topic. An answer comes after Kafka has the change and, as a rule,
after this gateway follows it; the others do within 2 s.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from time import time_ns
from typing import Any

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway import views
from gateway.admission import InFlight
from gateway.body import Body, BodyLimits, ClientGoneError
from gateway.callers import Caller, Callers, ConfigSource
from gateway.control_store import ControlStore
from gateway.problems import Problem
from gateway.schemas import SchemaError, compiled
from gateway.settings import Settings
from shared.access import (
    DEFAULT_TENANT,
    ENTROPY_BYTES,
    ApiKey,
    Scope,
    Tenant,
    new_text,
    secret_from,
)

log = structlog.get_logger()

# The largest object is a stream with its schema of 256 Ki characters, escaped.
_BODY_BYTES_MAX = 1_048_576
_BODIES_AT_ONCE = 4
_SEEN_TIMEOUT_S = 2.0
_SEEN_LOOK_S = 0.02

Handler = Callable[[Request, Caller], Awaitable[Response]]


class Control:
    """The paths that set up and show."""

    def __init__(
        self,
        *,
        settings: Settings,
        config: ConfigSource,
        callers: Callers,
        store: ControlStore,
    ) -> None:
        self._settings = settings
        self._config = config
        self._callers = callers
        self._store = store
        self._in_flight = InFlight(_BODIES_AT_ONCE * _BODY_BYTES_MAX)

    def routes(self) -> list[Route]:
        """Each path with what it takes."""
        return [
            self._route("/v1/limits", GET=("read", self._show_limits)),
            self._route("/v1/streams", GET=("read", self._list_streams)),
            self._route(
                "/v1/streams/{stream}",
                GET=("read", self._show_stream),
                PUT=("admin", self._put_stream),
                DELETE=("admin", self._delete_stream),
            ),
            self._route("/v1/keys", GET=("admin", self._list_keys)),
            self._route(
                "/v1/keys/{key}",
                GET=("admin", self._show_key),
                PUT=("admin", self._put_key),
                DELETE=("admin", self._delete_key),
            ),
            self._route("/v1/keys/{key}/rotate", POST=("admin", self._rotate_key)),
            self._route("/v1/keys/{key}/retire", POST=("admin", self._retire_key)),
            self._route(
                "/v1/tenants/{tenant}",
                GET=("read", self._show_tenant),
                PUT=("admin", self._put_tenant),
                DELETE=("admin", self._delete_tenant),
            ),
        ]

    def _route(self, path: str, **handlers: tuple[Scope, Handler]) -> Route:
        async def serve(request: Request) -> Response:
            scope, handle = handlers["GET" if request.method == "HEAD" else request.method]
            headers = {name: value.decode("latin-1") for name, value in request.scope["headers"]}
            state = request.scope.get("state", {})
            caller = self._callers.of_request(headers, state=state, now_ms=_now_ms())
            if scope == "read" and caller.scopes & {"write", "admin"} and caller.origins is None:
                # Who may send, or set up, may also see what there is.
                return await handle(request, caller)
            caller.check(scope, origin=headers.get(b"origin"))
            return await handle(request, caller)

        return Route(path, serve, methods=list(handlers))

    async def _show_limits(self, _: Request, caller: Caller) -> Response:
        tenant = self._config.configuration.tenants.get(caller.tenant)
        return _json(views.limits(self._settings, tenant))

    async def _list_streams(self, _: Request, caller: Caller) -> Response:
        streams = self._config.configuration.streams.values()
        names = sorted(stream.name for stream in streams if stream.tenant == caller.tenant)
        return _json({"streams": names})

    async def _show_stream(self, request: Request, caller: Caller) -> Response:
        name = request.path_params["stream"]
        return _json(views.stream(caller.stream(name, self._config.configuration)))

    async def _put_stream(self, request: Request, caller: Caller) -> Response:
        name = request.path_params["stream"]
        found = self._config.configuration.streams.get(name)
        if found is not None and found.tenant != caller.tenant:
            raise Problem("stream_in_use", f"The name {name!r} belongs to somebody else.")
        fields = await self._body(request)
        wanted = _built(views.read_stream, name, fields, found, caller.tenant)
        if wanted.json_schema:
            try:
                compiled(wanted.json_schema)
            except SchemaError as error:
                raise Problem("bad_object", str(error), pointer="/schema") from error
        await self._store.make_topic(wanted)
        await self._store.write([(wanted.config_key, wanted.to_json())])
        await self._seen(lambda: self._config.configuration.streams.get(name) == wanted)
        log.info("stream.written", stream=name, tenant=caller.tenant)
        status = HTTPStatus.CREATED if found is None else HTTPStatus.OK
        return _json(views.stream(wanted), status)

    async def _delete_stream(self, request: Request, caller: Caller) -> Response:
        """Take the stream off the list. Its topic stays: what is in it may still be on its way."""
        name = request.path_params["stream"]
        configuration = self._config.configuration
        stream = caller.stream(name, configuration)
        destinations = sorted(d.name for d in configuration.destinations_of(name))
        if destinations:
            listed = ", ".join(destinations)
            raise Problem("stream_in_use", f"Remove its destinations first: {listed}.")
        await self._store.write([(stream.config_key, None)])
        await self._seen(lambda: name not in self._config.configuration.streams)
        log.info("stream.removed", stream=name, tenant=caller.tenant)
        return Response(status_code=HTTPStatus.NO_CONTENT)

    async def _list_keys(self, _: Request, caller: Caller) -> Response:
        keys = self._config.configuration.keys.values()
        found = [views.key(key) for key in keys if _is_in_charge(caller, key.tenant)]
        return _json({"keys": sorted(found, key=lambda key: str(key["id"]))})

    async def _show_key(self, request: Request, caller: Caller) -> Response:
        return _json(views.key(self._key(request, caller)))

    async def _put_key(self, request: Request, caller: Caller) -> Response:
        """Make a key. Its text is in this answer and nowhere else, ever."""
        key_id = request.path_params["key"]
        if key_id in self._config.configuration.keys:
            raise Problem("key_in_use", f"There is a key {key_id!r}: rotate or delete it.")
        fields = await self._body(request)
        tenant = fields.setdefault("tenant", caller.tenant)
        if not isinstance(tenant, str) or not _is_in_charge(caller, tenant):
            raise Problem("scope_missing", "Keys are made for one's own tenant.")
        kind = fields.get("kind", "secret")
        text = new_text(
            # Whatever else it may be is refused below, where the key is built.
            kind="browser" if kind == "browser" else "secret",
            key_id=key_id,
            entropy=os.urandom(ENTROPY_BYTES),
        )
        secret = secret_from(text, signs=fields.get("must_sign") is True)
        wanted = _built(views.read_key, key_id, fields, secret)
        return await self._store_key(wanted, HTTPStatus.CREATED, text=text)

    async def _rotate_key(self, request: Request, caller: Caller) -> Response:
        """A second text for a key: both are good, until `retire` or the next rotation."""
        key = self._key(request, caller)
        text = new_text(kind=key.kind, key_id=key.id, entropy=os.urandom(ENTROPY_BYTES))
        wanted = key.with_new(secret_from(text, signs=key.must_sign))
        return await self._store_key(wanted, HTTPStatus.OK, text=text)

    async def _retire_key(self, request: Request, caller: Caller) -> Response:
        """From now on only the newest text of the key is good."""
        return await self._store_key(self._key(request, caller).with_newest_only(), HTTPStatus.OK)

    async def _delete_key(self, request: Request, caller: Caller) -> Response:
        key = self._key(request, caller)
        await self._store.write([(key.config_key, None)])
        await self._seen(lambda: key.id not in self._config.configuration.keys)
        log.info("key.removed", key=key.id, tenant=key.tenant)
        return Response(status_code=HTTPStatus.NO_CONTENT)

    async def _show_tenant(self, request: Request, caller: Caller) -> Response:
        return _json(views.tenant(self._tenant(request, caller)))

    async def _put_tenant(self, request: Request, caller: Caller) -> Response:
        name = request.path_params["tenant"]
        _check_operator(caller)
        found = self._config.configuration.tenants.get(name)
        wanted = _built(views.read_tenant, name, await self._body(request))
        await self._store.write([(wanted.config_key, wanted.to_json())])
        await self._seen(lambda: self._config.configuration.tenants.get(name) == wanted)
        status = HTTPStatus.CREATED if found is None else HTTPStatus.OK
        return _json(views.tenant(wanted), status)

    async def _delete_tenant(self, request: Request, caller: Caller) -> Response:
        _check_operator(caller)
        tenant = self._tenant(request, caller)
        await self._store.write([(tenant.config_key, None)])
        await self._seen(lambda: tenant.name not in self._config.configuration.tenants)
        return Response(status_code=HTTPStatus.NO_CONTENT)

    async def _store_key(
        self, key: ApiKey, status: HTTPStatus, *, text: str | None = None
    ) -> Response:
        await self._store.write([(key.config_key, key.to_json())])
        await self._seen(lambda: self._config.configuration.keys.get(key.id) == key)
        log.info("key.written", key=key.id, tenant=key.tenant)
        shown = views.key(key) | ({"key": text} if text is not None else {})
        return _json(shown, status)

    def _key(self, request: Request, caller: Caller) -> ApiKey:
        found = self._config.configuration.keys.get(request.path_params["key"])
        if found is None or not _is_in_charge(caller, found.tenant):
            raise Problem("unknown_key", "GET /v1/keys lists the keys there are.")
        return found

    def _tenant(self, request: Request, caller: Caller) -> Tenant:
        name = request.path_params["tenant"]
        found = self._config.configuration.tenants.get(name)
        if found is None or not _is_in_charge(caller, name):
            raise Problem("unknown_tenant", "No quotas are set for a tenant of that name.")
        return found

    async def _body(self, request: Request) -> dict[str, Any]:
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
                stall_s=self._settings.receive_deadline_s,
                total_s=self._settings.receive_total_s,
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

    async def _seen(self, is_seen: Callable[[], bool]) -> None:
        """Wait until our own feed has the change, so that the caller's next request meets it."""
        for _ in range(round(_SEEN_TIMEOUT_S / _SEEN_LOOK_S)):
            if is_seen():
                return
            await asyncio.sleep(_SEEN_LOOK_S)


def _built(build: Callable[..., Any], *given: Any) -> Any:
    """An object of the caller's making; what is wrong with it is told as a Problem."""
    try:
        return build(*given)
    except (ValueError, TypeError) as error:
        raise Problem("bad_object", f"{error}.") from error


def _is_in_charge(caller: Caller, tenant: str) -> bool:
    return caller.tenant in {tenant, DEFAULT_TENANT}


def _check_operator(caller: Caller) -> None:
    """Quotas are set by whoever runs Hifi: an administrator of the default tenant."""
    if caller.tenant != DEFAULT_TENANT:
        raise Problem("scope_missing", "Quotas are set by the operator.")


def _json(shown: Mapping[str, Any], status: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(msgspec.json.encode(shown), status_code=status, media_type="application/json")


def _now_ms() -> int:
    return time_ns() // 1_000_000
