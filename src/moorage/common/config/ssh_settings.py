"""Settings for SSH and SFTP."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from moorage.common.config.fields import Address


class SshSettings(BaseModel):
    ssh_listen: Address | None = None
    """Address of SSH and SFTP, such as 0.0.0.0:2222. None disables them. Requires the extra
    ``moorage[ssh]``."""
    ssh_login_timeout_s: Annotated[float, Field(gt=0, le=600)] = 20
    """Time limit for an SSH client to log in."""
    ssh_max_connections: Annotated[int, Field(ge=1)] = 500
    """Maximum number of SSH connections."""
    ssh_max_logins_per_address: Annotated[int, Field(ge=1)] = 10
    """Maximum number of SSH connections from one address that have not logged in yet."""


class FileServerSettings(BaseModel):
    file_servers_per_user: Annotated[int, Field(ge=1)] = 32
    """Maximum number of sessions whose files a user has open over SFTP, per manager. This is
    separate from session quotas: SFTP uses no slots."""
