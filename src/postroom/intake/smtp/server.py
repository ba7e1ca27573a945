"""The submission server: its options from the settings, and an SMTP server with its handler."""

import socket
import ssl
from pathlib import Path

from postroom.errors import SettingInvalid
from postroom.intake.smtp.handler import RoomOf, SubmissionHandler
from postroom.intake.smtp.session import SubmissionSession
from postroom.runtime.peers import LOOPBACK, is_within
from postroom.runtime.smtp_server import MEGABYTE, SmtpOptions, SmtpServer
from postroom.settings import Settings


def submission_options(settings: Settings, *, implicit: bool = False) -> SmtpOptions | None:
    """The options of the settings, None if submission is off; an invalid certificate is `SettingInvalid`."""
    address = settings.smtps_addr if implicit else settings.smtp_addr
    if address is None:
        return None
    tls = load_tls(settings.smtp_tls_cert, settings.smtp_tls_key)
    if implicit and tls is None:
        raise SettingInvalid("POSTROOM_SMTP_TLS_CERT", "is required with POSTROOM_SMTPS_ADDR")
    host, port = address
    return SmtpOptions(
        host=host,
        port=port,
        hostname=settings.message_domain,
        size_limit=settings.smtp_max_mb * MEGABYTE,
        tls=tls,
        implicit=implicit,
        variable="POSTROOM_SMTPS_ADDR" if implicit else "POSTROOM_SMTP_ADDR",
        most_per_peer=settings.connections_per_peer,
        unlimited=(*LOOPBACK, *settings.trusted_proxies),
        grace=settings.work_grace,
    )


def allows_any_login(settings: Settings) -> bool:
    """True if clients on this machine need no key; `SettingInvalid` where mail could leave or strangers could connect.

    Captured mail stays in the room, so that a program that only knows a user name and a password can be tested.
    """
    if not settings.smtp_any_login:
        return False
    addresses = [address for address in (settings.smtp_addr, settings.smtps_addr) if address is not None]
    if settings.transport != "capture":
        raise SettingInvalid("POSTROOM_SMTP_ANY_LOGIN", "is only allowed with POSTROOM_TRANSPORT=capture")
    if not all(host == "localhost" or is_within(host, LOOPBACK) for host, _port in addresses):
        raise SettingInvalid("POSTROOM_SMTP_ANY_LOGIN", "is only allowed if POSTROOM_SMTP_ADDR is on loopback")
    return True


def load_tls(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """The TLS context of a certificate; None without one."""
    if certificate is None:
        if key is not None:
            raise SettingInvalid("POSTROOM_SMTP_TLS_CERT", "is required with POSTROOM_SMTP_TLS_KEY")
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise SettingInvalid("POSTROOM_SMTP_TLS_CERT", f"cannot be used: {error}") from error
    return context


def submission_server(room_of: RoomOf, options: SmtpOptions, *, listener: socket.socket | None = None) -> SmtpServer:
    handler = SubmissionHandler(room_of)
    return SmtpServer(handler, options, lambda server: SubmissionSession(handler, server), listener=listener)
