"""`hifi test` against a gateway: one event, followed until each destination has answered."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from typer.testing import CliRunner, Result

from deploy.cli.commands import app
from deploy.cli.events import test_event
from gateway.settings import Settings
from shared.config.configuration import Configuration, Stream
from shared.config.destination import Destination
from shared.event.envelope import History
from shared.event.topics import stream_topic
from shared.proof.acked import AckedRequest
from shared.proof.receipt import ReceiptOutcome
from shared.retry.decision import DeadLetter
from shared.retry.routing import route
from shared.runtime.setup_error import NotFoundError, OperatorError, UsageError
from tests.component.gateway.control.test_receipts import a_receipt, an_event
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import (
    FakeReceipts,
    FixedConfig,
    RunningGateway,
    a_ledger_row,
    running_gateway,
)

CRM = Destination("orders", "crm", "https://crm.example/")
TOPIC = stream_topic("orders")


@dataclass
class SlowReceipts(FakeReceipts):
    """Receipts that first know nothing of a request, then its event's place, then its outcome."""

    outcome: ReceiptOutcome | None = None
    looks: list[str] = field(default_factory=list)

    async def request(self, request_id: str, *, since_ms: int, wait_s: float) -> AckedRequest:
        self.looks.append(request_id)
        if len(self.looks) > 1:
            self.ledger = [a_ledger_row(request_id, "e-1")]
        if len(self.looks) > 2 and self.outcome is not None:
            self.receipts = [a_receipt(10, self.outcome, "status_200")]
            given_up = DeadLetter("status_400", History.fresh(now_ms=0, deadline_s=1))
            self.dead = [route(given_up, an_event(10), "orders/crm", now_ms=0)]
        return await super().request(request_id, since_ms=since_ms, wait_s=wait_s)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> SlowReceipts:
    monkeypatch.setattr(test_event, "_LOOK_S", 0.0)
    return SlowReceipts()


@pytest.fixture
def publisher() -> FakePublisher:
    return FakePublisher([TOPIC])


@pytest.fixture
def gateway(kept: SlowReceipts, publisher: FakePublisher) -> Iterator[RunningGateway]:
    destinations = {CRM.id: CRM}
    config = FixedConfig(
        Configuration(streams={"orders": Stream("orders")}, destinations=destinations)
    )
    with running_gateway(publisher, config, Settings(auth="off"), receipts=kept) as running:
        yield running


def hifi(gateway: RunningGateway, *arguments: str) -> Result:
    result = CliRunner().invoke(app, ["test", *arguments], env={"HIFI_GATEWAY": gateway.url})
    if isinstance(result.exception, OperatorError):
        raise result.exception
    return result


@pytest.mark.parametrize(
    ("outcome", "code", "said"),
    [
        (ReceiptOutcome.DELIVERED, 0, "crm: 1 delivered"),
        (ReceiptOutcome.DEAD, 3, "crm: 1 dead"),
    ],
)
def test_an_event_is_followed_until_its_destination_has_said_something(
    gateway: RunningGateway,
    kept: SlowReceipts,
    publisher: FakePublisher,
    *,
    outcome: ReceiptOutcome,
    code: int,
    said: str,
) -> None:
    kept.outcome = outcome
    done = hifi(gateway, "orders", "--wait", "10")
    assert (done.exit_code, said in done.stdout) == (code, True), done.output
    (event,) = publisher.stored(TOPIC)
    assert json.loads(event.value) == {"is_test": True}
    assert f"request {kept.looks[0]}" in done.stderr
    shown = hifi(gateway, "orders", '{"id": "mine"}', "-o", "json", "--wait", "10")
    assert (shown.exit_code, json.loads(shown.stdout)["count"]) == (code, 1)
    assert [json.loads(each.value) for each in publisher.stored(TOPIC)].count({"id": "mine"}) == 1


def test_who_waits_no_longer_hears_how_far_it_is(
    gateway: RunningGateway, kept: SlowReceipts
) -> None:
    with pytest.raises(UsageError, match=r"It has no receipt after 0 s: try `hifi receipt "):
        hifi(gateway, "orders", "--wait", "0")
    kept.looks.append("as if it had been asked for before")
    done = hifi(gateway, "orders", "--wait", "0.01")
    assert (done.exit_code, "crm: 1 queued" in done.stdout) == (3, True)


def test_what_is_wrong_with_it_is_told(gateway: RunningGateway, publisher: FakePublisher) -> None:
    with pytest.raises(UsageError, match="The event is not JSON"):
        hifi(gateway, "orders", "{")
    with pytest.raises(UsageError, match="not a JSON object"):
        hifi(gateway, "orders", "[]")
    with pytest.raises(UsageError, match="404 unknown_stream") as refused:
        hifi(gateway, "nowhere")
    assert refused.value.exit_code == NotFoundError.exit_code
    assert hifi(gateway, "orders", "--wait", "long").exit_code == 2
    assert not publisher.stored(TOPIC)
