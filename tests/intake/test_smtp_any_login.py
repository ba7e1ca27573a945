"""Any SMTP login, while mail is captured on loopback."""

import smtplib
from dataclasses import replace

import pytest
from tests.intake.conftest import Served
from tests.support.http import a_key
from tests.support.submission import deliveries, letter, with_client

from postroom.cli.listeners import submitter
from postroom.db.room import Room
from postroom.delivery.service import AcceptCombiner
from postroom.errors import ScopeMissing, SettingInvalid, Unauthenticated
from postroom.http.auth import Authenticator
from postroom.intake.smtp.handler import one_room
from postroom.intake.smtp.server import allows_any_login, submission_server
from postroom.runtime.smtp_server import SmtpOptions
from postroom.settings import Settings


async def test_any_password_is_accepted_from_this_machine(room: Room) -> None:
    """A program without a key submits; its deliveries have the source `smtp`."""
    auth = Authenticator(room.pool)
    accepting = AcceptCombiner(room.pool)
    async with submission_server(one_room(accepting, submitter(auth, any_login=True)), SmtpOptions(port=0)) as server:

        def send(client: smtplib.SMTP) -> None:
            client.send_message(letter("From a program"))

        await with_client(Served(server, "secret", 0, auth), send)
    await accepting.close()
    [delivery] = await deliveries(room.pool)
    assert (delivery.subject, delivery.source) == ("From a program", "smtp")


async def test_keys_and_other_machines_are_still_checked(room: Room) -> None:
    """A key without the scope is refused as before, and so is a client that is not on loopback."""
    authenticate = submitter(Authenticator(room.pool), any_login=True)
    reader, _row = await a_key(room, "reader", "inbox:read")
    with pytest.raises(ScopeMissing):
        await authenticate(reader, "127.0.0.1")
    with pytest.raises(Unauthenticated):
        await authenticate("secret", "192.0.2.7")
    with pytest.raises(Unauthenticated):
        await submitter(Authenticator(room.pool))("secret", "127.0.0.1")


@pytest.mark.parametrize(
    "changes, problem",
    [
        ({"transport": "noop"}, "POSTROOM_TRANSPORT=capture"),
        ({"smtp_addr": ("0.0.0.0", 2525)}, "loopback"),
        ({"smtps_addr": ("mail.example.org", 465)}, "loopback"),
    ],
)
def test_setting_is_refused_where_mail_could_leave(changes: dict[str, object], problem: str) -> None:
    """The process does not start if the transport sends, or if other machines can connect."""
    settings = replace(Settings(), smtp_any_login=True)
    assert allows_any_login(settings)
    assert not allows_any_login(Settings())
    with pytest.raises(SettingInvalid, match=problem):
        allows_any_login(replace(settings, **changes))  # type: ignore[arg-type]
