"""Plays a chaos run's customers over the control API: they create, change and remove things.

A change without an answer is requested again; each change here allows that.
"""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from deploy.local.process_faults import NotHereError
from shared.runtime.clock import now_ms
from shared.runtime.control_client import ControlClient, RefusedError
from shared.runtime.setup_error import UsageError
from tests.chaos.actions import Action
from tests.chaos.destinations import Destinations
from tests.chaos.recount import OwedDestination
from tests.chaos.senders import Sender

# A change may meet a gateway that is dead, frozen or without Kafka; all of that ends within this.
_PATIENCE_S = 90.0
_AGAIN_S = 0.5
# Answers that may differ at the next try.
_NOT_NOW = {409, 429, 500, 502, 503, 504}
_GONE = 404
# Answers that another worker of a gateway may give for the promised 2 s, or a little longer here.
_NOT_YET = {401, 404}
_NEW_S = 4.0


class GivenUpError(Exception):
    """A change was not done in the time allowed."""


@dataclass
class Customers:
    """Every tenant of a run, with its keys and senders."""

    gateway: str
    operator_key: str
    destinations: Destinations
    seed: int
    keys: dict[str, str] = field(default_factory=dict)
    # By tenant and stream. The sender of a removed stream keeps its answers.
    senders: dict[tuple[str, str], Sender] = field(default_factory=dict)
    _active: set[tuple[str, str]] = field(default_factory=set)
    _are_sending: bool = False
    # The rate of events to each stream, and each filter that a destination has ever had.
    _paces: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    _wants: dict[str, str] = field(default_factory=dict)
    # The time at which each present destination was created.
    _made_ms: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def do(self, action: Action) -> str:
        """Make a change; return its result in a few words."""
        method = getattr(self, action.kind.replace(" ", "_"))
        said: str | None = method(action)
        return said or "done"

    def send(self) -> None:
        self._are_sending = True
        for place in self._active:
            self.senders[place].go_on()

    def pause(self) -> None:
        self._are_sending = False
        for sender in self.senders.values():
            sender.pause()

    def stop(self) -> None:
        for sender in self.senders.values():
            sender.stop()

    def owed(self) -> list[OwedDestination]:
        """Return the present destinations, as the gateway shows them."""
        found = []
        for tenant in list(self.keys):
            for stream in self._call(tenant, "GET", "streams")["streams"]:
                for one in self._call(tenant, "GET", "streams", stream, "destinations")[
                    "destinations"
                ]:
                    place = f"{stream}/{one['name']}"
                    known = self._wants.get(place, ""), self._made_ms.get(place, 0)
                    found.append(OwedDestination(tenant, stream, one["name"], *known))
        return found

    def resume_all(self, stream: str = "") -> None:
        """Resume all paused, held and disabled destinations, of one stream or of all."""
        for owed in self.owed():
            if stream in {"", owed.stream}:
                path = "streams", owed.stream, "destinations", owed.name
                self._call(owed.tenant, "POST", *path, "resume")

    def make_tenant(self, action: Action) -> None:
        tenant = action.tenant
        body = {"tenant": tenant, "scopes": ["write", "read", "admin"]}
        try:
            made = self._as_operator("PUT", "keys", tenant, body=body, not_now=_NOT_NOW - {409})
        except RefusedError as error:
            if error.code != "key_in_use":
                raise
            # The key was created, and the answer with its text was lost.
            made = self._as_operator("POST", "keys", tenant, "rotate")
        self.keys[tenant] = made["key"]

    def change_tenant(self, action: Action) -> None:
        self._as_operator("PUT", "tenants", action.tenant, body=dict(action.settings))

    def remove_tenant(self, action: Action) -> None:
        tenant = action.tenant
        for stream in self._call(tenant, "GET", "streams")["streams"]:
            self._remove_stream(tenant, stream)
        self._as_operator("DELETE", "keys", tenant)
        self._as_operator("DELETE", "tenants", tenant)
        del self.keys[tenant]

    def rotate_key(self, action: Action) -> None:
        made = self._call(action.tenant, "POST", "keys", action.tenant, "rotate")
        self.keys[action.tenant] = made["key"]
        self._call(action.tenant, "POST", "keys", action.tenant, "retire")

    def make_stream(self, action: Action) -> None:
        self._paces[action.stream] = dict(action.settings)
        self._call(action.tenant, "PUT", "streams", action.stream, body={})
        self._start_sender(action.tenant, action.stream)

    remake_stream = make_stream

    def change_stream(self, action: Action) -> None:
        path = "streams", action.stream
        count = self._call(action.tenant, "GET", *path)["partition_count"]
        self._call(action.tenant, "PUT", *path, body={"partition_count": count + 1})

    def remove_stream(self, action: Action) -> None:
        self._remove_stream(action.tenant, action.stream)

    def renew_stream(self, action: Action) -> str:
        """Delete and recreate a stream while its sender continues; acknowledged events are kept."""
        path = action.tenant, "GET", "streams", action.stream
        self._delete_stream(action.tenant, action.stream)
        begun_s = time.monotonic()
        try:
            while time.monotonic() < begun_s + _PATIENCE_S:
                # A gateway that has not heard of the deletion still shows the stream.
                self._call(*path)
                time.sleep(_AGAIN_S)
        except RefusedError as error:
            if error.status != _GONE:
                raise
        self._call(action.tenant, "PUT", "streams", action.stream, body={})
        return f"away for {time.monotonic() - begun_s:.1f} s"

    def take_freed_stream(self, action: Action) -> str | None:
        """Have another tenant ask for the name: it may get the name, but no former contents."""
        try:
            self._call(
                action.tenant, "PUT", "streams", action.stream, body={}, not_now=_NOT_NOW - {409}
            )
        except RefusedError as error:
            return f"refused: {error.detail}"
        self._start_sender(action.tenant, action.stream)
        self.make_destination(action)
        return "given to another tenant"

    def make_destination(self, action: Action) -> None:
        self._put_destination(action)
        self._made_ms[f"{action.stream}/{action.name}"] = now_ms()

    remake_destination = make_destination

    def make_late_destination(self, action: Action) -> str:
        """Create a destination after its stream's newest statement; send an event of that time."""
        until_s = time.monotonic() + _PATIENCE_S
        while not (minutes := self._stated_minutes(action)):
            if time.monotonic() > until_s:
                raise NotHereError("no minute of its stream has a statement yet")
            # No minute gets a statement while one of its destinations makes no progress.
            self.resume_all(action.stream)
            time.sleep(_NEW_S)
        self.make_destination(action)
        if not self.senders[action.tenant, action.stream].had_late(max(minutes)):
            raise NotHereError("no event of that minute is acknowledged")
        return f"minute {max(minutes)}, which had a statement, has one more event"

    def _stated_minutes(self, action: Action) -> list[int]:
        signed = self._call(action.tenant, "GET", "streams", action.stream, "statements")
        minutes = [one["statement"]["minute_ms"] for one in signed["statements"]]
        return [one for one in minutes if one >= 0]

    def make_picky_destination(self, action: Action) -> str:
        settings = dict(action.settings)
        down_s = settings.pop("down_s")
        path = f"/{action.tenant}/{action.stream}/{action.name}"
        self.destinations.make_picky(path, down_s=down_s)
        self.make_destination(replace(action, settings=tuple(settings.items())))
        return f"down for {down_s} s, then refusing some events"

    def change_destination(self, action: Action) -> None:
        self._put_destination(action)

    def pause_destination(self, action: Action) -> None:
        self._put_destination(action, is_paused=True)

    def resume_destination(self, action: Action) -> None:
        path = "streams", action.stream, "destinations", action.name
        self._call(action.tenant, "POST", *path, "resume")

    def remove_destination(self, action: Action) -> None:
        path = "streams", action.stream, "destinations", action.name
        self._call(action.tenant, "DELETE", *path)

    def redrive(self, action: Action) -> str:
        """Resend all dead letters of a tenant's streams."""
        count = 0
        for stream in self._call(action.tenant, "GET", "streams")["streams"]:
            path = "streams", stream, "dead-letters:redrive"
            count += self._call(action.tenant, "POST", *path, body={"rate_per_s": 1_000})["count"]
        return f"{count} sent again"

    def _put_destination(self, action: Action, **more: Any) -> None:
        settings = dict(action.settings)
        wants = settings.pop("wants", "")
        if wants:
            # Once an event was filtered out, it is no longer due.
            self._wants[f"{action.stream}/{action.name}"] = wants
            more["filter"] = [{"pointer": "/kind", "equals": wants}]
        body = {
            "url": self.destinations.url_of(action.tenant, action.stream, action.name),
            "timeout_s": 2,
            "connect_timeout_s": 2,
            **settings,
            **more,
        }
        path = "streams", action.stream, "destinations", action.name
        self._call(action.tenant, "PUT", *path, body=body)

    def _remove_stream(self, tenant: str, stream: str) -> None:
        self._active.discard((tenant, stream))
        if (tenant, stream) in self.senders:
            self.senders[tenant, stream].pause()
        self._delete_stream(tenant, stream)

    def _delete_stream(self, tenant: str, stream: str) -> None:
        path = "streams", stream, "destinations"
        try:
            for one in self._call(tenant, "GET", *path)["destinations"]:
                self._call(tenant, "DELETE", *path, one["name"])
        except RefusedError as error:
            # An earlier try succeeded, and its answer was lost.
            if error.status != _GONE:
                raise
        self._call(tenant, "DELETE", "streams", stream)

    def _start_sender(self, tenant: str, stream: str) -> None:
        with self._lock:
            place = tenant, stream
            self._active.add(place)
            if place not in self.senders:
                pace = self._paces.get(stream) or {"batch": 5, "every_s": 0.5}
                sender = Sender(
                    gateway=self.gateway,
                    tenant=tenant,
                    stream=stream,
                    batch=pace["batch"],
                    every_s=pace["every_s"],
                    dice=Random(f"{self.seed} {tenant} {stream}"),
                    key=lambda: self.keys.get(tenant, ""),
                )
                self.senders[place] = sender
                sender.start()
            if self._are_sending:
                self.senders[place].go_on()

    def _as_operator(self, method: str, *path: str, **more: Any) -> dict[str, Any]:
        return self._persist(lambda: self.operator_key, method, *path, **more)

    def _call(self, tenant: str, method: str, *path: str, **more: Any) -> dict[str, Any]:
        return self._persist(lambda: self.keys[tenant], method, *path, **more)

    def _persist(
        self,
        key: Any,
        method: str,
        *path: str,
        not_now: set[int] = _NOT_NOW,
        body: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Ask until there is a definite answer."""
        begun_s = time.monotonic()
        while True:
            try:
                return ControlClient(self.gateway, key()).call(method, *path, body=body)
            except RefusedError as error:
                if method == "DELETE" and error.status == _GONE:
                    return {}
                is_new = error.status in _NOT_YET and time.monotonic() < begun_s + _NEW_S
                if error.status not in not_now and not is_new:
                    raise
                problem: Exception = error
            except UsageError as error:
                problem = error
            if time.monotonic() > begun_s + _PATIENCE_S:
                raise GivenUpError(f"{method} {'/'.join(path)}: {problem}")
            time.sleep(_AGAIN_S)
