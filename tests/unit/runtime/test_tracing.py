"""The settings of traces, and which traceparents ask for spans."""

import pytest

from shared.runtime.settings import read_settings
from shared.runtime.tracing.settings import OtlpSettings
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


def test_without_an_endpoint_nothing_sends_spans() -> None:
    assert OtlpSettings().exporter("a") is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HIFI_OTLP_ENDPOINT", "collector:4318"),
        ("HIFI_OTLP_ENDPOINT", "http://[secret"),
        ("HIFI_OTLP_HEADERS", "secret"),
    ],
)
def test_a_wrong_variable_is_named_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        read_settings(OtlpSettings, program="hifi gateway")
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(f"hifi gateway: {name} is not ")
    assert value not in said
