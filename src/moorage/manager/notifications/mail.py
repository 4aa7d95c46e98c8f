"""Mail: one message for the events that are due, handed to the installation's mail server.

``smtplib`` runs in a thread of a small pool of its own. Closing the socket ends a thread whose
server does not answer, so neither an event loop nor a shutdown waits for it.
"""

from __future__ import annotations

import asyncio
import smtplib
import socket
import ssl
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from email.message import EmailMessage
from email.utils import format_datetime
from functools import partial

from moorage.common.aio.clock import Clock
from moorage.common.config.notification_settings import NotificationSettings
from moorage.common.model.errors import ConfigError
from moorage.common.model.printable import printable
from moorage.manager.notifications.result import MAX_ANSWER, AttemptResult

TIMEOUT_S = 30.0
_SOCKET_S = 10.0
_THREADS = 4
_MAX_SUBJECT = 200


class _Connection(smtplib.SMTP):
    """A connection that another thread can close, even while it is being opened."""

    def __init__(self, opened: list[smtplib.SMTP], host: str, port: int, name: str) -> None:
        opened.append(self)
        super().__init__(host, port, local_hostname=name, timeout=_SOCKET_S)


class _TlsConnection(smtplib.SMTP_SSL):
    """As ``_Connection``, with TLS from the first byte."""

    def __init__(
        self,
        opened: list[smtplib.SMTP],
        host: str,
        port: int,
        name: str,
        *,
        context: ssl.SSLContext,
    ) -> None:
        opened.append(self)
        super().__init__(host, port, local_hostname=name, timeout=_SOCKET_S, context=context)


class Mailer:
    """``allows`` decides to whom subscriptions may send mail. Raises ``ConfigError`` for settings
    that contradict each other."""

    def __init__(self, settings: NotificationSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="mail")
        if settings.smtp_host and not settings.smtp_sender:
            raise ConfigError(
                "manager.smtp_host needs a sender", next_step="set manager.smtp_sender"
            )
        if settings.smtp_user and settings.smtp_security == "none":
            raise ConfigError(
                "manager.smtp_user would be sent without TLS",
                next_step="set manager.smtp_security to starttls or tls",
            )

    @property
    def configured(self) -> bool:
        return bool(self._settings.smtp_host)

    def allows(self, address: str) -> bool:
        """Whether subscriptions may send mail to an address that is not the user's own."""
        domain = address.rpartition("@")[2].lower()
        return "*" in self._settings.mail_domains or domain in self._settings.mail_domains

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def send(self, to: str, mail_id: str, lines: Sequence[str]) -> AttemptResult:
        """Send one mail about some events, whose first line is the subject. Never raises because of
        a mail server. The Message-ID follows from ``mail_id``, so a mail server can drop a repeated
        mail."""
        if not self.configured:
            return AttemptResult(False, "this installation has no mail server", counts=False)

        opened: list[smtplib.SMTP] = []
        work = partial(self._send, opened, self._message(to, mail_id, lines))
        thread = asyncio.get_running_loop().run_in_executor(self._pool, work)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await asyncio.shield(thread)
        except TimeoutError:
            return AttemptResult(
                False, f"the mail server took over {TIMEOUT_S:.0f} s", counts=False
            )
        finally:
            if not thread.done():
                for connection in opened:
                    _interrupt(connection)
                thread.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _message(self, to: str, mail_id: str, lines: Sequence[str]) -> EmailMessage:
        domain = self._settings.smtp_sender.rpartition("@")[2].rstrip(">")
        more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""

        message = EmailMessage()
        message["From"] = self._settings.smtp_sender
        message["To"] = to
        message["Subject"] = f"[Moorage] {lines[0][:_MAX_SUBJECT].rstrip('.')}{more}"
        message["Date"] = format_datetime(self._clock.now())
        message["Message-ID"] = f"<{mail_id}@{domain}>"
        # Automatic replies to it would reach nobody (RFC 3834).
        message["Auto-Submitted"] = "auto-generated"

        message.set_content(
            "\n".join(lines) + "\n\nYou get this mail because of a subscription in Moorage: "
            "`moorage notifications` lists and deletes it.\n"
        )
        return message

    def _open(self, opened: list[smtplib.SMTP]) -> smtplib.SMTP:
        settings = self._settings
        host = settings.smtp_host
        port = settings.smtp_port
        name = settings.smtp_sender.rpartition("@")[2].rstrip(">")
        if settings.smtp_security == "none":
            return _Connection(opened, host, port, name)

        context = ssl.create_default_context()
        if settings.smtp_ca is not None:
            context.load_verify_locations(settings.smtp_ca)
        if settings.smtp_security == "tls":
            return _TlsConnection(opened, host, port, name, context=context)

        connection = _Connection(opened, host, port, name)
        connection.starttls(context=context)
        return connection

    def _send(self, opened: list[smtplib.SMTP], message: EmailMessage) -> AttemptResult:
        try:
            connection = self._open(opened)
            try:
                if self._settings.smtp_user:
                    password = self._settings.smtp_password or ""
                    connection.login(self._settings.smtp_user, password)

                connection.send_message(message)
                accepted = True
            finally:
                _quit(connection)
        except smtplib.SMTPRecipientsRefused as error:
            return _refused(*next(iter(error.recipients.values())))
        except smtplib.SMTPDataError as error:
            return _refused(error.smtp_code, error.smtp_error)
        except (smtplib.SMTPException, OSError, ValueError) as error:
            why = printable(str(error) or type(error).__name__, one_line=True)
            return AttemptResult(False, f"mail server: {why}"[:MAX_ANSWER], counts=False)

        return AttemptResult(accepted, "accepted by the mail server")


def _refused(code: int, text: bytes | str) -> AttemptResult:
    shown = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    answer = printable(f"{code} {shown}", one_line=True)[:MAX_ANSWER]
    return AttemptResult(False, answer, permanent=500 <= code < 600)


def _quit(connection: smtplib.SMTP) -> None:
    """Take leave. What the server says to that changes nothing about the mail."""
    try:
        connection.quit()
    except (smtplib.SMTPException, OSError):
        connection.close()


def _interrupt(connection: smtplib.SMTP) -> None:
    if connection.sock is not None:
        try:
            connection.sock.shutdown(socket.SHUT_RDWR)
        except OSError:  # it has ended in the meantime
            pass
