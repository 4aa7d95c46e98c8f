"""``reload`` in specifications: what each runtime and session can do, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from moorage.cli import parse
from moorage.common.model.errors import InvalidInput
from moorage.common.model.kernel import KernelReload
from moorage.common.model.spec import EndpointSpec, SessionSpec

WEB = {"name": "web"}
ADMIN = {"name": "admin"}
DB = {"name": "db", "protocol": "tcp"}
HTTP = {"http": "/-/reload"}


def session(reload: dict[str, Any], **fields: Any) -> SessionSpec:
    return SessionSpec.model_validate({"command": ["x"], "reload": reload} | fields)


@pytest.mark.parametrize(
    ("reload", "fields"),
    [
        ({"signal": "HUP"}, {}),
        ({"signal": "USR1", "acknowledge": "progress"}, {"runtime": "docker", "image": "i"}),
        ({"signal": "HUP"}, {"runtime": "custom:mine"}),
        (HTTP, {"ports": [WEB]}),
        (HTTP, {"ports": [WEB, DB]}),
        (HTTP | {"port": "admin"}, {"ports": [WEB, ADMIN]}),
        (HTTP, {"type": "inference", "probe": {}}),
        (HTTP | {"port": "lab"}, {"runtime": "docker", "image": "i"}),
        (HTTP, {"runtime": "slurm", "ports": [WEB]}),
    ],
)
def test_allowed(reload: dict[str, Any], fields: dict[str, Any]) -> None:
    assert session(reload, **fields).reload is not None


@pytest.mark.parametrize(
    ("reload", "fields", "why"),
    [
        ({}, {}, "either `signal`"),
        ({"signal": "HUP", "http": "/"}, {}, "either `signal`"),
        ({"signal": "TERM"}, {}, "'HUP'"),
        ({"signal": "HUP", "port": "web"}, {"ports": [WEB]}, "`reload.port` applies only to"),
        ({"http": "no slash"}, {"ports": [WEB]}, "pattern"),
        ({"signal": "HUP"}, {"runtime": "slurm"}, "use `reload.http`"),
        ({"signal": "HUP"}, {"runtime": "heappe"}, "use `reload.http`"),
        ({"signal": "HUP"}, {"runtime": "celery"}, "cannot send its programs signals"),
        (HTTP, {}, "no service port for http"),
        (HTTP, {"ports": [DB]}, "no service port for http"),
        (HTTP, {"ports": [WEB, ADMIN]}, "the service ports web, admin"),
        (HTTP | {"port": "db"}, {"ports": [WEB, DB]}, "'db' is not a service port for http"),
        (
            HTTP | {"acknowledge": "progress"},
            {"runtime": "slurm", "ports": [WEB]},
            "jobs of a site",
        ),
        (
            {"signal": "HUP", "acknowledge": "progress"},
            {"env": {"MOORAGE_PROGRESS_FROM": "log"}},
            "use handler",
        ),
        ({"signal": "HUP", "timeout_s": 0}, {}, "greater than 0"),
    ],
)
def test_refused(reload: dict[str, Any], fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError) as caught:
        session(reload, **fields)
    assert why in str(caught.value)


def test_sub_kernels_have_no_port() -> None:
    by_signal = session({"signal": "HUP"}).reload
    by_request = session(HTTP, ports=[WEB]).reload
    assert by_signal is not None
    assert by_request is not None
    assert by_signal.declared(is_main=False) == KernelReload(signal="HUP")
    assert by_request.declared(is_main=True) == KernelReload(path="/-/reload")
    assert by_request.declared(is_main=False) is None


def test_endpoint_without_reload_keeps_its_revision() -> None:
    """If templates gained a field, all endpoints would be rolled out again after an upgrade."""
    fields = {"name": "m", "command": ["x"], "probe": {}}
    assert "reload" not in EndpointSpec.model_validate(fields).template()
    made = EndpointSpec.model_validate(fields | {"reload": HTTP})
    assert made.template()["reload"]["http"] == "/-/reload"
    assert made.session("r").reload == made.reload
    with pytest.raises(ValidationError, match="no service port"):
        EndpointSpec.model_validate(fields | {"reload": HTTP | {"port": "web"}})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ("HUP", {"signal": "HUP"}),
        ("USR1+progress", {"signal": "USR1", "acknowledge": "progress"}),
        ("/-/reload", {"http": "/-/reload"}),
        ("admin:/a/b", {"http": "/a/b", "port": "admin"}),
        ("admin:/a+progress", {"http": "/a", "port": "admin", "acknowledge": "progress"}),
    ],
)
def test_option(text: str | None, expected: dict[str, str] | None) -> None:
    assert parse.reload(text) == expected


@pytest.mark.parametrize("text", ["a/b", "web/-/reload"])
def test_wrong_option(text: str) -> None:
    with pytest.raises(InvalidInput, match="--reload"):
        parse.reload(text)
