"""Links without TLS on one host. They use the manager's Unix socket, which proves its identity."""

from __future__ import annotations

from pathlib import Path

from moorage.common.local import proof
from moorage.common.local.paths import leads_here, socket_path
from moorage.common.model.addresses import split_address
from moorage.common.model.errors import ConfigError


def proven_target(home: Path, target: str) -> str:
    """Target that gRPC dials, without TLS, to reach the manager at ``target`` (host:port). On this
    host, it is the socket of the manager with the state directory ``home``.

    Raises ``ConfigError`` if no manager listens there, or if the socket could belong to another
    user.
    """
    host, port = split_address(target)
    if not leads_here(host):
        return target

    path = socket_path(home, "link", port)
    try:
        proof.connect(str(path), timeout_s=0).close()
    except BlockingIOError:
        raise ConfigError(f"the manager at {path} accepts no more connections") from None
    except OSError as error:
        raise ConfigError(
            f"no manager listens at {path} ({error.strerror}), and the link token is not sent to "
            f"{target}: without TLS, a listener there cannot prove that it is a manager",
            next_step=(
                "start the manager, or upgrade it if it is of an older release; if it has a "
                "different state directory, set common.manager_home to it, or common.link_tls to "
                "on there and join it; to trust everybody on this machine, set common.link_tls "
                "to off here"
            ),
        ) from error

    return f"unix:{proof.short_path(str(path.parent), path.name)}"
