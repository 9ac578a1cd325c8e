"""Reads the settings of traces, HIFI_OTLP_*, which are the same for every process."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from shared.runtime.setup_error import SetupError

if TYPE_CHECKING:
    from shared.runtime.tracing.exporter import SpanExporter


def _collector(endpoint: str) -> str:
    try:
        url = urlsplit(endpoint)
        is_one = url.scheme in {"http", "https"} and bool(url.hostname) and url.port != 0
    except ValueError:
        is_one = False
    if endpoint and not is_one:
        raise SetupError(
            "HIFI_OTLP_ENDPOINT is not the address of a collector such as http://localhost:4318."
        )
    return endpoint


def _pairs(headers: str) -> str:
    if any("=" not in pair for pair in headers.split(",") if pair.strip()):
        raise SetupError(
            "HIFI_OTLP_HEADERS is not a list such as authorization=Bearer abc,x-team=a."
        )
    return headers


class OtlpSettings(BaseSettings):
    """The settings of traces; without an endpoint no spans are sent."""

    model_config = SettingsConfigDict(
        env_prefix="HIFI_OTLP_", frozen=True, hide_input_in_errors=True
    )

    endpoint: Annotated[str, AfterValidator(_collector)] = ""
    # The traced share of requests without a traceparent; a traceparent decides for its request.
    ratio: Annotated[float, Field(ge=0, le=1)] = 0.0
    # They often include a key of the collector's operator.
    headers: Annotated[str, AfterValidator(_pairs)] = Field(default="", repr=False)

    def exporter(
        self, service: str, *, count: Callable[[str, int], None] | None = None
    ) -> "SpanExporter | None":
        """Return an exporter of a process's spans; None without an endpoint."""
        if not self.endpoint:
            return None
        # Commands read settings, too, and start without HTTP.
        from shared.runtime.tracing.exporter import SpanExporter  # noqa: PLC0415

        pairs = [pair.partition("=") for pair in self.headers.split(",") if pair.strip()]
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        return SpanExporter(self.endpoint, service, headers=headers, count=count)
