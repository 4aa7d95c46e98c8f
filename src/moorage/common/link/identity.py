"""Identity of a peer on the links: its key and certificate, stored on disk.

``link.certificates`` obtains identities. It is a separate module because it imports cryptography
(10 MB), which daemons need only to join and to renew.
"""

from __future__ import annotations

import hashlib
import json
import os
import ssl
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from moorage.common.model.errors import ConfigError

if TYPE_CHECKING:
    from moorage.common.views.peers import PeerKind

# Name in every manager's certificate, whatever its address. The CA issues this name to no other
# peer.
MANAGER_NAME = "manager.moorage.internal"
# Clock skew beyond which a warning is logged. Certificates become valid one hour before they are
# issued.
SKEW = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Identity:
    """Key, certificate and CA certificate of one peer, in PEM.

    ``authority`` contains two CA certificates while the CA is rotated; the first issued the peer's
    own. ``link`` is the manager's gRPC address. ``resource_group`` is the one fixed by the join
    token, or None. ``begins`` and ``ends`` are the certificate's validity period, kept here so that
    it need not be parsed.
    """

    id: str
    kind: PeerKind
    name: str
    resource_group: str | None
    link: str
    key: str
    certificate: str
    authority: str
    begins: datetime
    ends: datetime

    def is_due(self, now: datetime) -> bool:
        """Return whether a third of the validity period has passed. The other two thirds leave time
        for a peer that is switched off."""
        return now >= self.begins + (self.ends - self.begins) / 3

    def find_problem(self, now: datetime) -> str:
        """Return why the certificate cannot be used at this time, or "" if it can."""
        if now > self.ends:
            return (
                f"this {self.kind}'s certificate expired at {self.ends:%Y-%m-%dT%H:%M:%SZ}: "
                "join again"
            )

        if now < self.begins:
            return (
                f"this {self.kind}'s certificate is valid from {self.begins:%Y-%m-%dT%H:%M:%SZ}, "
                "but "
                f"this node's clock says {now:%Y-%m-%dT%H:%M:%SZ}: set the clock"
            )

        return ""


def split_bundle(bundle: str) -> list[str]:
    """Return the certificates of a bundle, each in PEM."""
    end = "-----END CERTIFICATE-----\n"
    return [part.lstrip() + end for part in f"{bundle}\n".split(end)[:-1]]


def certificate_fingerprint(certificate: str) -> str:
    """Return the SHA-256 of a certificate in PEM, in hex, without importing cryptography."""
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate)).hexdigest()


class IdentityFile:
    """File that stores an identity: readable by its owner only, replaced atomically."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> Identity | None:
        """Return the identity, or None if the file is absent. Raises ``ConfigError`` if it is
        unreadable."""
        try:
            kept = json.loads(self.path.read_text())
            dates = {name: datetime.fromisoformat(kept[name]) for name in ("begins", "ends")}
            return Identity(**kept | dates)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise ConfigError(
                f"the identity in {self.path} cannot be read: {error}",
                next_step="fix its permissions, or remove it and join again",
            ) from error

    def store(self, identity: Identity) -> None:
        """Replace the file durably. Raises ``OSError``."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = self.path.with_suffix(".new")
        new.unlink(missing_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(asdict(identity), file, indent=2, default=datetime.isoformat)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path)


def identity_file(home: Path, kind: PeerKind, name: str | None) -> IdentityFile:
    """Return the identity file of a name; without a name, the only one in the state directory.

    Raises ``ConfigError`` if there are several.
    """
    folder = home / "joined"
    if name is not None:
        return IdentityFile(folder / f"{kind}-{name}.json")

    found = sorted(folder.glob(f"{kind}-*.json"))
    if len(found) > 1:
        names = ", ".join(path.stem.removeprefix(f"{kind}-") for path in found)
        raise ConfigError(
            f"several {kind} identities are in {folder}: {names}",
            next_step=f"set {kind}.id to one of them",
        )

    return IdentityFile(found[0] if found else folder / f"{kind}-.json")
