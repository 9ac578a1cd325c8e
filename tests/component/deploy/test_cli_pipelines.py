"""`hifi pipelines` against a gateway: put, show, list, delete; and files without a pipeline."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deploy.cli.commands import app
from deploy.cli.control.dead import time_ms
from deploy.cli.control.pipeline_files import read_document
from gateway.settings import Settings
from shared.config.configuration import Configuration, Replacement, Stream
from shared.config.pipeline_state import PipelineState
from shared.runtime.secret_box import new_key
from shared.runtime.setup_error import UsageError
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, RunningGateway, running_gateway

SALES = """\
# What is sold where.
name: sales
from: {stream: orders}
schema: country STRING, day STRING
steps:
  - where: "country IN ('NO', 'DE')"
  - select:
      country: country
      at: hifi.event_time
to:
  - stream: eu
tests:
  - given: [{country: NO, day: 2026-01-01, at: 12:30, n: 010, yes: on}]
    expect: [{country: NO}]
"""


@pytest.fixture
def config() -> FixedConfig:
    return FixedConfig(Configuration(streams={name: Stream(name) for name in ("orders", "eu")}))


@pytest.fixture
def gateway(config: FixedConfig) -> Iterator[RunningGateway]:
    with running_gateway(FakePublisher([]), config, Settings(auth="off")) as running:
        yield running


@pytest.fixture
def sales(tmp_path: Path) -> Path:
    file = tmp_path / "sales.yaml"
    file.write_text(SALES)
    return file


def hifi(gateway: RunningGateway, *arguments: str, stdin: str = "") -> tuple[str, str]:
    result = CliRunner().invoke(
        app, ["pipelines", *arguments], env={"HIFI_GATEWAY": gateway.url}, input=stdin
    )
    if isinstance(result.exception, UsageError):
        raise result.exception
    assert result.exit_code == 0, result.stderr
    return result.stdout, result.stderr


def test_a_pipeline_is_put_shown_listed_and_deleted(
    gateway: RunningGateway, config: FixedConfig, sales: Path
) -> None:
    from_file = read_document(sales).pipeline()
    gateway.store.states["sales"] = PipelineState(from_file.fingerprint, "running")
    assert "sales is running." in hifi(gateway, "put", str(sales))[1]
    assert config.configuration.pipelines["sales"] == from_file
    shown = json.loads(hifi(gateway, "show", "sales")[0])
    assert shown["steps"][1]["select"] == {"country": "country", "at": "hifi.event_time"}
    assert shown["state"]["standing"] == "running"
    listed, _ = hifi(gateway, "list")
    assert listed.splitlines()[-1].split() == ["sales", "orders", "eu", "running"]
    assert json.loads(hifi(gateway, "list", "--json")[0])[0]["writes"] == ["eu"]
    gateway.store.states["sales"] = PipelineState(
        from_file.fingerprint, "running", executors_ended=2, executor_ended_at_ms=7
    )
    assert "running (has ended its executor 2 times)" in " ".join(hifi(gateway, "list")[0].split())
    state = json.loads(hifi(gateway, "get", "sales")[0])["state"]
    assert (state["executors_ended"], state["executor_ended_at_ms"]) == (2, 7)
    asked = CliRunner().invoke(
        app, ["pipelines", "delete", "sales"], env={"HIFI_GATEWAY": gateway.url}, input="n\n"
    )
    assert asked.exit_code == 1
    assert "New events of orders are no longer processed" in asked.stderr
    assert "sales is removed." in hifi(gateway, "delete", "sales", "--yes")[1]
    assert config.configuration.pipelines == {}


def test_what_is_being_built_in_its_place_is_shown_with_how_far_it_is(
    gateway: RunningGateway, config: FixedConfig, sales: Path
) -> None:
    runs = read_document(sales).pipeline()
    built = replace(runs, generation=2)
    config.configuration = replace(
        config.configuration,
        pipelines={"sales": runs},
        replacements={"sales": Replacement("sales", 2, built)},
    )
    gateway.store.states |= {
        "sales": PipelineState(runs.fingerprint, "running"),
        built.title: PipelineState(built.fingerprint, "replacing", behind=1_204),
    }
    shown = json.loads(hifi(gateway, "show", "sales")[0])
    assert shown["generation"] == 1
    assert shown["state"]["replacement"]["behind"] == 1_204


def test_where_it_cannot_begin_is_said_with_what_to_do(
    gateway: RunningGateway, sales: Path
) -> None:
    gateway.store.begins["orders"] = [1_600_000]
    sales.write_text(
        SALES.replace("from: {stream: orders", "from: {start: 1000000, stream: orders")
    )
    said = " ".join(hifi(gateway, "put", str(sales))[1].split())
    assert "Kafka has deleted events of orders" in said
    found = re.search(r"`hifi restore --stream orders --from (\S+) --to (\S+) --to-stream", said)
    assert found is not None
    assert [time_ms("", found[1]), time_ms("", found[2])] == [1_000_000, 1_600_000]
    assert "Kafka has deleted" not in hifi(gateway, "put", str(sales))[1]


def test_what_is_refused_is_told_with_its_line(gateway: RunningGateway, sales: Path) -> None:
    fingerprint = read_document(sales).pipeline().fingerprint
    why = "results are not as expected:\nto eu, event 1:"
    refused = PipelineState(fingerprint, "refused", why, "/steps/1/select/at")
    gateway.store.states["sales"] = refused
    with pytest.raises(UsageError) as caught:
        hifi(gateway, "put", str(sales))
    assert str(caught.value) == (
        "It is stored, but cannot run:\n"
        f"{sales}:9: steps.1.select.at: results are not as expected:\n"
        "to eu, event 1:"
    )
    assert "refused: results are not as expected:" in hifi(gateway, "list")[0]


def test_what_the_gateway_refuses_is_one_sentence(gateway: RunningGateway, tmp_path: Path) -> None:
    file = tmp_path / "sales.yaml"
    file.write_text(SALES.replace("stream: eu", "stream: nowhere"))
    with pytest.raises(UsageError, match="404 unknown_stream: There is no stream 'nowhere'"):
        hifi(gateway, "put", str(file))


def test_a_document_may_be_json_and_come_from_standard_input(
    gateway: RunningGateway, config: FixedConfig, sales: Path
) -> None:
    document = json.dumps(read_document(sales).fields)
    pipeline = read_document(sales).pipeline()
    gateway.store.states["sales"] = PipelineState(pipeline.fingerprint, "running")
    hifi(gateway, "put", "-", stdin=document)
    assert config.configuration.pipelines["sales"] == pipeline


def test_of_yaml_there_is_what_json_has_and_nothing_more(sales: Path) -> None:
    given = read_document(sales).fields["tests"][0]["given"]
    assert given == [{"country": "NO", "day": "2026-01-01", "at": "12:30", "n": "010", "yes": "on"}]


ROWS = """\
name: rows
from: {stream: orders}
schema: id STRING
to:
  - database:
      url: postgres://hifi@93.184.216.34/shop
      password: {env: SHOP_PASSWORD}
      table: sales
      key: [id]
"""


def test_a_password_comes_from_the_environment_and_goes_nowhere_else(
    config: FixedConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "rows.yaml"
    file.write_text(ROWS)
    assert read_document(file).pipeline().to_database is not None
    settings = Settings.model_validate({"auth": "off", "HIFI_SECRET_KEYS": new_key()})
    with running_gateway(FakePublisher([]), config, settings) as gateway:
        with pytest.raises(UsageError, match=r"rows.yaml:7: to.0.database.password: the variable"):
            hifi(gateway, "put", str(file))
        monkeypatch.setenv("SHOP_PASSWORD", "very secret")
        assert "but not checked yet" in "".join(hifi(gateway, "put", str(file)))
        kept = config.configuration.pipelines["rows"]
        gateway.store.states["rows"] = PipelineState(kept.fingerprint, "running", "no table")
        shown, _ = hifi(gateway, "show", "rows")
        assert "very secret" not in shown
        assert json.loads(shown)["state"]["why"] == "no table"
        assert hifi(gateway, "list")[0].splitlines()[-1].endswith("running: no table")


PLAIN = "name: x\nfrom: {stream: a}\n"
WRONG = {
    "": "is not an object: begin with `name: ...`.",
    "- a": "is not an object",
    "name: [x": ":1: this is neither YAML nor JSON:",
    '{"name": ]': ":1: this is neither YAML nor JSON:",
    "\tname: x": ":1: this is neither YAML nor JSON:",
    "name: x\nname: y": ":2: 'name' is set twice.",
    "a: &x [*x]": ":1: *x has no equivalent in JSON.",
    "a: &x 1\nb: *x": ":2: *x has no equivalent in JSON.",
    "<<: {a: 1}": "name: it is missing.",
    "? [a]\n: 1": "a member's name must be a text.",
    "a: !!python/object/apply:os.system [id]": "has no equivalent in JSON.",
    "a: !!binary aGk=": "has no equivalent in JSON.",
    "a: !!set {x}": "has no equivalent in JSON.",
    "a: " + "[" * 60 + "]" * 60: "nested deeper than 50 levels.",
    "a: b\n---\nc: d": ":3: a second document begins here, but only one",
    "a: \x07": "neither YAML nor JSON",
    "a: " + "x" * 262_144: "262,144 are the limit.",
    "from: {stream: a}\nto: [{stream: b}]": "name: it is missing.",
    "name: x\nfrom: {stream: A}": ":2: from.stream: 'A' is not a name;",
    PLAIN + "to:\n- stream: b\n  whn: y": ":5: to.0.whn: there is no such field.",
    PLAIN + "to: [{stream: b}]\nstep: []": ":4: step: there is no such field.",
    PLAIN + "to: [{stream: b}]\nsteps:\n- wher: y": ":5: steps.0: there is no step 'wher';",
}


@pytest.mark.parametrize("text", WRONG, ids=lambda text: text[:20])
def test_a_file_that_is_no_pipeline_is_told_in_one_sentence(tmp_path: Path, text: str) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_document(file).pipeline()
    assert WRONG[text] in str(caught.value)
    assert str(caught.value).startswith(str(file))
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read_are_told_too(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_document(tmp_path / "nowhere.yaml")
    with pytest.raises(UsageError, match="cannot be read"):
        read_document(tmp_path)
    file = tmp_path / "bytes"
    file.write_bytes(b"name: \xff")
    with pytest.raises(UsageError, match="is not a text: byte 6 is not UTF-8"):
        read_document(file)
