"""Settings for OpenTelemetry traces, which are optional, and the standard variables that also set
them."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from moorage.common.telemetry.spans import Sampler

STANDARD_VARIABLES = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": "telemetry.endpoint",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "telemetry.traces_endpoint",
    "OTEL_EXPORTER_OTLP_HEADERS": "telemetry.headers",
    "OTEL_EXPORTER_OTLP_PROTOCOL": "telemetry.protocol",
    "OTEL_SERVICE_NAME": "telemetry.service_name",
    "OTEL_TRACES_SAMPLER": "telemetry.sampler",
    "OTEL_TRACES_SAMPLER_ARG": "telemetry.sampler_arg",
    "OTEL_SDK_DISABLED": "telemetry.disabled",
    "OTEL_TRACES_EXPORTER": "telemetry.exporter",
}
"""OpenTelemetry's variables, and the corresponding settings. MOORAGE_TELEMETRY__* takes
precedence."""


def _check_url(value: str) -> str:
    try:
        parts = urlsplit(value)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False

    if not valid or parts.query or parts.fragment:
        raise ValueError(
            f"{value!r} is not a URL of OTLP over HTTP: write it like http://127.0.0.1:4318"
        )

    return value


def _check_headers(value: str) -> str:
    for pair in filter(None, value.split(",")):
        name, equals, _ = pair.partition("=")
        if not equals or not name.strip():
            raise ValueError("it is not a list of headers: write it like name=value,other=value")
    return value


Url = Annotated[str, AfterValidator(_check_url)]


class TelemetrySettings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    endpoint: Url | None = None
    """Collector of OpenTelemetry traces, OTLP over HTTP, such as ``http://127.0.0.1:4318``;
    ``/v1/traces`` is appended. None means no traces. Also OTEL_EXPORTER_OTLP_ENDPOINT."""
    traces_endpoint: Url | None = None
    """Complete URL for traces, to which nothing is appended. Also
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT."""
    headers: Annotated[str, AfterValidator(_check_headers)] = Field("", repr=False)
    """Headers for the collector, such as ``authorization=Bearer%20TOKEN,tenant=a``. Also
    OTEL_EXPORTER_OTLP_HEADERS, ``headers_file``."""
    protocol: Literal["http/protobuf"] = "http/protobuf"
    """Protocol used with the collector. Also OTEL_EXPORTER_OTLP_PROTOCOL."""
    service_name: str = ""
    """Service name in traces. Empty means moorage-manager, moorage-agent or moorage-proxy. Also
    OTEL_SERVICE_NAME."""
    sampler: Sampler = "parentbased_always_on"
    """Sampler, by its OpenTelemetry name. ``parentbased_``: follows the client's decision, if there
    is one. All components need the same sampler. Also OTEL_TRACES_SAMPLER."""
    sampler_arg: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Share of traces that samplers with ``traceidratio`` record. Also OTEL_TRACES_SAMPLER_ARG."""
    accept_traceparent: bool = True
    """Whether to continue clients' traces, by their ``traceparent`` header. Otherwise each request
    starts a separate trace, and engines do not see the client's header."""
    disabled: bool = False
    """Whether to disable traces regardless of other settings. Also OTEL_SDK_DISABLED."""
    exporter: Literal["otlp", "none"] = "otlp"
    """``none``: no traces. Also OTEL_TRACES_EXPORTER."""

    @property
    def target(self) -> str | None:
        """The URL that receives traces, or None if they are off."""
        if self.disabled or self.exporter == "none" or self.sampler == "always_off":
            return None
        if self.traces_endpoint is not None:
            return self.traces_endpoint
        return None if self.endpoint is None else self.endpoint.rstrip("/") + "/v1/traces"

    @property
    def header_fields(self) -> dict[str, str]:
        pairs = (pair.partition("=") for pair in self.headers.split(",") if pair)
        return {name.strip().lower(): unquote(value.strip()) for name, _, value in pairs}
