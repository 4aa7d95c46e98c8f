"""Who a peer of the links is: a key and a certificate of its own, kept on disk.

How one is got is in ``certificates``: a daemon needs that for seconds in months, and its weight not at all.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from moorage.common.model.errors import ConfigError

if TYPE_CHECKING:
    from moorage.common.views.peers import PeerKind

# What managers are called in their certificates, wherever they are: the CA signs nothing else by that name.
MANAGER_NAME = "manager.moorage.internal"
# More than this between two clocks is worth a word; certificates themselves begin an hour early.
SKEW = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Identity:
    """``link``: where to dial. PEM texts. ``resource_group``: as the join token said; None: it did not.
    ``begins``, ``ends``: of the certificate, which is not read again for them."""

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
        """After a third of its life it is renewed: whoever was off for the rest of it can still come back."""
        return now >= self.begins + (self.ends - self.begins) / 3

    def what_is_wrong(self, now: datetime) -> str:
        """Why it cannot be used at this time; "" if it can."""
        if now > self.ends:
            return f"this {self.kind}'s certificate expired at {self.ends:%Y-%m-%dT%H:%M:%SZ}: join again"
        if now < self.begins:
            return (
                f"by this node's clock it is {now:%Y-%m-%dT%H:%M:%SZ}, before this {self.kind}'s certificate "
                f"begins ({self.begins:%Y-%m-%dT%H:%M:%SZ}): set the clock"
            )
        return ""


class IdentityFile:
    """An identity on disk: one file that only its owner may read, always whole."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> Identity | None:
        """None: there is none. Raises ``ConfigError`` for one that cannot be read."""
        try:
            kept = json.loads(self.path.read_text())
            dates = {name: datetime.fromisoformat(kept[name]) for name in ("begins", "ends")}
            return Identity(**kept | dates)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise ConfigError(
                f"the identity in {self.path} cannot be read: {error}",
                next_step="mend its permissions, or remove it and join again",
            ) from error

    def store(self, identity: Identity) -> None:
        """Raises ``OSError``."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = self.path.with_suffix(".new")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(asdict(identity), file, indent=2, default=datetime.isoformat)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path)


def identity_file(home: Path, kind: PeerKind, name: str | None) -> IdentityFile:
    """Where the identity of that name is kept; without a name, of the only one that joined from here.

    Raises ``ConfigError`` where there are several to choose from.
    """
    folder = home / "joined"
    if name is not None:
        return IdentityFile(folder / f"{kind}-{name}.json")
    found = sorted(folder.glob(f"{kind}-*.json"))
    if len(found) > 1:
        names = ", ".join(path.stem.removeprefix(f"{kind}-") for path in found)
        raise ConfigError(
            f"several {kind} identities are in {folder}: {names}", next_step=f"say which: {kind}.id"
        )
    return IdentityFile(found[0] if found else folder / f"{kind}-.json")
