"""`hifi apply`, `delete` and `export` against a gateway: files describe the wanted objects."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from deploy.cli.applying import apply
from deploy.cli.commands import app
from gateway.problems import Problem
from gateway.settings import Settings
from shared.config.configuration import Configuration, Stream
from shared.config.credentials import secrets_of
from shared.config.pipeline_state import PipelineState
from shared.runtime.control_client import RefusedError
from shared.runtime.secret_box import new_key
from shared.runtime.setup_error import NoAnswerError, OperatorError, UsageError
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, RunningGateway, running_gateway

# Objects in an order in which none could be created.
SHOP = """\
kind: pipeline
name: sales
from: {stream: orders}
schema: price DOUBLE
steps:
  - select: {price: price}
  - key: price
to:
  - table: prices
---
kind: destination
stream: orders
name: shop
url: https://1.1.1.1/in
parallel_max: 8
auth: {kind: bearer, token: {env: SHOP_TOKEN}}
---
kind: table
name: prices
written_by: sales
---
kind: stream
name: orders
key_pointer: /user
---
"""
ORDER = ["stream/orders", "table/prices", "destination/orders/shop", "pipeline/sales"]
CHANNEL = """\
kind: channel
name: ops
via: slack
secret_url: {env: SHOP_TOKEN}
about: [loss]
"""


@pytest.fixture
def config() -> FixedConfig:
    return FixedConfig(Configuration(streams={"others": Stream("others")}))


@pytest.fixture
def gateway(config: FixedConfig, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningGateway]:
    monkeypatch.setenv("SHOP_TOKEN", "hunter2")
    # Nothing judges pipelines here, so do not wait for that.
    monkeypatch.setattr(apply, "JUDGED_WAIT_S", 0.0)
    settings = Settings.model_validate({"auth": "off", "HIFI_SECRET_KEYS": new_key()})
    with running_gateway(FakePublisher([]), config, settings) as running:
        yield running


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    file = tmp_path / "shop.yaml"
    file.write_text(SHOP)
    return file


def hifi(gateway: RunningGateway, *arguments: str, stdin: str = "") -> Result:
    environ = {"HIFI_GATEWAY": gateway.url}
    result = CliRunner().invoke(app, list(arguments), env=environ, input=stdin)
    if isinstance(result.exception, OperatorError):
        raise result.exception
    return result


def fates(gateway: RunningGateway, *arguments: str, code: int = 0, stdin: str = "") -> Any:
    """Return the outcome of each object, by name, in order."""
    done = hifi(gateway, "apply", "-o", "json", *arguments, stdin=stdin)
    assert done.exit_code == code, done.output
    return {each["name"]: each for each in json.loads(done.stdout)}


def outcomes(gateway: RunningGateway, *arguments: str, code: int = 0, stdin: str = "") -> Any:
    told = fates(gateway, *arguments, code=code, stdin=stdin)
    return {name: fate["outcome"] for name, fate in told.items()}


def test_what_a_file_says_is_made_once_and_then_changed_only_where_it_differs(
    gateway: RunningGateway, config: FixedConfig, shop: Path
) -> None:
    tried = outcomes(gateway, "-f", str(shop), "--dry-run")
    assert [*tried] == ORDER
    assert set(tried.values()) == {"created"}
    assert [*config.configuration.streams] == ["others"]
    assert outcomes(gateway, "-f", str(shop)) == tried
    first = config.configuration
    assert first.streams["orders"].key_pointer == "/user"
    assert first.destinations["orders/shop"].parallel_max == 8
    # Another run changes nothing, not even the sealed secret.
    for more in ([], ["--dry-run"]):
        assert set(outcomes(gateway, "-f", str(shop), *more).values()) == {"unchanged"}
    assert config.configuration == first
    shop.write_text(SHOP.replace("parallel_max: 8", "rate_per_s: 9"))
    wanted = {
        "parallel_max": {"before": 8, "after": 4},
        "rate_per_s": {"before": None, "after": 9.0},
    }
    for more in (["--dry-run"], []):
        told = fates(gateway, "-f", str(shop), *more)
        assert told.pop("destination/orders/shop")["changes"] == wanted
        assert {fate["outcome"] for fate in told.values()} == {"unchanged"}
    assert config.configuration.destinations["orders/shop"].rate_per_s == 9


def test_a_person_reads_what_would_change_from_what_to_what(
    gateway: RunningGateway, shop: Path
) -> None:
    hifi(gateway, "apply", "-f", str(shop))
    shop.write_text(SHOP.replace("parallel_max: 8", "parallel_max: 16"))
    tried = hifi(gateway, "apply", "-f", str(shop), "--dry-run")
    assert tried.stdout.splitlines() == [
        "stream/orders  unchanged",
        "table/prices  unchanged",
        "destination/orders/shop  would be changed: parallel_max",
        "    parallel_max: 8 -> 16",
        "pipeline/sales  unchanged",
    ]
    done = hifi(gateway, "apply", "-f", str(shop)).stdout.splitlines()
    assert done[2] == "destination/orders/shop  changed: parallel_max"
    names = hifi(gateway, "apply", "-f", str(shop), "-o", "name").stdout
    assert names.split() == ORDER


def test_another_secret_is_sealed_and_a_rehearsal_says_nothing_of_what_it_is(
    gateway: RunningGateway, config: FixedConfig, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hifi(gateway, "apply", "-f", str(shop))
    kept = config.configuration.destinations["orders/shop"]
    monkeypatch.setenv("SHOP_TOKEN", "hunter3")
    # Callers who try one secret after another cannot learn which is right.
    assert outcomes(gateway, "-f", str(shop), "--dry-run")["destination/orders/shop"] == "unchanged"
    assert config.configuration.destinations["orders/shop"] == kept
    told = fates(gateway, "-f", str(shop))["destination/orders/shop"]
    assert [*told["changes"]] == ["auth"]
    assert "hunter" not in json.dumps(told)
    now = config.configuration.destinations["orders/shop"]
    assert dict(secrets_of(now.to_fields())) != dict(secrets_of(kept.to_fields()))
    monkeypatch.delenv("SHOP_TOKEN")
    with pytest.raises(UsageError, match=r"shop.yaml:16: auth.token: the variable SHOP_TOKEN is"):
        hifi(gateway, "apply", "-f", str(shop))


def test_one_that_is_refused_is_told_with_its_line_and_the_others_go_on(
    gateway: RunningGateway, config: FixedConfig, shop: Path
) -> None:
    shop.write_text(SHOP.replace("parallel_max: 8", "parallel_max: 999"))
    for more, others in (([], "created"), (["--dry-run"], "unchanged")):
        told = fates(gateway, "-f", str(shop), *more, code=5)
        refused = told.pop("destination/orders/shop")
        assert refused["outcome"] == "refused"
        assert refused["why"].startswith(f"{shop}:15: parallel_max: ")
        assert {fate["outcome"] for fate in told.values()} == {others}
    assert "prices" in config.configuration.tables
    # A dry run cannot check references to new objects of its file, but refuses unknown names.
    shop.write_text(SHOP.replace("stream: orders\nname: shop", "stream: nowhere\nname: shop"))
    for more in (["--dry-run"], []):
        done = hifi(gateway, "apply", "-f", str(shop), *more)
        assert done.exit_code == 5
        assert "destination/nowhere/shop  refused\n" in done.stdout
        assert f"{shop}:11: " in done.stderr
    only = "kind: stream\nname: UPPER\n"
    assert outcomes(gateway, "-f", "-", code=1, stdin=only) == {"stream/UPPER": "refused"}


def test_what_somebody_has_paused_stays_so_unless_the_file_says_otherwise(
    gateway: RunningGateway, config: FixedConfig, shop: Path
) -> None:
    hifi(gateway, "apply", "-f", str(shop))
    hifi(gateway, "destinations", "pause", "orders", "shop")
    assert set(outcomes(gateway, "-f", str(shop)).values()) == {"unchanged"}
    assert config.configuration.destinations["orders/shop"].is_paused
    shop.write_text(SHOP.replace("parallel_max: 8", "parallel_max: 8\nis_paused: false"))
    assert outcomes(gateway, "-f", str(shop))["destination/orders/shop"] == "changed"
    assert not config.configuration.destinations["orders/shop"].is_paused


def test_a_pipeline_that_cannot_run_is_told_as_refused(gateway: RunningGateway, shop: Path) -> None:
    hifi(gateway, "apply", "-f", str(shop))
    kept = gateway.store.config.configuration.pipelines["sales"]
    state = PipelineState(kept.fingerprint, "refused", "there is no column", "/to/0/table")
    gateway.store.states["sales"] = state
    done = hifi(gateway, "apply", "-f", str(shop))
    assert done.exit_code == 5
    assert "pipeline/sales  refused" in done.stdout
    assert f"cannot run: {shop}:9: to.0.table: there is no column" in done.stderr


def test_files_of_a_folder_and_lists_and_json_are_read_too(
    gateway: RunningGateway, tmp_path: Path
) -> None:
    folder = tmp_path / "settings"
    folder.mkdir()
    (folder / "a.json").write_text(
        '[{"kind": "stream", "name": "a"}, {"kind": "stream", "name": "b"}]'
    )
    (folder / "c.yml").write_text("kind: stream\nname: c\n")
    (folder / "notes.txt").write_text("no settings")
    (tmp_path / "d.yaml").write_text("kind: tenant\nname: d\nevents_per_s: 5\n")
    told = outcomes(gateway, "-f", str(folder), str(tmp_path / "d.yaml"))
    assert [*told] == ["tenant/d", "stream/a", "stream/b", "stream/c"]
    assert set(told.values()) == {"created"}


def test_what_is_exported_is_what_is_applied(
    gateway: RunningGateway, config: FixedConfig, shop: Path
) -> None:
    hifi(gateway, "apply", "-f", str(shop))
    before = config.configuration
    written = hifi(gateway, "export").stdout
    assert "hunter2" not in written
    found = {each["name"]: each for each in yaml.safe_load_all(written)}
    assert [*found] == ["prices", "orders", "others", "shop", "sales"]
    # Settings at their defaults are left out.
    assert found["orders"] == {
        "kind": "stream",
        "name": "orders",
        "partition_count": before.streams["orders"].partition_count,
        "key_pointer": "/user",
    }
    assert [*found["shop"]] == ["kind", "stream", "name", "url", "parallel_max", "auth"]
    told = outcomes(gateway, "-f", "-", stdin=written)
    assert len(told) == len(found)
    assert set(told.values()) == {"unchanged"}
    assert config.configuration == before
    one = hifi(gateway, "export", "orders", "-o", "name").stdout.split()
    assert one == ["stream/orders", "destination/orders/shop", "pipeline/sales"]
    assert json.loads(hifi(gateway, "export", "others", "-o", "json").stdout)[0]["name"] == "others"


def test_a_channel_is_applied_exported_and_removed(
    gateway: RunningGateway, config: FixedConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "https://1.1.1.1/hunter2")
    assert outcomes(gateway, "-f", "-", stdin=CHANNEL) == {"channel/ops": "created"}
    assert outcomes(gateway, "-f", "-", stdin=CHANNEL) == {"channel/ops": "unchanged"}
    written = hifi(gateway, "export").stdout
    assert "hunter2" not in written
    found = {each["name"]: each for each in yaml.safe_load_all(written)}
    assert [*found["ops"]] == ["kind", "name", "via", "secret_url", "about"]
    assert set(outcomes(gateway, "-f", "-", stdin=written).values()) == {"unchanged"}
    removed = hifi(gateway, "delete", "-f", "-", "--yes", stdin=CHANNEL).stdout
    assert removed.split() == ["channel/ops", "deleted"]
    assert not config.configuration.channels


def test_what_files_name_is_removed_the_last_first(
    gateway: RunningGateway, config: FixedConfig, shop: Path
) -> None:
    hifi(gateway, "apply", "-f", str(shop))
    asked = hifi(gateway, "delete", "-f", str(shop), stdin="n\n")
    assert asked.exit_code == 1
    assert "Remove these 4?" in asked.stderr
    assert "orders/shop" in config.configuration.destinations
    removed = hifi(gateway, "delete", "-f", str(shop), "--yes").stdout.splitlines()
    assert removed == [f"{name}  deleted" for name in reversed(ORDER)]
    assert not config.configuration.destinations
    again = hifi(gateway, "delete", "-f", str(shop), "--yes")
    assert again.exit_code == 0
    # A second deletion of a table removes its remains in Kafka.
    assert again.stdout.count("absent") == 3
    # A stream that still has a destination is not deleted; the other objects are.
    hifi(gateway, "apply", "-f", str(shop))
    hifi(gateway, "destinations", "put", "orders", "crm", "https://1.1.1.1/")
    left = hifi(gateway, "delete", "-f", str(shop), "--yes")
    assert left.exit_code == 5
    assert "Remove its destinations first: crm" in left.stderr


def test_nothing_more_is_tried_once_nothing_can_be_stored(
    gateway: RunningGateway, shop: Path
) -> None:
    gateway.store.problem = Problem("kafka_unavailable", "Kafka is away.")
    done = hifi(gateway, "apply", "-f", str(shop))
    assert done.exit_code == 1
    assert done.stdout.split() == ["stream/orders", "refused"]
    assert "3 others were not tried." in done.stderr
    with pytest.raises(NoAnswerError):
        hifi(gateway, "apply", "-f", str(shop), "--gateway", "http://127.0.0.1:1")


WRONG = {
    "": "is not an object",
    "name: x": ":1: kind: it is missing; kinds are tenant, stream, table, destination, pipeline,",
    "kind: queue\nname: x": ":1: kind: there is no kind 'queue'; kinds are",
    "kind: [stream]\nname: x": ":1: kind: there is no kind ['stream']; kinds are",
    "kind: key\nname: x": ":1: kind: keys cannot be applied",
    "kind: stream": ":1: name: it is missing",
    "kind: stream\nname: 7": ":2: name: it is missing, or not a text.",
    "kind: destination\nname: x\nurl: https://a.example": ":1: stream: it is missing",
    "kind: stream\nname: x\n---\nkind: stream\nname: x": ":5: stream/x is already at",
    "kind: stream\nname: x\n--- 5": "is not an object",
    "kind: stream\nname: [x": "this is neither YAML nor JSON",
    "kind: stream\nname: x\nname: y": ":3: 'name' is set twice.",
}


@pytest.mark.parametrize("text", WRONG, ids=lambda text: text[:20])
def test_a_file_that_is_wrong_changes_nothing_at_all(
    gateway: RunningGateway, config: FixedConfig, tmp_path: Path, text: str
) -> None:
    before = config.configuration
    (tmp_path / "right.yaml").write_text("kind: stream\nname: right\n")
    (tmp_path / "wrong.yaml").write_text(text)
    with pytest.raises(UsageError) as caught:
        hifi(gateway, "apply", "-f", str(tmp_path / "right.yaml"), str(tmp_path / "wrong.yaml"))
    assert caught.value.exit_code == 2
    assert WRONG[text] in str(caught.value)
    assert config.configuration == before


def test_what_is_no_file_is_told(gateway: RunningGateway, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Name a file: -f FILE"):
        hifi(gateway, "apply")
    with pytest.raises(UsageError, match=r"contains no file named \*\.yaml"):
        hifi(gateway, "delete", "-f", str(tmp_path))
    with pytest.raises(UsageError, match="cannot be read"):
        hifi(gateway, "apply", "-f", str(tmp_path / "nothing.yaml"))
    with pytest.raises(RefusedError, match="404 unknown_stream"):
        hifi(gateway, "export", "nowhere")
