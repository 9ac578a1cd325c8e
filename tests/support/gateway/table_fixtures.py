"""A gateway with tables whose copies its test writes itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.settings import Settings
from shared.config.access import ENTROPY_BYTES, ApiKey, new_text, secret_from
from shared.config.configuration import Configuration
from shared.config.table import Table
from shared.runtime.clock import now_ms
from shared.runtime.tables.copy import Change, WrittenCopy
from shared.runtime.tables.folders import HeardFile, OpenCopy, TableCopies
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, RunningGateway, running_gateway

MIB = 1_048_576
TABLES = {
    "customers": Table("customers", row_bytes_max=1_000, bytes_max=MIB),
    "sums": Table("sums", written_by="counts"),
    "theirs": Table("theirs", tenant="them"),
    "bare": Table("bare"),
    "short": Table("short", retention_ms=60_000),
}
KEYS = {
    name: new_text(kind="secret", key_id=name, entropy=bytes(ENTROPY_BYTES))
    for name in ("all", "reads", "writes", "some", "signs")
}
ROWS = "/v1/tables/customers/rows"


class OneProcess(TableCopies):
    """Copies that are written where they are read: no process may open a file twice."""

    writers: dict[str, WrittenCopy]
    heard: dict[str, HeardFile]

    def of(self, table: Table) -> OpenCopy | None:
        writer = self.writers.get(table.name)
        return None if writer is None else OpenCopy(writer, self.heard[table.name], 0)

    def write(self, name: str, *changes: tuple[str, str], at_ms: int | None = None) -> None:
        writer, at_ms = self.writers[name], now_ms() if at_ms is None else at_ms
        first = writer.extent().offset
        made = [
            Change(key.encode(), value.encode(), first + nth, at_ms)
            for nth, (key, value) in enumerate(changes)
        ]
        writer.take(made, first + len(made))
        self.heard[name].at_ms = now_ms()


@contextmanager
def written_copies(folder: Path) -> Iterator[OneProcess]:
    """Return copies of the tables, which the test writes itself."""
    found = OneProcess(folder)
    found.writers, found.heard = {}, {}
    for name in ("customers", "short"):
        found.writers[name] = WrittenCopy(folder / name, bytes_max=MIB)
        found.heard[name] = HeardFile(folder / name, is_writer=True)
        found.write(name)
    yield found
    for name, writer in found.writers.items():
        writer.close()
        found.heard[name].close()


def table_config() -> FixedConfig:
    secrets = {name: (secret_from(text, signs=name == "signs"),) for name, text in KEYS.items()}
    keys = [
        ApiKey("all", secrets["all"], scopes=frozenset({"write", "read"})),
        ApiKey("reads", secrets["reads"], scopes=frozenset({"read"})),
        ApiKey("writes", secrets["writes"], scopes=frozenset({"write"})),
        ApiKey("some", secrets["some"], streams=frozenset({"orders"})),
        ApiKey("signs", secrets["signs"], must_sign=True),
    ]
    return FixedConfig(Configuration(tables=TABLES, keys={key.id: key for key in keys}))


@contextmanager
def table_gateway(
    publisher: FakePublisher, config: FixedConfig, copies: OneProcess
) -> Iterator[RunningGateway]:
    settings = Settings(auth="keys", events_max=100)
    with running_gateway(publisher, config, settings, copies=copies) as running:
        running.client.headers["authorization"] = f"Bearer {KEYS['all']}"
        yield running
