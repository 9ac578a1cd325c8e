"""Pages that wait for a silent gateway delay only other pages of their own tenant."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import httpx
import pytest

from console import page_threads
from deploy.local.ports import pick_free
from shared.config.configuration import Configuration, Stream
from tests.component.console.access.test_console_access import make_key, sign_in
from tests.support.console.console_fixtures import overview, running_console
from tests.support.deploy.stack_fixtures import wait_until

# This many pages of a tenant may wait for the gateway; asyncio has six threads on two cores.
OF_A_TENANT = 8
PATIENCE_S = 10.0


@contextmanager
def silent_gateway(port: int) -> Iterator[list[bytes]]:
    """Start a gateway that takes requests and answers none, and return the heads it receives."""
    heads: list[bytes] = []
    with ExitStack() as kept, socket.create_server(("127.0.0.1", port), backlog=64) as listening:

        def take() -> None:
            while True:
                try:
                    wire, _ = listening.accept()
                except OSError:
                    return
                kept.enter_context(wire)
                heads.append(wire.recv(65_536))

        thread = threading.Thread(target=take)
        thread.start()
        try:
            yield heads
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def test_pages_that_hang_hold_up_no_alert_and_no_other_tenant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(page_threads, "_WAIT_S", 0.5)
    (port,) = pick_free(1)
    keys = {tenant: make_key(tenant, "read", tenant=tenant) for tenant in ("acme", "globex")}
    with (
        ThreadPoolExecutor(16) as browsers,
        ExitStack() as silence,
        running_console("keys", gateway=f"http://127.0.0.1:{port}") as running,
    ):
        heads = silence.enter_context(silent_gateway(port))
        running.config.configuration = Configuration(
            keys={tenant: key for tenant, (key, _) in keys.items()},
            streams={f"s-{tenant}": Stream(f"s-{tenant}", tenant=tenant) for tenant in keys},
        )
        running.show(overview())

        def waiting_of(tenant: str) -> int:
            return sum(keys[tenant][1].encode() in head for head in list(heads))

        def load(tenant: str) -> Future[httpx.Response]:
            def page() -> httpx.Response:
                with httpx.Client(base_url=running.url, timeout=60) as visitor:
                    sign_in(visitor, keys[tenant][1])
                    return visitor.get("/dead/letters")

            return browsers.submit(page)

        waiting = [load("acme") for _ in range(OF_A_TENANT)]
        wait_until(lambda: waiting_of("acme") == OF_A_TENANT, what="8 pages are waiting")
        refused = load("acme").result(PATIENCE_S)
        assert refused.status_code == 503
        assert "8 of your pages are already waiting for the gateway" in refused.text
        assert waiting_of("acme") == OF_A_TENANT
        # Notices and steps of the series are written in such threads.
        telling = asyncio.run_coroutine_threadsafe(asyncio.to_thread(str, "told"), running.loop)
        assert telling.result(PATIENCE_S) == "told"
        waiting.append(load("globex"))
        wait_until(lambda: waiting_of("globex") == 1, what="the neighbour's page is waiting")
        assert not any(page.done() for page in waiting)
        silence.close()
        assert {page.result(PATIENCE_S).status_code for page in waiting} == {503}
