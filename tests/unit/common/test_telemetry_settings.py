"""Trace settings: OpenTelemetry's standard variables, and when traces are off."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from moorage.common.aio.clock import SystemClock
from moorage.common.config.loader import load
from moorage.common.config.telemetry_settings import TelemetrySettings
from moorage.common.model.errors import ConfigError
from moorage.server.tracing import tracer_for

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
URL = "http://127.0.0.1:4318"
NO_FILE = Path(os.devnull)


@pytest.mark.parametrize(
    ("env", "target"),
    [
        ({}, None),
        ({ENDPOINT: ""}, None),
        ({ENDPOINT: URL}, f"{URL}/v1/traces"),
        ({ENDPOINT: f"{URL}/otlp/"}, f"{URL}/otlp/v1/traces"),
        ({ENDPOINT: URL, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://t/x"}, "https://t/x"),
        ({ENDPOINT: URL, "OTEL_SDK_DISABLED": "true"}, None),
        ({ENDPOINT: URL, "OTEL_SDK_DISABLED": "false"}, f"{URL}/v1/traces"),
        ({ENDPOINT: URL, "OTEL_TRACES_EXPORTER": "none"}, None),
        ({ENDPOINT: URL, "OTEL_TRACES_SAMPLER": "always_off"}, None),
        (
            {ENDPOINT: URL, "MOORAGE_TELEMETRY__ENDPOINT": "http://other:1"},
            "http://other:1/v1/traces",
        ),
    ],
)
def test_where_traces_go(env: dict[str, str], target: str | None) -> None:
    assert load(NO_FILE, env, {}).settings.telemetry.target == target


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        (ENDPOINT, "127.0.0.1:4318", "write it like http://127.0.0.1:4318"),
        (ENDPOINT, "grpc://a:4317", "write it like http://127.0.0.1:4318"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "'http/protobuf'"),
        ("OTEL_TRACES_SAMPLER", "often", "'parentbased_always_on'"),
        ("OTEL_TRACES_SAMPLER_ARG", "1.5", "less than or equal to 1"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "secret", "write it like name=value"),
    ],
)
def test_errors_name_the_variable(variable: str, value: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(NO_FILE, {variable: value}, {})
    assert f"from env {variable}" in str(caught.value)
    assert said in str(caught.value)
    assert "secret" not in str(caught.value) or "headers" not in variable.lower()


def test_headers_are_decoded_and_secret() -> None:
    loaded = load(NO_FILE, {"OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer%20a,x=1"}, {})
    assert loaded.settings.telemetry.header_fields == {"authorization": "Bearer a", "x": "1"}
    assert ("telemetry.headers", "***", "env OTEL_EXPORTER_OTLP_HEADERS") in loaded.redacted()


def test_nothing_is_made_while_off() -> None:
    assert tracer_for(TelemetrySettings(), "proxy", SystemClock()) is None


WITHOUT = """
import sys
sys.modules["opentelemetry"] = None
from moorage.common.aio.clock import SystemClock
from moorage.common.config.telemetry_settings import TelemetrySettings
from moorage.common.model.errors import ConfigError
from moorage.server.tracing import tracer_for
try:
    tracer_for(TelemetrySettings(endpoint="http://a"), "proxy", SystemClock())
except ConfigError as error:
    print(error, error.next_step)
"""


def test_missing_packages_are_named() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, env=os.environ
    )
    assert "requires the package opentelemetry" in done.stdout, done.stderr
    assert "pip install 'moorage[otel]'" in done.stdout
