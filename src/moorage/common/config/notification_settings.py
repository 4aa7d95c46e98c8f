"""Settings of the manager for notifications: where webhooks may go, and the mail server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field


def _check_domain(value: str) -> str:
    if value != "*" and ("@" in value or "." not in value.strip(".")):
        raise ValueError(f"{value!r} is not a domain: write it like example.com, or * for all")
    return value.lower()


def _check_sender(value: str) -> str:
    if value and (value.count("@") != 1 or any(not char.isprintable() for char in value)):
        raise ValueError(f"{value!r} is not an e-mail address: write it like moorage@example.com")
    return value


class NotificationSettings(BaseModel):
    webhook_hosts: tuple[str, ...] = ()
    """Host names and networks (CIDR) that webhooks may reach although they are not public, such as
    chat.lab.internal, and which may use http. A name that starts with a dot includes its
    subdomains."""
    webhook_ca: Path | None = None
    """CA certificates in PEM that are trusted for webhooks, in addition to the system's."""
    smtp_host: str = ""
    """Mail server for notifications. Empty means none: subscriptions can only be webhooks."""
    smtp_port: Annotated[int, Field(ge=1, le=65535)] = 587
    """Port of the mail server."""
    smtp_security: Literal["starttls", "tls", "none"] = "starttls"
    """``starttls``: the connection switches to TLS before anything is sent. ``tls``: TLS from the
    first byte, usually on port 465. ``none``: no TLS, which a user name does not allow."""
    smtp_user: str = ""
    """User name at the mail server. Empty means no login."""
    smtp_password: str | None = Field(None, repr=False)
    """Password at the mail server. Also ``smtp_password_file``."""
    smtp_sender: Annotated[str, AfterValidator(_check_sender)] = ""
    """Sender of mails. Required with ``smtp_host``."""
    smtp_ca: Path | None = None
    """CA certificates in PEM that are trusted for the mail server, in addition to the system's."""
    mail_domains: tuple[Annotated[str, AfterValidator(_check_domain)], ...] = ()
    """Domains to whose addresses subscriptions may send mail, in addition to each user's own
    address; * means all."""
