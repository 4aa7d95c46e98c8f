"""A proxy's id, from its settings or its state directory.

Host names are not unique (containers, images), so a generated id ends with random characters. The
file with the id identifies the proxy across restarts, even if its host is renamed. Ids from a
release that used only the host name and port are kept.
"""

from __future__ import annotations

import json
import os
import re
import socket
from pathlib import Path

from moorage.common.aio.clock import Clock
from moorage.common.config.settings import ProxySettings
from moorage.common.link.identity import identity_file
from moorage.common.model.addresses import split_address
from moorage.common.model.errors import ConfigError


def proxy_directory(home: Path, proxy: str) -> Path:
    """The state directory of the proxy with this id."""
    return home / re.sub(r"[^A-Za-z0-9._-]", "_", f"proxy-{proxy}")


def proxy_id(settings: ProxySettings, home: Path, clock: Clock) -> str:
    """The id of the proxy with the state directory ``home``. It is written there at the first
    start, unless the settings contain an id. Raises ``ConfigError`` if the file cannot be read, and
    ``OSError``."""
    if settings.id:
        return settings.id

    port = split_address(settings.listen)[1]
    file = home / f"proxy-id-{port}.json"
    if (known := _load(file)) is not None:
        return known

    plain = f"{socket.gethostname()}-{port}"
    has_plain = identity_file(home, "proxy", plain).load() or proxy_directory(home, plain).is_dir()

    # The last digits of this version of UUIDs are random.
    made = plain if has_plain else f"{plain}-{clock.new_id()[-8:]}"
    _store(file, made)
    stored = _load(file)  # another process may have written it first
    assert stored is not None

    return stored


def _load(file: Path) -> str | None:
    try:
        return str(json.loads(file.read_text())["id"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"the id of the proxy in {file} cannot be read: {error!r}",
            next_step=(
                "restore that file, or set proxy.id; if you remove it, this becomes another proxy"
            ),
        ) from error


def _store(file: Path, made: str) -> None:
    """Write the file durably, unless it exists."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = file.with_suffix(f".{os.getpid()}")
    with temporary.open("w") as out:
        json.dump({"id": made}, out)
        out.flush()
        os.fsync(out.fileno())

    try:
        os.link(temporary, file)
    except FileExistsError:
        pass
    finally:
        temporary.unlink()
