"""The OpenAPI document is true: schemathesis sends requests that it allows and forbids."""

from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema_rs
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS

from gateway.app import described
from gateway.problems import CATALOGUE
from gateway.routes import request_ids
from gateway.settings import Settings
from shared.event.topics import stream_topic
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import (
    FakeReceipts,
    RunningGateway,
    a_ledger_row,
    config_with,
    running_gateway,
)

REQUEST_ID = next(request_ids())
JSON, PROBLEM = "application/json", "application/problem+json"
# These read a stream's log, and this gateway has no Kafka: tests/integration/gateway tests them.
READ_THE_LOG = ("/events", "/events:resend", "/spread", "/statements", "/ids")
# Enough for every kind of fault in each operation, and few enough to be quick.
EXAMPLES = 25


@pytest.fixture
def gateway() -> Iterator[RunningGateway]:
    """Start a gateway for each operation, so that none sees the changes of another."""
    publisher, config = FakePublisher([stream_topic("orders")]), config_with("orders")
    kept = FakeReceipts([a_ledger_row(REQUEST_ID)])
    with running_gateway(publisher, config, receipts=kept) as running:
        yield running


def answered(gateway: RunningGateway) -> float:
    """Return how many requests the gateway has answered."""
    return sum(
        sample.value
        for family in gateway.metrics.registry.collect()
        for sample in family.samples
        if sample.name == "hifi_gateway_requests_total"
    )


def operations() -> list[tuple[str, str]]:
    found = described(Settings())["paths"]
    return [(path, method) for path in found for method in found[path] if method != "parameters"]


@pytest.mark.parametrize(("path", "method"), operations())
def test_the_application_does_what_the_document_says(
    gateway: RunningGateway, path: str, method: str
) -> None:
    raw = httpx.get(f"{gateway.url}/openapi.json").json()
    for operation in raw["paths"][path].values():
        for parameter in operation.get("parameters", ()):
            # Use an existing stream mostly, as nearly all answers would be 404 otherwise.
            if parameter["name"] == "stream":
                is_there = [] if path.endswith(READ_THE_LOG) else ["orders", "orders"]
                parameter["schema"] = {"enum": [*is_there, "nobodys"]}
            if parameter["name"] == "table" and "/rows" in path and method == "get":
                # This gateway has no copies of tables: test_table_rows.py tests rows.
                parameter["schema"] = {"enum": ["nobodys"]}
            if parameter["name"] == "request_id":
                parameter["schema"] = {
                    "enum": [REQUEST_ID, REQUEST_ID, next(request_ids()), "none"]
                }
    schema = schemathesis.openapi.from_dict(raw)
    schema.config.update(base_url=gateway.url)
    checks: Any = [
        CHECKS.get_one(name)
        for name in (
            "not_a_server_error",
            "status_code_conformance",
            "content_type_conformance",
            "response_schema_conformance",
        )
    ]

    before = answered(gateway)

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(
        case=schema[path][method.upper()].as_strategy(generation_mode=GenerationMode.POSITIVE)
        | schema[path][method.upper()].as_strategy(generation_mode=GenerationMode.NEGATIVE)
    )
    def run(case: schemathesis.Case[Any]) -> None:
        case.call_and_validate(checks=checks)

    run()
    assert answered(gateway) > before, "no request was sent"


def test_every_status_of_every_path_has_an_example() -> None:
    for path, item in described(Settings())["paths"].items():
        for method, operation in item.items():
            if method == "parameters":
                continue
            for status, response in operation["responses"].items():
                if status >= "400":
                    assert response["content"][PROBLEM]["examples"], (path, method, status)
                elif status != "204":
                    assert "example" in response["content"][JSON], (path, method, status)


def test_every_example_fits_its_schema() -> None:
    whole = described(Settings())
    count = 0
    for item in whole["paths"].values():
        for method, operation in item.items():
            if method == "parameters":
                continue
            bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
            for content in (c for body in bodies for c in body.get("content", {}).values()):
                examples = [one["value"] for one in content.get("examples", {}).values()]
                examples += [content["example"]] if "example" in content else []
                schema = {**content["schema"], "components": whole["components"]}
                for example in examples:
                    jsonschema_rs.validate(schema, example)
                    count += 1
    assert count > 100


def test_what_is_left_out_is_something_that_could_be_said() -> None:
    whole, count = described(Settings()), 0
    for path, item in whole["paths"].items():
        for method, operation in item.items():
            for parameter in operation.get("parameters", ()):
                schema = parameter["schema"]
                if "default" in schema:
                    said = path, method, parameter["name"]
                    fits = jsonschema_rs.is_valid(
                        {**schema, "components": whole["components"]}, schema["default"]
                    )
                    assert fits, said
                    count += 1
    assert count > 10


def test_the_document_says_whose_it_is_and_what_each_operation_is_about() -> None:
    whole = described(Settings())
    assert whole["info"]["license"]["identifier"] == "Apache-2.0"
    assert whole["servers"] == [{"url": "/"}]
    tags = {each["name"] for each in whole["tags"]}
    operations = [it for item in whole["paths"].values() for it in item.values()]
    assert {tag for it in operations for tag in it["tags"]} == tags
    paths = whole["paths"]
    assert paths["/v1/streams/{stream}/dead-letters:redrive"]["post"]["tags"] == ["dead letters"]
    assert paths["/v1/streams/{stream}/events"]["post"]["tags"] == ["events"]
    assert paths["/v1/streams/{stream}"]["put"]["tags"] == ["streams"]
    for path in ("/v1/links", "/v1/pipelines/{pipeline}/try"):
        told = paths[path]["post"]
        assert told["requestBody"]["content"][JSON]["schema"]["properties"], path
        assert "413" in told["responses"], path
    for path in ("/v1/tables/{table}/rows", "/v1/tables/{table}/rows/{key}"):
        assert "text/event-stream" in paths[path]["get"]["responses"]["200"]["content"]


def test_a_path_with_a_slash_behind_it_is_none(gateway: RunningGateway) -> None:
    for method, path in (
        ("POST", "/v1/streams/orders/events/"),
        ("GET", "/v1/streams/"),
        ("GET", "/docs/"),
    ):
        answer = httpx.request(method, f"{gateway.url}{path}", json=[{}])
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
        assert answer.headers["content-type"] == PROBLEM
    there_is_none = httpx.get(f"{gateway.url}/v1/streams/none/destinations")
    assert (there_is_none.status_code, there_is_none.json()["code"]) == (404, "unknown_stream")


def test_every_code_of_the_catalogue_is_described() -> None:
    codes = {
        code
        for item in described(Settings())["paths"].values()
        for method, operation in item.items()
        if method != "parameters"
        for response in operation["responses"].values()
        for code in response.get("content", {})
        .get("application/problem+json", {})
        .get("examples", {})
    }
    # `not_found` is for unknown paths, which are not in the document.
    assert codes == set(CATALOGUE) - {"not_found"}


def test_the_document_is_a_document() -> None:
    schemathesis.openapi.from_dict(described(Settings(auth="keys"))).validate()
