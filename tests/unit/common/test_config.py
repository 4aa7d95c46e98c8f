"""Configuration loader: sources, precedence and error messages."""

from __future__ import annotations

import re
import stat
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from moorage.common.aio.clock import ManualClock
from moorage.common.config import loader
from moorage.common.config.loader import check_shared, link_token, load, resolve_home
from moorage.common.config.settings import ManagerSettings, ProxySettings, Settings
from moorage.common.model.errors import ConfigError, StartupError

FILE = """
[manager]
listen = "127.0.0.1:1001"
suspect_after_s = 12
[agent]
labels = { zone = "a" }
"""


@pytest.fixture(autouse=True)
def no_system_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "SYSTEM_FILE", tmp_path / "etc" / "moorage.toml")


def written(tmp_path: Path, text: str = FILE) -> Path:
    path = tmp_path / "given.toml"
    path.write_text(text)
    return path


def value(settings: Settings, name: str) -> Any:
    section, _, key = name.partition(".")
    return getattr(getattr(settings, section), key)


@pytest.mark.parametrize(
    ("env", "flags", "name", "expected", "origin"),
    [
        ({}, {}, "manager.link_listen", "127.0.0.1:8701", "default"),
        ({}, {}, "manager.listen", "127.0.0.1:1001", "file {file}"),
        ({}, {}, "manager.suspect_after_s", 12.0, "file {file}"),
        ({}, {}, "agent.labels", {"zone": "a"}, "file {file}"),
        (
            {"MOORAGE_MANAGER__LISTEN": "127.0.0.1:1002"},
            {},
            "manager.listen",
            "127.0.0.1:1002",
            "env MOORAGE_MANAGER__LISTEN",
        ),
        (
            {"MOORAGE_MANAGER__LISTEN": "127.0.0.1:1002"},
            {"manager.listen": "127.0.0.1:1003"},
            "manager.listen",
            "127.0.0.1:1003",
            "flag --set",
        ),
        (
            {},
            {"manager.postgres_bin": "/opt/pg"},
            "manager.postgres_bin",
            Path("/opt/pg"),
            "flag --set",
        ),
        ({"MOORAGE_HOME": "/srv/f"}, {}, "common.home", Path("/srv/f"), "env MOORAGE_HOME"),
        (
            {"MOORAGE_COMMON__HOME": "/srv/f"},
            {},
            "common.home",
            Path("/srv/f"),
            "env MOORAGE_COMMON__HOME",
        ),
        (
            {"MOORAGE_MANAGER__MAX_BODY_BYTES": "77"},
            {},
            "manager.max_body_bytes",
            77,
            "env MOORAGE_MANAGER__MAX_BODY_BYTES",
        ),
        (
            {"MOORAGE_AGENT__STOP_KERNELS_ON_EXIT": "true"},
            {},
            "agent.stop_kernels_on_exit",
            True,
            "env MOORAGE_AGENT__STOP_KERNELS_ON_EXIT",
        ),
        (
            {"MOORAGE_AGENT__LABELS": '{"zone": "b"}'},
            {},
            "agent.labels",
            {"zone": "b"},
            "env MOORAGE_AGENT__LABELS",
        ),
        ({"MOORAGE_MANAGER__DSN": ""}, {}, "manager.dsn", None, "default"),
        ({"MOORAGE_API_KEY": "ours to ignore"}, {}, "manager.dsn", None, "default"),
    ],
)
def test_precedence_of_origins(
    tmp_path: Path,
    env: dict[str, str],
    flags: dict[str, str],
    name: str,
    expected: Any,
    origin: str,
) -> None:
    file = written(tmp_path)
    loaded = load(file, env, flags)
    assert value(loaded.settings, name) == expected
    assert loaded.origins[name] == origin.format(file=file)


def test_every_setting_has_an_origin(tmp_path: Path) -> None:
    loaded = load(None, {"MOORAGE_HOME": str(tmp_path)}, {})
    names = {f"{section}.{key}" for section, part in loaded.settings for key, _ in part}
    assert set(loaded.origins) == names
    assert {origin for name, origin in loaded.origins.items() if name != "common.home"} == {
        "default"
    }


@pytest.mark.parametrize(
    ("present", "found"),
    [
        (["named", "home", "etc"], "named"),
        (["home", "etc"], "home"),
        (["etc"], "etc"),
        ([], None),
    ],
)
def test_search_order_of_the_file(tmp_path: Path, present: list[str], found: str | None) -> None:
    paths = {
        "named": tmp_path / "named.toml",
        "home": tmp_path / "home" / "moorage.toml",
        "etc": tmp_path / "etc" / "moorage.toml",
    }
    for which in present:
        paths[which].parent.mkdir(exist_ok=True)
        paths[which].write_text("[proxy]\nid = 'here'\n")

    env = {"MOORAGE_HOME": str(tmp_path / "home")}
    if "named" in present:
        env["MOORAGE_CONFIG"] = str(paths["named"])

    assert load(None, env, {}).origins["proxy.id"] == (
        f"file {paths[found]}" if found else "default"
    )


@pytest.mark.parametrize(
    ("text", "env", "flags", "message"),
    [
        (
            "[manager]\nlisen = 'x'",
            {},
            {},
            r"unknown setting 'manager.lisen' from file .*given.toml \(did you mean manager.listen\?\)",
        ),
        (
            "[agent]\ndsn = 'x'",
            {},
            {},
            r"unknown setting 'agent.dsn' .* \(did you mean manager.dsn\?\)",
        ),
        ("[manger]\ndsn = 'x'", {}, {}, r"unknown setting 'manger' .* \(did you mean manager\?\)"),
        ("[xyzzy]", {}, {}, r"\(sections are common, manager, agent, proxy, etcd, telemetry\)"),
        ("[agent]\nqqq = 1", {}, {}, r"\[agent\] has id, manager, address"),
        ("manager = 1", {}, {}, r"'manager' in .* must be a section"),
        ("[manager", {}, {}, r"given.toml is not valid TOML: Expected '\]'"),
        (
            "",
            {"MOORAGE_MANAGER__LISEN": "x"},
            {},
            r"'manager.lisen' from env MOORAGE_MANAGER__LISEN \(did you mean manager.listen\?\)",
        ),
        (
            "",
            {"MOORAGE_MANAGER_DSN": "x"},
            {},
            r"MOORAGE_MANAGER_DSN is not a setting \(did you mean MOORAGE_MANAGER__DSN\?\)",
        ),
        ("", {}, {"manager.lissten": "x"}, r"'manager.lissten' from flag --set \(did you mean"),
        (
            "[manager]\nlisten = 'here'",
            {},
            {},
            r"manager.listen = 'here' from file .*: 'here' is not an address: write host:port",
        ),
        (
            "",
            {"MOORAGE_MANAGER__SUSPECT_AFTER_S": "-1"},
            {},
            r"manager.suspect_after_s = '-1' from env MOORAGE_MANAGER__SUSPECT_AFTER_S: .*greater than 0",
        ),
        (
            "",
            {},
            {"common.log_format": "xml"},
            r"common.log_format = 'xml' from flag --set: .*'text' or 'json'",
        ),
        (
            "",
            {"MOORAGE_AGENT__LABELS": "zone=a"},
            {},
            r"agent.labels = 'zone=a' from env .* is not JSON",
        ),
        (
            "",
            {"MOORAGE_AGENT__DOCKER_MOUNTS": "/a"},
            {},
            r"docker_mounts = '/a' .* is not JSON.*\[",
        ),
        ("", {"MOORAGE_AGENT__DOCKER_MOUNTS": '["a"]'}, {}, r"'a' is not an absolute path"),
        ("", {"MOORAGE_AGENT__DOCKER": "tcp://node:2375"}, {}, r"write auto, off, or unix:///path"),
        ("[agent]\ndocker_shm = 'big'", {}, {}, r"'big' is not a size"),
        ("[agent]\ndocker_user = 'root'", {}, {}, r"agent.docker_user = 'root' .*pattern"),
        (
            "",
            {"MOORAGE_AGENT__LABELS": '{"a": [1]}'},
            {},
            r"agent.labels = {'a': \[1\]} .*valid string",
        ),
        (
            "",
            {"MOORAGE_MANAGER__DSN_FILE": "/no/such/file"},
            {},
            r"cannot read manager.dsn from /no/such/file: No such file",
        ),
        (
            "",
            {"MOORAGE_HOME": "/a", "MOORAGE_COMMON__HOME": "/b"},
            {},
            r"common.home is set twice, by env MOORAGE_COMMON__HOME and by env MOORAGE_HOME",
        ),
        ("[manager]\ndsn = 7", {}, {}, r"manager.dsn = \*\*\* from file"),
    ],
)
def test_errors_name_the_setting(
    tmp_path: Path, text: str, env: dict[str, str], flags: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load(written(tmp_path, text), env, flags)


def test_all_invalid_values_are_reported_together(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"manager.listen = 'x'.*; proxy.listen = 'y'"):
        load(written(tmp_path, "[manager]\nlisten='x'\n[proxy]\nlisten='y'"), {}, {})


def test_explicit_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"cannot read the configuration file .*nowhere.toml: No such file"
    ):
        load(tmp_path / "nowhere.toml", {}, {})


def test_secrets_are_read_from_files_and_redacted(tmp_path: Path) -> None:
    (tmp_path / "dsn.txt").write_text("postgresql://u:pw@h/d\n")
    (tmp_path / "token.txt").write_text("hush\n")
    file = written(tmp_path, "[manager]\ndsn_file = 'dsn.txt'\n")
    loaded = load(file, {"MOORAGE_COMMON__LINK_TOKEN_FILE": str(tmp_path / "token.txt")}, {})
    assert loaded.settings.manager.dsn == "postgresql://u:pw@h/d"
    assert loaded.settings.common.link_token == "hush"
    rows = {name: (shown, origin) for name, shown, origin in loaded.redacted()}
    assert rows["manager.dsn"] == ("***", f"file {file}")
    assert rows["common.link_token"] == ("***", "env MOORAGE_COMMON__LINK_TOKEN_FILE")
    assert rows["manager.listen"] == ('"127.0.0.1:8700"', "default")
    assert "hush" not in repr(loaded)
    assert "pw" not in repr(loaded)


def test_unset_secret_is_shown_as_unset(tmp_path: Path) -> None:
    rows = load(None, {"MOORAGE_HOME": str(tmp_path)}, {}).redacted()
    assert ("manager.dsn", "null", "default") in rows


def test_state_directory_is_private(tmp_path: Path) -> None:
    settings = load(None, {"MOORAGE_HOME": str(tmp_path / "a" / "b")}, {}).settings
    home = resolve_home(settings)
    assert home == tmp_path / "a" / "b"
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert resolve_home(settings) == home


def test_unusable_state_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    settings = load(None, {"MOORAGE_HOME": str(tmp_path / "file" / "home")}, {}).settings
    with pytest.raises(StartupError, match=r"common.home = .*home' is not usable: Not a directory"):
        resolve_home(settings)


def test_link_token_is_generated_once_and_private(tmp_path: Path) -> None:
    settings = Settings()
    token = link_token(settings, tmp_path, ManualClock(seed=1))
    assert len(token) >= 24
    assert link_token(settings, tmp_path, ManualClock(seed=2)) == token
    assert stat.S_IMODE((tmp_path / "link-token").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["link-token"]


def test_configured_link_token_is_not_stored(tmp_path: Path) -> None:
    settings = load(
        None, {"MOORAGE_HOME": str(tmp_path), "MOORAGE_COMMON__LINK_TOKEN": "given"}, {}
    ).settings
    assert link_token(settings, tmp_path, ManualClock()) == "given"
    assert not (tmp_path / "link-token").exists()


def test_empty_link_token_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link-token").write_text("\n")
    with pytest.raises(ConfigError, match=r"should contain common.link_token but is empty"):
        link_token(Settings(), tmp_path, ManualClock())


def test_lists_in_file_and_environment(tmp_path: Path) -> None:
    text = '[agent]\ndocker_mounts = ["/models", "/data"]\ndocker_images = ["a/*"]'
    settings = load(
        written(tmp_path, text), {"MOORAGE_AGENT__DOCKER_IMAGES": '["b", "c"]'}, {}
    ).settings
    assert settings.agent.docker_mounts == ("/models", "/data")
    assert settings.agent.docker_images == ("b", "c")


# -- shared settings -------------------------------------------------------------------------------


def test_shared_settings_rank_below_the_file(tmp_path: Path) -> None:
    shared = {"manager.suspect_after_s": "99", "agent.stop_kernels_on_exit": "true"}
    loaded = load(written(tmp_path), {}, {}, shared)
    assert loaded.settings.manager.suspect_after_s == 12
    assert loaded.settings.agent.stop_kernels_on_exit
    assert (loaded.origins["agent.stop_kernels_on_exit"], loaded.ignored) == ("etcd", ())


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("proxy.metring", "false", "did you mean proxy.metering"),
        ("proxy.workers", "99", "less than or equal to 15"),
        ("proxy.plane", "simple", "is not JSON"),
        ("proxy.plane", '"quick"', "'asyncio' or 'simple'"),
        ("proxy.of_tomorrow", "1", "unknown setting 'proxy.of_tomorrow' from etcd"),
        ("agent.id", '"a"', "differs from host to host"),
        ("agent.sites", "{}", "may contain one"),
        ("manager.dsn", '"postgres://x"', "is a secret"),
    ],
)
def test_shared_settings_that_are_not_valid_are_ignored(name: str, text: str, why: str) -> None:
    loaded = load(None, {}, {}, {name: text, "agent.stop_kernels_on_exit": "true"})
    assert loaded.settings.agent.stop_kernels_on_exit
    assert [why in reason for reason in loaded.ignored] == [True]
    with (
        pytest.raises(ConfigError, match=re.escape(why)) if why != "is not JSON" else nullcontext()
    ):
        check_shared({name: text.strip('"') if text.startswith('"') else text})


def test_a_wrong_setting_of_the_host_is_an_error_whatever_is_shared() -> None:
    with pytest.raises(ConfigError, match=r"proxy\.workers"):
        load(
            None,
            {"MOORAGE_PROXY__WORKERS": "99"},
            {},
            {"proxy.plane": '"quick"', "proxy.workers": "1"},
        )


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("*", "*"),
        ("https://chat.example.com", "https://chat.example.com"),
        ("HTTP://LocalHost:3000", "http://localhost:3000"),
        ("http://[::1]:3000", "http://[::1]:3000"),
        ("chrome-extension://abcdef", "chrome-extension://abcdef"),
    ],
)
def test_origins_are_kept_as_browsers_send_them(given: str, kept: str) -> None:
    assert ProxySettings(cors_origins=(given,)).cors_origins == (kept,)
    assert ManagerSettings(cors_origins=(given,)).cors_origins == (kept,)


@pytest.mark.parametrize(
    "given",
    [
        "chat.example.com",
        "https://chat.example.com/",
        "https://chat.example.com:443",
        "http://localhost:80",
        "https://*.example.com",
        "https://a@chat.example.com",
        "https://chat.example.com:x",
        "https://bücher.example",
        "null",
        "",
    ],
)
def test_what_no_browser_sends_as_an_origin_is_refused(given: str) -> None:
    with pytest.raises(ValidationError, match="is not an origin"):
        ProxySettings(cors_origins=(given,))


@pytest.mark.parametrize("given", ["euro", "EU", "eur", "EUR "])
def test_a_currency_is_a_code_of_iso_4217(given: str) -> None:
    assert (ManagerSettings().currency, ManagerSettings(currency="EUR").currency) == ("", "EUR")
    with pytest.raises(ValidationError, match="currency"):
        ManagerSettings(currency=given)
