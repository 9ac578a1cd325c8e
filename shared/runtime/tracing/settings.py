"""Reads the settings of traces, which are the same for every process: HIFI_OTLP_*, else OTEL_*."""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from shared.runtime.setup_error import SetupError

if TYPE_CHECKING:
    from shared.runtime.tracing.exporter import SpanExporter

# Collectors that take protobuf by HTTP take JSON at the same address.
_PROTOCOLS = ("http/protobuf", "http/json")
# The samplers that follow a traceparent, as Hifi does, with the traced share of requests without
# one; None means OTEL_TRACES_SAMPLER_ARG.
_SHARES = {
    "parentbased_always_on": 1.0,
    "parentbased_always_off": 0.0,
    "parentbased_traceidratio": None,
}
_NO_SPANS = "always_off"
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER = re.compile(r"[\t -~]*")


class OtelSettings(BaseSettings):
    """OpenTelemetry's own variables, as in its specification: an empty one counts as unset."""

    model_config = SettingsConfigDict(
        env_prefix="OTEL_", frozen=True, hide_input_in_errors=True, env_ignore_empty=True
    )

    sdk_disabled: str = ""
    service_name: str = ""
    resource_attributes: str = ""
    traces_exporter: str = "otlp"
    traces_sampler: str = ""
    traces_sampler_arg: str = "1"
    exporter_otlp_endpoint: str = ""
    exporter_otlp_traces_endpoint: str = ""
    exporter_otlp_headers: str = Field(default="", repr=False)
    exporter_otlp_traces_headers: str = Field(default="", repr=False)
    exporter_otlp_protocol: str = ""
    exporter_otlp_traces_protocol: str = ""

    @property
    def is_disabled(self) -> bool:
        return self.sdk_disabled.lower() == "true"

    @property
    def url(self) -> str:
        """The address for spans; "" if there is none."""
        variable, address = self._of_traces("endpoint")
        exporter = self.traces_exporter.lower()
        if not address or exporter == "none":
            return ""
        if exporter != "otlp":
            raise SetupError(
                f"OTEL_TRACES_EXPORTER is {exporter!r}, but Hifi sends spans by otlp only: set it"
                " to otlp or none."
            )
        self._check_protocol()
        return _url(variable, address, is_base=not self.exporter_otlp_traces_endpoint)

    @property
    def headers(self) -> dict[str, str]:
        return _headers(*self._of_traces("headers"), read=unquote)

    @property
    def resource(self) -> dict[str, str]:
        """The attributes of the process; OTEL_SERVICE_NAME goes before one of that name."""
        variable, example = "OTEL_RESOURCE_ATTRIBUTES", "service.namespace=shop,host.name=a"
        named = {"service.name": self.service_name} if self.service_name else {}
        return _pairs(variable, self.resource_attributes, read=unquote, example=example) | named

    @property
    def ratio(self) -> float | None:
        """The share that the sampler traces; None if it makes no spans at all."""
        sampler = self.traces_sampler.lower()
        if sampler == _NO_SPANS:
            return None
        if sampler and sampler not in _SHARES:
            raise SetupError(
                f"OTEL_TRACES_SAMPLER is {sampler!r}, but in Hifi the sender's traceparent"
                f" decides: set it to {', '.join(_SHARES)} or {_NO_SPANS}."
            )
        share = _SHARES.get(sampler, 0.0)
        return (
            _ratio("OTEL_TRACES_SAMPLER_ARG", self.traces_sampler_arg) if share is None else share
        )

    def _check_protocol(self) -> None:
        variable, protocol = self._of_traces("protocol")
        if protocol and protocol.lower() not in _PROTOCOLS:
            raise SetupError(
                f"{variable} is {protocol!r}, but Hifi sends spans by HTTP: set it to"
                f" {_PROTOCOLS[0]} and the address to the collector's port for HTTP (4318), or set"
                " OTEL_SDK_DISABLED=true."
            )

    def _of_traces(self, what: str) -> tuple[str, str]:
        """Return the variable for traces if it is set, else the one for all signals; its value."""
        fields = (f"exporter_otlp_traces_{what}", f"exporter_otlp_{what}")
        name = fields[0] if getattr(self, fields[0]) else fields[1]
        return f"OTEL_{name.upper()}", getattr(self, name)


class OtlpSettings(BaseSettings):
    """Hifi's own variables, which go before OpenTelemetry's."""

    model_config = SettingsConfigDict(
        env_prefix="HIFI_OTLP_", frozen=True, hide_input_in_errors=True, env_ignore_empty=True
    )

    endpoint: str = ""
    ratio: str = ""
    # They often include a key of the collector's operator.
    headers: str = Field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Tracing:
    """Where spans go, and which requests have some."""

    url: str
    # The traced share of requests without a traceparent; a traceparent decides for its request.
    ratio: float
    headers: Mapping[str, str] = field(repr=False)
    # Attributes of the process that its operator has given.
    resource: Mapping[str, str]

    def exporter(
        self, service: str, *, count: Callable[[str, int], None] | None = None
    ) -> "SpanExporter":
        """Return an exporter of the spans of a process."""
        # Commands read settings, too, and start without HTTP.
        from shared.runtime.tracing.exporter import SpanExporter  # noqa: PLC0415

        resource = {"service.name": service, **self.resource}
        return SpanExporter(self.url, resource, headers=self.headers, count=count)


def read_tracing() -> Tracing | None:
    """Return how a process sends spans, or None if it sends none; raise SetupError for a mistake.

    OpenTelemetry's variables may be meant for other programs of the machine, so mistakes in them
    count only where Hifi uses them.
    """
    own, otel = OtlpSettings(), OtelSettings()
    url = _url("HIFI_OTLP_ENDPOINT", own.endpoint, is_base=True) if own.endpoint else ""
    ratio = _ratio("HIFI_OTLP_RATIO", own.ratio) if own.ratio else None
    headers = _headers("HIFI_OTLP_HEADERS", own.headers, read=str)
    if otel.is_disabled:
        return None
    if url:
        # A platform's headers may have the key of another collector, and its sampler is for that.
        return Tracing(url, ratio or 0.0, headers, otel.resource)
    if not (url := otel.url):
        return None
    ratio = otel.ratio if ratio is None else ratio
    return None if ratio is None else Tracing(url, ratio, headers or otel.headers, otel.resource)


def _url(variable: str, address: str, *, is_base: bool) -> str:
    """Return the address for spans: a base address has them at /v1/traces below it."""
    try:
        url = urlsplit(address)
        is_one = url.scheme in {"http", "https"} and bool(url.hostname) and url.port != 0
    except ValueError:
        is_one = False
    if not is_one:
        raise SetupError(
            f"{variable} is not the address of a collector such as http://localhost:4318."
        )
    return url._replace(path=f"{url.path.rstrip('/')}/v1/traces").geturl() if is_base else address


def _ratio(variable: str, text: str) -> float:
    with suppress(ValueError):
        if 0 <= (ratio := float(text)) <= 1:
            return ratio
    raise SetupError(f"{variable} is {text!r}, which is not a number from 0 to 1.")


def _headers(variable: str, text: str, *, read: Callable[[str], str]) -> dict[str, str]:
    example = "authorization=Bearer abc,x-team=a"
    pairs = _pairs(variable, text, read=read, example=example).items()
    if not all(_HEADER_NAME.fullmatch(name) and _HEADER.fullmatch(value) for name, value in pairs):
        raise SetupError(f"{variable} has a character that no header may have.")
    return {name.lower(): value for name, value in pairs}


def _pairs(variable: str, text: str, *, read: Callable[[str], str], example: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
    if not all(name.strip() and sign for name, sign, _ in pairs):
        raise SetupError(f"{variable} is not a list such as {example}.")
    return {read(name.strip()): read(value.strip()) for name, _, value in pairs}
