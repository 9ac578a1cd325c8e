"""Decides what can be set up over HTTP: streams, API keys and quotas, live everywhere at once.

Everything rests in the config topic. An answer comes after Kafka has the change and, as a rule,
after this gateway follows it; the others do within 2 s.
"""

import os
from http import HTTPStatus

import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.callers import Caller
from gateway.control import views
from gateway.control.requests import ControlRequests, as_json, built
from gateway.intake.schemas import SchemaError, compiled
from gateway.problems import Problem
from shared.config.access import (
    DEFAULT_TENANT,
    ENTROPY_BYTES,
    ApiKey,
    Tenant,
    new_text,
    secret_from,
)

log = structlog.get_logger()


class Control:
    """The paths that set up and show."""

    def __init__(self, requests: ControlRequests) -> None:
        self._requests = requests

    def routes(self) -> list[Route]:
        """Each path with what it takes."""
        route = self._requests.route
        return [
            route("/v1/limits", GET=("read", self._show_limits)),
            route("/v1/streams", GET=("read", self._list_streams)),
            route(
                "/v1/streams/{stream}",
                GET=("read", self._show_stream),
                PUT=("admin", self._put_stream),
                DELETE=("admin", self._delete_stream),
            ),
            route("/v1/keys", GET=("admin", self._list_keys)),
            route(
                "/v1/keys/{key}",
                GET=("admin", self._show_key),
                PUT=("admin", self._put_key),
                DELETE=("admin", self._delete_key),
            ),
            route("/v1/keys/{key}/rotate", POST=("admin", self._rotate_key)),
            route("/v1/keys/{key}/retire", POST=("admin", self._retire_key)),
            route(
                "/v1/tenants/{tenant}",
                GET=("read", self._show_tenant),
                PUT=("admin", self._put_tenant),
                DELETE=("admin", self._delete_tenant),
            ),
        ]

    async def _show_limits(self, _: Request, caller: Caller) -> Response:
        tenant = self._requests.configuration.tenants.get(caller.tenant)
        return as_json(views.limits(self._requests.settings, tenant))

    async def _list_streams(self, _: Request, caller: Caller) -> Response:
        streams = self._requests.configuration.streams.values()
        names = sorted(stream.name for stream in streams if stream.tenant == caller.tenant)
        return as_json({"streams": names})

    async def _show_stream(self, request: Request, caller: Caller) -> Response:
        name = request.path_params["stream"]
        return as_json(views.stream(caller.stream(name, self._requests.configuration)))

    async def _put_stream(self, request: Request, caller: Caller) -> Response:
        name = request.path_params["stream"]
        found = self._requests.configuration.streams.get(name)
        if found is not None and found.tenant != caller.tenant:
            raise Problem("stream_in_use", f"The name {name!r} belongs to somebody else.")
        fields = await self._requests.body(request)
        wanted = built(views.read_stream, name, fields, found, caller.tenant)
        if wanted.json_schema:
            try:
                compiled(wanted.json_schema)
            except SchemaError as error:
                raise Problem("bad_object", str(error), pointer="/schema") from error
        await self._requests.store.make_topic(wanted)
        await self._requests.change(
            (wanted.config_key, wanted.to_json()),
            is_seen=lambda: self._requests.configuration.streams.get(name) == wanted,
        )
        log.info("stream.written", stream=name, tenant=caller.tenant)
        status = HTTPStatus.CREATED if found is None else HTTPStatus.OK
        return as_json(views.stream(wanted), status)

    async def _delete_stream(self, request: Request, caller: Caller) -> Response:
        """Take the stream off the list. Its topic stays: what is in it may still be on its way."""
        name = request.path_params["stream"]
        configuration = self._requests.configuration
        stream = caller.stream(name, configuration)
        destinations = sorted(d.name for d in configuration.destinations_of(name))
        if destinations:
            listed = ", ".join(destinations)
            raise Problem("stream_in_use", f"Remove its destinations first: {listed}.")
        await self._requests.change(
            (stream.config_key, None),
            is_seen=lambda: name not in self._requests.configuration.streams,
        )
        log.info("stream.removed", stream=name, tenant=caller.tenant)
        return Response(status_code=HTTPStatus.NO_CONTENT)

    async def _list_keys(self, _: Request, caller: Caller) -> Response:
        keys = self._requests.configuration.keys.values()
        found = [views.key(key) for key in keys if _is_in_charge(caller, key.tenant)]
        return as_json({"keys": sorted(found, key=lambda key: str(key["id"]))})

    async def _show_key(self, request: Request, caller: Caller) -> Response:
        return as_json(views.key(self._key(request, caller)))

    async def _put_key(self, request: Request, caller: Caller) -> Response:
        """Make a key. Its text is in this answer and nowhere else, ever."""
        key_id = request.path_params["key"]
        if key_id in self._requests.configuration.keys:
            raise Problem("key_in_use", f"There is a key {key_id!r}: rotate or delete it.")
        fields = await self._requests.body(request)
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
        wanted = built(views.read_key, key_id, fields, secret)
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
        await self._requests.change(
            (key.config_key, None), is_seen=lambda: key.id not in self._requests.configuration.keys
        )
        log.info("key.removed", key=key.id, tenant=key.tenant)
        return Response(status_code=HTTPStatus.NO_CONTENT)

    async def _show_tenant(self, request: Request, caller: Caller) -> Response:
        return as_json(views.tenant(self._tenant(request, caller)))

    async def _put_tenant(self, request: Request, caller: Caller) -> Response:
        name = request.path_params["tenant"]
        _check_operator(caller)
        found = self._requests.configuration.tenants.get(name)
        wanted = built(views.read_tenant, name, await self._requests.body(request))
        await self._requests.change(
            (wanted.config_key, wanted.to_json()),
            is_seen=lambda: self._requests.configuration.tenants.get(name) == wanted,
        )
        status = HTTPStatus.CREATED if found is None else HTTPStatus.OK
        return as_json(views.tenant(wanted), status)

    async def _delete_tenant(self, request: Request, caller: Caller) -> Response:
        _check_operator(caller)
        tenant = self._tenant(request, caller)
        await self._requests.change(
            (tenant.config_key, None),
            is_seen=lambda: tenant.name not in self._requests.configuration.tenants,
        )
        return Response(status_code=HTTPStatus.NO_CONTENT)

    async def _store_key(
        self, key: ApiKey, status: HTTPStatus, *, text: str | None = None
    ) -> Response:
        await self._requests.change(
            (key.config_key, key.to_json()),
            is_seen=lambda: self._requests.configuration.keys.get(key.id) == key,
        )
        log.info("key.written", key=key.id, tenant=key.tenant)
        shown = views.key(key) | ({"key": text} if text is not None else {})
        return as_json(shown, status)

    def _key(self, request: Request, caller: Caller) -> ApiKey:
        found = self._requests.configuration.keys.get(request.path_params["key"])
        if found is None or not _is_in_charge(caller, found.tenant):
            raise Problem("unknown_key", "GET /v1/keys lists the keys there are.")
        return found

    def _tenant(self, request: Request, caller: Caller) -> Tenant:
        name = request.path_params["tenant"]
        found = self._requests.configuration.tenants.get(name)
        if found is None or not _is_in_charge(caller, name):
            raise Problem("unknown_tenant", "No quotas are set for a tenant of that name.")
        return found


def _is_in_charge(caller: Caller, tenant: str) -> bool:
    return caller.tenant in {tenant, DEFAULT_TENANT}


def _check_operator(caller: Caller) -> None:
    """Quotas are set by whoever runs Hifi: an administrator of the default tenant."""
    if caller.tenant != DEFAULT_TENANT:
        raise Problem("scope_missing", "Quotas are set by the operator.")
