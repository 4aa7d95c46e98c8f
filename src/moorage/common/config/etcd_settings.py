"""Settings for etcd, which is optional."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from moorage.common.config.etcd_address import check_etcd_address


class EtcdSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    address: Annotated[str, AfterValidator(check_etcd_address)] = ""
    """Endpoints of the etcd in which this process registers and which holds the shared settings:
    ``etcd://one:2379,two:2379``, or ``etcds://`` with TLS. Empty means none."""
    user: str = ""
    """etcd user, with ``password``. Empty means that etcd has no authentication."""
    password: str | None = Field(None, repr=False)
    """Password of ``user``. Also ``password_file``."""
    ca: Path | None = None
    """CA certificates for etcd's endpoints, in PEM. None means the system's."""
    certificate: Path | None = None
    """Client certificate in PEM, if etcd requires one. It must not name a user: an etcd with users
    rejects certificates with a common name at its gateway, which Moorage uses."""
    key: Path | None = None
    """Key of ``certificate``, in PEM."""
    prefix: Annotated[str, Field(pattern=r"^/([A-Za-z0-9._-]+/)+$")] = "/moorage/"
    """Prefix of all this cluster's keys. Clusters that share an etcd need different prefixes."""
