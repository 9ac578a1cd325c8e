"""The settings of traces, Hifi's and OpenTelemetry's, and which traceparents ask for spans."""

import os

import pytest

from gateway.settings import Settings
from shared.runtime.settings import read_settings
from shared.runtime.tracing.settings import Tracing, read_tracing
from shared.runtime.tracing.spans import SpanParent, sampled_parent

TRACE, SPAN = "a" * 32, "b" * 16


@pytest.mark.parametrize(
    ("traceparent", "parent"),
    [
        (f"00-{TRACE}-{SPAN}-01", SpanParent(TRACE, SPAN)),
        (f"00-{TRACE}-{SPAN}-03", SpanParent(TRACE, SPAN)),
        (f"00-{TRACE}-{SPAN}-00", None),
        (f"00-{TRACE}-{SPAN}-xx", None),
        ("of somebody else", None),
        ("", None),
        (None, None),
    ],
)
def test_only_a_trace_that_is_recorded_has_spans(
    traceparent: str | None, parent: SpanParent | None
) -> None:
    assert sampled_parent(traceparent) == parent


@pytest.fixture(autouse=True)
def _no_collector_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(("HIFI_OTLP_", "OTEL_")):
            monkeypatch.delenv(name)


def read(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Tracing | None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return read_tracing()


def test_without_an_endpoint_nothing_sends_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(monkeypatch, HIFI_OTLP_RATIO="1", OTEL_TRACES_SAMPLER="always_on") is None


COLLECTOR = "http://otel:4318"
BASE = {"OTEL_EXPORTER_OTLP_ENDPOINT": COLLECTOR}


@pytest.mark.parametrize(
    ("variables", "url"),
    [
        (BASE, f"{COLLECTOR}/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a/b/?c=d"}, "http://a/b/v1/traces?c=d"),
        (BASE | {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://b/all?a=1"}, "http://b/all?a=1"),
        (BASE | {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": ""}, f"{COLLECTOR}/v1/traces"),
        (BASE | {"HIFI_OTLP_ENDPOINT": "http://own:1/"}, "http://own:1/v1/traces"),
        (BASE | {"HIFI_OTLP_ENDPOINT": ""}, f"{COLLECTOR}/v1/traces"),
        (BASE | {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, f"{COLLECTOR}/v1/traces"),
        (
            BASE
            | {
                "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
                "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json",
            },
            f"{COLLECTOR}/v1/traces",
        ),
        # Their address is not Hifi's.
        (
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "HIFI_OTLP_ENDPOINT": "http://own"},
            "http://own/v1/traces",
        ),
    ],
)
def test_spans_go_where_the_specification_says_unless_hifi_has_its_own_address(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], url: str
) -> None:
    tracing = read(monkeypatch, **variables)
    assert tracing is not None
    assert tracing.url == url


@pytest.mark.parametrize(
    "variables",
    [
        {"OTEL_SDK_DISABLED": "True"},
        {"OTEL_SDK_DISABLED": "true", "HIFI_OTLP_ENDPOINT": "http://own"},
        {"OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_TRACES_SAMPLER": "always_off"},
    ],
)
def test_opentelemetrys_switches_turn_spans_off(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    assert read(monkeypatch, **BASE, OTEL_SDK_DISABLED="no") is not None
    assert read(monkeypatch, **variables) is None


def test_headers_and_sampler_of_another_collector_stay_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A platform's headers may have a key, and a sampler that Hifi would refuse."""
    platform = {"OTEL_EXPORTER_OTLP_HEADERS": "api-key=theirs", "OTEL_TRACES_SAMPLER": "always_on"}
    own = {"HIFI_OTLP_ENDPOINT": "http://own", "HIFI_OTLP_RATIO": "0.5"}
    tracing = read(monkeypatch, **BASE, **platform, **own)
    assert tracing is not None
    assert (tracing.url, tracing.headers) == ("http://own/v1/traces", {})
    assert tracing.ratio == 0.5


def test_variables_for_other_programs_keep_no_process_from_starting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    others = {
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
        "OTEL_TRACES_EXPORTER": "zipkin",
        "OTEL_TRACES_SAMPLER": "xray",
        "OTEL_RESOURCE_ATTRIBUTES": "nothing",
    }
    assert read(monkeypatch, **others) is None


@pytest.mark.parametrize(
    ("sampler", "variables", "ratio"),
    [
        ("", {}, 0),
        ("parentbased_always_on", {}, 1),
        ("parentbased_always_off", {}, 0),
        ("parentbased_traceidratio", {}, 1),
        ("ParentBased_TraceIdRatio", {"OTEL_TRACES_SAMPLER_ARG": "0.2"}, 0.2),
        ("parentbased_always_on", {"HIFI_OTLP_RATIO": "0.5"}, 0.5),
        # It is not looked at.
        ("xray", {"HIFI_OTLP_RATIO": "0"}, 0),
    ],
)
def test_the_sampler_is_the_ratio(
    monkeypatch: pytest.MonkeyPatch, sampler: str, variables: dict[str, str], ratio: float
) -> None:
    tracing = read(monkeypatch, **BASE, OTEL_TRACES_SAMPLER=sampler, **variables)
    assert tracing is not None
    assert tracing.ratio == ratio


@pytest.mark.parametrize(
    ("variables", "headers"),
    [
        (
            {"OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Basic%20a%3D%2C, x-team = blue,"},
            {"authorization": "Basic a=,", "x-team": "blue"},
        ),
        (
            {"OTEL_EXPORTER_OTLP_HEADERS": "a=one", "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "b=two"},
            {"b": "two"},
        ),
        (
            {"OTEL_EXPORTER_OTLP_HEADERS": "a=one", "HIFI_OTLP_HEADERS": "c=100%25"},
            {"c": "100%25"},
        ),
    ],
)
def test_headers_are_decoded_as_the_specification_says_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], headers: dict[str, str]
) -> None:
    tracing = read(monkeypatch, **BASE, **variables)
    assert tracing is not None
    assert tracing.headers == headers
    assert not [value for value in headers.values() if value in repr(tracing)]


@pytest.mark.parametrize(
    ("attributes", "name", "resource"),
    [
        ("", "", {}),
        ("", "shop events", {"service.name": "shop events"}),
        (
            "service.name=a,service.namespace=s%20t,service.instance.id=7",
            "",
            {"service.name": "a", "service.namespace": "s t", "service.instance.id": "7"},
        ),
        ("service.name=a,b=c", "d", {"service.name": "d", "b": "c"}),
    ],
)
def test_the_operator_names_the_service_and_its_place(
    monkeypatch: pytest.MonkeyPatch, attributes: str, name: str, resource: dict[str, str]
) -> None:
    tracing = read(monkeypatch, **BASE, OTEL_RESOURCE_ATTRIBUTES=attributes, OTEL_SERVICE_NAME=name)
    assert tracing is not None
    assert tracing.resource == resource


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HIFI_OTLP_ENDPOINT", "collector:4318"),
        ("HIFI_OTLP_ENDPOINT", "http://[secret"),
        ("HIFI_OTLP_HEADERS", "secret"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "collector:4318"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "secret"),
        ("OTEL_RESOURCE_ATTRIBUTES", "=secret"),
    ],
)
def test_a_wrong_variable_is_named_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str
) -> None:
    said = refused(monkeypatch, capsys, name, value)
    assert said.startswith(f"hifi gateway: {name} is not ")
    assert value not in said


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("HIFI_OTLP_RATIO", "7", "is '7', which is not a number from 0 to 1."),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "is 'grpc', but Hifi sends spans by HTTP"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc", "is 'grpc', but Hifi sends spans by HTTP"),
        ("OTEL_TRACES_EXPORTER", "zipkin", "is 'zipkin', but Hifi sends spans by otlp only"),
        ("OTEL_TRACES_SAMPLER", "always_on", "is 'always_on', but in Hifi the sender's"),
        # A line break would begin another header.
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=b%0D%0Ac", "has a character that no header may have."),
        ("HIFI_OTLP_HEADERS", "a b=c", "has a character that no header may have."),
    ],
)
def test_what_hifi_cannot_do_is_refused_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    value: str,
    says: str,
) -> None:
    said = refused(monkeypatch, capsys, name, value)
    assert said.startswith(f"hifi gateway: {name} {says}")
    assert said.count("\n") == 1


def test_the_argument_of_a_sampler_is_a_share(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    said = refused(monkeypatch, capsys, "OTEL_TRACES_SAMPLER_ARG", "nan")
    assert said.startswith("hifi gateway: OTEL_TRACES_SAMPLER_ARG is 'nan', which is not a number")


def refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str
) -> str:
    """Return the complaint of a gateway that does not start with this variable."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", COLLECTOR)
    monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        read_settings(Settings, program="hifi gateway")
    assert ended.value.code == 2
    return capsys.readouterr().err
