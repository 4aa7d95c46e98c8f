"""Configuration loader: settings from flags, environment and file, each with its origin.

The precedence is flags, environment, file, etcd, default.
"""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from pydantic import ValidationError

from moorage.common.aio.clock import Clock
from moorage.common.config.settings import AgentSettings, Settings
from moorage.common.config.sharing import why_local
from moorage.common.config.sites import SECRET, redacted, site_agents
from moorage.common.config.telemetry_settings import STANDARD_VARIABLES
from moorage.common.model.errors import ConfigError, StartupError

# Redacted in listings and messages. Each can also be read from a file: ``dsn_file`` in the
# configuration file, MOORAGE_MANAGER__DSN_FILE in the environment.
SECRETS = frozenset(
    {
        "common.link_token",
        "manager.admin_key",
        "manager.ca_secret",
        "manager.dsn",
        "manager.oidc_client_secret",
        "manager.smtp_password",
        "agent.heappe_secret",
        "etcd.password",
        "telemetry.headers",
    }
)

SYSTEM_FILE = Path("/etc/moorage/moorage.toml")


def _own_first(kind: type[Any]) -> dict[str, Any]:
    """A section's fields, with nested ones last so that errors name the section's own fields
    first."""
    fields: dict[str, Any] = kind.model_fields
    return dict(sorted(fields.items(), key=lambda field: field[0] not in kind.__annotations__))


_KEYS: dict[str, dict[str, Any]] = {
    section: _own_first(type(getattr(Settings(), section))) for section in Settings.model_fields
}
_ALL_KEYS = [f"{section}.{key}" for section, keys in _KEYS.items() for key in keys]
_DEFAULT = "default"
_SITES = "agent.sites"
_SECRET_FILE = f"agent.{SECRET}_file"


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """``origins`` maps every ``section.key`` to ``default``, ``etcd``, ``file PATH``, ``env NAME``
    or ``flag --x``. ``sites``: the settings of each site's agent, by name; empty for a single
    agent. ``ignored``: why settings in etcd are ignored."""

    settings: Settings
    origins: dict[str, str]
    sites: dict[str, AgentSettings]
    ignored: tuple[str, ...] = ()

    def redacted(self) -> list[tuple[str, str, str]]:
        """Return every setting as (``section.key``, JSON value, origin), with secrets as
        ``***``."""
        rows = []
        for name, origin in self.origins.items():
            section, _, key = name.partition(".")
            value = getattr(getattr(self.settings, section), key)
            value = redacted(value) if name == _SITES else value
            hidden = name in SECRETS and value is not None
            rows.append((name, "***" if hidden else json.dumps(value, default=str), origin))

        return rows


@dataclass(frozen=True, slots=True)
class _Given:
    value: Any
    origin: str


def load(
    file: Path | None,
    env: Mapping[str, str],
    flags: Mapping[str, str],
    shared: Mapping[str, str] | None = None,
    *,
    options: Mapping[str, str] | None = None,
) -> LoadedSettings:
    """Load all settings.

    ``flags`` maps ``section.key`` to values; ``options`` maps it to the option that set it, if that
    was not ``--set``. Environment variables are MOORAGE_SECTION__KEY, and MOORAGE_HOME for
    ``common.home``; empty variables are ignored. The file is ``file``, otherwise $MOORAGE_CONFIG,
    otherwise moorage.toml in the state directory, otherwise /etc/moorage/moorage.toml; the last two
    are optional. ``shared``: the JSON text of settings in etcd; invalid ones are ignored.

    Raises:
        ConfigError: with the setting, the value, its origin and the allowed values.
    """
    upper = _from_env(env) | _from_flags(flags, options or {})
    home = upper.get("common.home", _Given(Settings().common.home, _DEFAULT)).value
    path = _find_file(file, env, Path(home))
    upper = (_from_file(path) if path else {}) | upper
    secret_file = upper.get(_SECRET_FILE)
    if secret_file is not None and secret_file.origin != upper[f"agent.{SECRET}"].origin:
        del upper[_SECRET_FILE]  # the secret is the alternative source

    lower, ignored = _from_shared(shared or {})
    while True:
        given = lower | upper
        try:
            settings = _validate(given)
            break
        except ValidationError as error:
            invalid = {".".join(map(str, problem["loc"][:2])) for problem in error.errors()}
            if own := invalid - (lower.keys() - upper.keys()):
                problems = [p for p in error.errors() if ".".join(map(str, p["loc"][:2])) in own]
                raise ConfigError(
                    "; ".join(_explain(problem, given) for problem in problems)
                ) from None

            ignored += [_explain(problem, given) for problem in error.errors()]
            lower = {name: item for name, item in lower.items() if name not in invalid}

    return LoadedSettings(
        settings,
        {name: given[name].origin if name in given else _DEFAULT for name in _ALL_KEYS},
        site_agents(settings.agent),
        tuple(ignored),
    )


def check_shared(values: Mapping[str, Any]) -> dict[str, Any]:
    """Validate the settings that all daemons share. Returns them as JSON values.

    Raises ``ConfigError``, also for settings that only the host itself may decide."""
    given: dict[str, _Given] = {}
    for name, value in values.items():
        _check_shareable(name)
        given[name] = _Given(_decode(name, value, "etcd"), "etcd")

    try:
        settings = _validate(given)
    except ValidationError as error:
        raise ConfigError(
            "; ".join(_explain(problem, given) for problem in error.errors())
        ) from None

    dumped = settings.model_dump(mode="json")
    return {name: dumped[name.partition(".")[0]][name.partition(".")[2]] for name in values}


def _validate(given: Mapping[str, _Given]) -> Settings:
    sections: dict[str, dict[str, Any]] = {section: {} for section in _KEYS}
    for name, item in given.items():
        section, _, key = name.partition(".")
        sections[section][key] = item.value
    return Settings.model_validate(sections)


def resolve_home(settings: Settings) -> Path:
    """Return the absolute state directory, created with mode 700 if absent. Raises
    ``StartupError``."""
    home = Path(os.path.abspath(settings.common.home.expanduser()))
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StartupError(
            f"common.home = {str(home)!r} is not usable: {error.strerror}",
            next_step="set MOORAGE_HOME to a writable directory",
        ) from error

    return home


def link_token(settings: Settings, home: Path, clock: Clock) -> str:
    """Return the configured link token, or the one stored in ``home``, which is generated at first
    use."""
    return settings.common.link_token or load_or_create_secret(
        "common.link_token", home / "link-token", clock
    )


def load_or_create_secret(name: str, path: Path, clock: Clock) -> str:
    """Return the secret in ``path``, which is generated at first use. ``name``: the setting, for
    error messages."""
    if not path.exists():
        mine = path.with_name(f".{path.name}.{clock.new_id()}")
        with os.fdopen(os.open(mine, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"{clock.secret()}\n")
            file.flush()
            os.fsync(file.fileno())  # data encrypted with it may be committed soon

        try:
            # unlike rename, this keeps a secret that another process created first
            os.link(mine, path)
        except FileExistsError:
            pass
        finally:
            mine.unlink()

    return _read_secret(name, path)


# -- sources ---------------------------------------------------------------------------------------


def _from_flags(flags: Mapping[str, str], options: Mapping[str, str]) -> dict[str, _Given]:
    given: dict[str, _Given] = {}
    for name, value in flags.items():
        origin = f"flag {options.get(name, '--set')}"
        _check_name(name, origin)
        if name in SECRETS and (name != "manager.dsn" or _has_password(value)):
            raise ConfigError(
                f"{name} is a secret, and every user of this machine can read arguments",
                next_step=f"put it into a file, and set {name}_file in the configuration file or "
                f"MOORAGE_{name.replace('.', '__').upper()}_FILE in the environment",
            )

        if name == _SITES and f'"{SECRET}"' in value:
            raise ConfigError(
                f"{_SITES} contains a {SECRET}, and every user of this machine can read arguments",
                next_step=f"put it into a file, and set {SECRET}_file instead",
            )

        _add(given, name, value=value, origin=origin, base=Path.cwd())

    return given


def _has_password(dsn: str) -> bool:
    try:
        parts = urlsplit(dsn)
        return parts.password is not None or "password" in parse_qs(parts.query)
    except ValueError:
        return False  # its own check explains the error


def _from_env(env: Mapping[str, str]) -> dict[str, _Given]:
    given: dict[str, _Given] = {}
    single = {f"MOORAGE_{name.replace('.', '_').upper()}": name for name in _ALL_KEYS}
    for variable, value in sorted(env.items()):
        if not variable.startswith("MOORAGE_") or not value:
            continue

        if variable == "MOORAGE_HOME":
            name = "common.home"
        elif "__" in variable:
            name = variable.removeprefix("MOORAGE_").lower().replace("__", ".", 1)
        elif variable in single:
            right = f"MOORAGE_{single[variable].replace('.', '__').upper()}"
            raise ConfigError(f"{variable} is not a setting", next_step=f"did you mean {right}?")
        else:
            continue  # variables that the command line reads, and those that agents set for kernels

        _add(given, name, value=value, origin=f"env {variable}", base=Path.cwd())

    for variable, name in STANDARD_VARIABLES.items():
        if env.get(variable) and name not in given:
            _add(given, name, value=env[variable], origin=f"env {variable}", base=Path.cwd())

    return given


def _find_file(file: Path | None, env: Mapping[str, str], home: Path) -> Path | None:
    named = file or (Path(env["MOORAGE_CONFIG"]) if env.get("MOORAGE_CONFIG") else None)
    if named:
        return named.expanduser()
    candidates = (home.expanduser() / "moorage.toml", SYSTEM_FILE)
    return next((path for path in candidates if path.exists()), None)


def _from_file(path: Path) -> dict[str, _Given]:
    try:
        document = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"cannot read the configuration file {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error

    given: dict[str, _Given] = {}
    for section, keys in document.items():
        if section not in _KEYS:
            _check_name(section, f"file {path}")

        if not isinstance(keys, dict):
            raise ConfigError(
                f"{section!r} in {path} must be a section",
                next_step=f"write [{section}] on its own line",
            )

        for key, value in keys.items():
            _add(given, f"{section}.{key}", value=value, origin=f"file {path}", base=path.parent)

    return given


def _from_shared(shared: Mapping[str, str]) -> tuple[dict[str, _Given], list[str]]:
    """Settings in etcd, and the reasons why some are ignored."""
    given: dict[str, _Given] = {}
    ignored: list[str] = []
    for name, text in sorted(shared.items()):
        try:
            _check_shareable(name)
            given[name] = _Given(json.loads(text), "etcd")
        except ConfigError as error:
            ignored.append(str(error))
        except ValueError:
            ignored.append(f"{name} = {text!r} from etcd is not JSON (write text in double quotes)")

    return given, ignored


def _check_shareable(name: str) -> None:
    """Raise ``ConfigError`` for settings that only the host itself may decide."""
    _check_name(name, "etcd")
    if reason := why_local(name):
        raise ConfigError(
            f"{name} cannot be set in etcd: it {reason}",
            next_step="set it in the configuration file or in the environment of each host",
        )


def _add(given: dict[str, _Given], name: str, value: Any, origin: str, *, base: Path) -> None:
    """Validate and add one value. Secrets in files are read from paths relative to ``base``."""
    if (secret := name.removesuffix("_file")) in SECRETS and secret != name:
        path = base / Path(str(value)).expanduser()
        if name in _ALL_KEYS:
            given[name] = _Given(str(path.absolute()), origin)

        name = secret
        value = _read_secret(secret, path)

    _check_name(name, origin)
    value = _decode(name, value, origin)
    if name == _SITES:
        value = _read_site_secrets(value, base)

    if name in given and given[name].value != value:
        raise ConfigError(
            f"{name} is set twice, by {given[name].origin} and by {origin}",
            next_step="remove one of them",
        )

    given[name] = _Given(value, origin)


def _read_site_secrets(sites: Any, base: Path) -> Any:
    """Replace ``heappe_secret_file`` of each site. Values that are not tables of tables are left
    for validation to reject."""
    if not isinstance(sites, dict) or not all(isinstance(site, dict) for site in sites.values()):
        return sites

    read = {}
    for name, site in sites.items():
        given = {key: value for key, value in site.items() if key != f"{SECRET}_file"}
        if len(given) != len(site):
            if SECRET in given:
                raise ConfigError(
                    f"{_SITES}.{name} has both {SECRET} and {SECRET}_file",
                    next_step="remove one of them",
                )

            path = base / Path(str(site[f"{SECRET}_file"])).expanduser()
            given[SECRET] = _read_secret(f"{_SITES}.{name}.{SECRET}", path)
            given[f"{SECRET}_file"] = str(path.absolute())

        read[name] = given

    return read


def _read_secret(name: str, path: Path) -> str:
    try:
        text = path.read_text().strip()
    except OSError as error:
        raise ConfigError(f"cannot read {name} from {path}: {error.strerror}") from error
    if not text:
        raise ConfigError(f"{path} should contain {name} but is empty")
    return text


def _decode(name: str, value: Any, origin: str) -> Any:
    """Decode a table or list that is written as JSON text."""
    section, _, key = name.partition(".")
    default = _KEYS[section][key].get_default()
    if isinstance(value, str) and isinstance(default, dict | tuple):
        example = '{"zone": "a"}' if isinstance(default, dict) else '["a", "b"]'
        try:
            return json.loads(value)
        except ValueError:
            raise ConfigError(
                f"{name} = {value!r} from {origin} is not JSON", next_step=f"write it as {example}"
            ) from None

    return value


# -- error messages --------------------------------------------------------------------------------


def _check_name(name: str, origin: str) -> None:
    if name in _ALL_KEYS:
        return

    section, _, key = name.partition(".")
    if section in _KEYS:
        same_section = [
            f"{section}.{match}" for match in difflib.get_close_matches(key, _KEYS[section])
        ]
        elsewhere = [other for other in _ALL_KEYS if other.partition(".")[2] == key]
        close = same_section + elsewhere
        choice = f"[{section}] has {', '.join(_KEYS[section])}"
    else:
        close = [
            match + (f".{key}" if key else "")
            for match in difflib.get_close_matches(section, _KEYS)
        ]
        choice = f"sections are {', '.join(_KEYS)}"

    raise ConfigError(
        f"unknown setting {name!r} from {origin}",
        next_step=f"did you mean {close[0]}?" if close else choice,
    )


def _explain(problem: Any, given: Mapping[str, _Given]) -> str:
    name = ".".join(str(part) for part in problem["loc"][:2])
    item = given[name]
    value = "***" if name in SECRETS else repr(item.value)
    if name == _SITES:  # the value may contain secrets
        name = ".".join(str(part) for part in problem["loc"][:3])
        value = type(problem["input"]).__name__
    return f"{name} = {value} from {item.origin}: {problem['msg'].removeprefix('Value error, ')}"
