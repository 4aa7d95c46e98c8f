"""The senders of notifications, for the API, which checks targets with them."""

from __future__ import annotations

from dataclasses import dataclass

from moorage.common.model.errors import InvalidInput
from moorage.common.views.subscriptions import SubscriptionSpec
from moorage.manager.notifications.mail import Mailer
from moorage.manager.notifications.webhook import Webhooks


@dataclass(frozen=True, slots=True)
class NotificationServices:
    """``webhooks``, ``mailer``: None in a manager that sends nothing."""

    webhooks: Webhooks | None = None
    mailer: Mailer | None = None

    async def check(self, spec: SubscriptionSpec, own_address: str) -> None:
        """Raise ``InvalidInput`` for a target to which this installation cannot or may not send.
        ``own_address``: that of the caller; empty if it has none."""
        if spec.channel == "mail":
            self._check_mail(spec, own_address)
        elif self.webhooks is None:
            raise InvalidInput("this manager sends no webhooks", field="channel")
        else:
            await self.webhooks.check(spec.target)

    def _check_mail(self, spec: SubscriptionSpec, own_address: str) -> None:
        if self.mailer is None or not self.mailer.configured:
            raise InvalidInput(
                "this installation has no mail server",
                field="channel",
                next_step="use a webhook, or ask an administrator to set manager.smtp_host",
            )
        if spec.format != "json":
            raise InvalidInput(
                f"format {spec.format!r} is for webhooks", field="format", next_step="leave it out"
            )

        if spec.target:
            self._check_address(spec.target, own_address, self.mailer)
        elif spec.shared:
            raise InvalidInput(
                "a shared subscription has no address of its own",
                field="target",
                next_step="give an address",
            )
        elif not own_address:
            raise InvalidInput(
                "your user has no e-mail address",
                field="target",
                next_step="ask an administrator: `moorage users set NAME --email ADDRESS`",
            )

    @staticmethod
    def _check_address(address: str, own_address: str, mailer: Mailer) -> None:
        local, _, domain = address.rpartition("@")
        plain = address.isascii() and address.isprintable()
        if not local or not domain or not plain or any(char in " ,;<>()@" for char in local):
            raise InvalidInput(
                f"{address[:200]!r} is not an e-mail address",
                field="target",
                next_step="write it like ann@example.com",
            )

        if address.lower() != own_address.lower() and not mailer.allows(address):
            raise InvalidInput(
                f"{address[:200]!r} is not your own address",
                field="target",
                next_step=(
                    "leave it out for your own, or ask an administrator to allow the domain in "
                    "manager.mail_domains"
                ),
            )
