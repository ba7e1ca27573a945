"""TLS and credentials: protection, rejection, secrecy."""

import asyncio
import ssl
from dataclasses import replace

import pytest
import uvloop
from tests.support.mail_feed import Feed
from tests.support.smtp_channels import Authority, authority, loopback_context
from tests.support.smtp_server import (
    ALL_EXTENSIONS,
    DROP,
    SILENT,
    Letter,
    Script,
    Server,
    ThenSay,
    envelope,
    smtp_server,
    transport_to,
)

from postroom.post.reply import Reply, Stage
from postroom.transports.smtp import SmtpRelay
from postroom.transports.smtp.relay import TlsMode


@pytest.fixture(name="authority")
def made_authority() -> Authority:
    return authority()


@pytest.fixture
def trusted() -> ssl.SSLContext:
    return loopback_context()


async def attempt(script: Script, relay: SmtpRelay) -> tuple[Reply, Server]:
    """Send one message to a server with this script; the relay's port is the server's."""
    async with smtp_server(script) as server:
        there = replace(relay, port=server.port)
        async with transport_to(server, relay=there) as transport:
            return await transport.send(envelope(), Letter()), server


def relay(tls: TlsMode, **more: object) -> SmtpRelay:
    return replace(SmtpRelay("127.0.0.1", 1, tls=tls), **more)  # type: ignore[arg-type]


async def test_starttls_protects_the_message(authority: Authority, trusted: ssl.SSLContext) -> None:
    """The server is asked again after the handshake, and everything else is said inside TLS."""
    reply, server = await attempt(Script(tls=trusted), relay("starttls", ca_file=authority.file))
    assert (reply.stage, reply.code, reply.tls) == (Stage.FINAL, 250, "TLSv1.3")
    assert [command.split(" ")[0] for command in server.commands[:4]] == ["EHLO", "STARTTLS", "EHLO", "MAIL"]
    assert server.messages[0].tls


async def test_implicit_tls_protects_from_the_first_byte(authority: Authority, trusted: ssl.SSLContext) -> None:
    """smtps:// speaks TLS before the greeting."""
    script = Script(tls=trusted, implicit_tls=True)
    reply, server = await attempt(script, relay("implicit", ca_file=authority.file))
    assert (reply.stage, reply.code, reply.tls) == (Stage.FINAL, 250, "TLSv1.3")
    assert server.messages[0].tls


@pytest.mark.parametrize("mode", ["starttls", "implicit"])
async def test_certificate_of_unknown_authority_is_rejected(mode: TlsMode, trusted: ssl.SSLContext) -> None:
    """A certificate of an unknown authority fails at stage TLS."""
    script = Script(tls=trusted, implicit_tls=mode == "implicit")
    reply, server = await attempt(script, relay(mode))
    assert (reply.stage, reply.code) == (Stage.TLS, None)
    assert "certificate not trusted" in reply.text
    assert server.messages == []


@pytest.mark.parametrize("mode", ["starttls", "implicit"])
async def test_a_certificate_for_another_name_is_refused(mode: TlsMode, authority: Authority) -> None:
    """A valid certificate for another name is rejected."""
    script = Script(tls=authority.server_context("other.example.org"), implicit_tls=mode == "implicit")
    reply, server = await attempt(script, relay(mode, ca_file=authority.file))
    assert (reply.stage, reply.code) == (Stage.TLS, None)
    assert "mismatch" in reply.text
    assert server.messages == []


@pytest.mark.parametrize("mode", ["starttls", "implicit", "opportunistic"])
async def test_verification_can_be_given_up_on_purpose(mode: TlsMode, authority: Authority) -> None:
    """verify=no takes any certificate."""
    script = Script(tls=authority.server_context("other.example.org"), implicit_tls=mode == "implicit")
    reply, _ = await attempt(script, relay(mode, verify=False))
    assert (reply.code, reply.tls) == (250, "TLSv1.3")


@pytest.mark.parametrize(
    "script, expected",
    [
        (Script(), (Stage.TLS, None, "STARTTLS is required and not offered")),
        (Script(says={"EHLO": "502 5.5.1 what?"}), (Stage.TLS, None, "STARTTLS is required and not offered")),
        (
            Script(extensions=(*ALL_EXTENSIONS, "STARTTLS"), says={"STARTTLS": "454 4.7.0 not now"}),
            (Stage.TLS, 454, "not now"),
        ),
        (
            Script(extensions=(*ALL_EXTENSIONS, "STARTTLS"), says={"STARTTLS": DROP}),
            (Stage.TLS, None, "the other side closed the connection"),
        ),
    ],
    ids=["not offered", "no ESMTP", "refused", "dropped"],
)
async def test_required_tls_is_not_bargained_away(script: Script, expected: tuple[object, ...]) -> None:
    """Without STARTTLS no message is sent in the clear."""
    reply, server = await attempt(script, relay("starttls"))
    assert (reply.stage, reply.code, reply.text) == expected
    assert not any(command.startswith("MAIL") for command in server.commands)


@pytest.mark.parametrize(
    "script",
    [
        Script(),
        Script(extensions=(*ALL_EXTENSIONS, "STARTTLS"), says={"STARTTLS": "454 4.7.0 not now"}),
    ],
    ids=["not offered", "refused"],
)
async def test_opportunistic_tls_goes_on_without(script: Script) -> None:
    """On loopback the lack of TLS is no reason to keep the mail."""
    reply, _ = await attempt(script, relay("opportunistic", verify=False))
    assert (reply.code, reply.tls) == (250, None)


async def test_words_smuggled_in_ahead_of_the_handshake_are_refused(
    authority: Authority, trusted: ssl.SSLContext
) -> None:
    """Plain text behind the answer to STARTTLS is not taken for protected answers."""
    script = Script(tls=trusted, says={"STARTTLS": ThenSay("220 go", b"250-evil\r\n250 AUTH PLAIN\r\n")})
    reply, server = await attempt(script, relay("starttls", ca_file=authority.file))
    assert (reply.stage, reply.code) == (Stage.TLS, None)
    assert server.messages == []


async def test_part_of_a_line_ahead_of_the_handshake_is_refused(authority: Authority, trusted: ssl.SSLContext) -> None:
    """Not even the beginning of an answer is carried into TLS."""
    script = Script(tls=trusted, says={"STARTTLS": ThenSay("220 go", b"250-half a li")})
    reply, server = await attempt(script, relay("starttls", ca_file=authority.file))
    assert (reply.stage, reply.code) == (Stage.TLS, None)
    assert server.messages == []


async def test_a_plain_server_behind_smtps_is_refused() -> None:
    """A greeting in the clear where TLS was meant ends at stage TLS."""
    reply, _ = await attempt(Script(), relay("implicit", verify=False))
    assert (reply.stage, reply.code) == (Stage.TLS, None)


async def test_a_handshake_that_never_ends_is_given_up() -> None:
    """A server that answers nothing to the handshake costs its time and no more."""
    script = Script(extensions=("STARTTLS",), says={"connect": SILENT})
    reply, _ = await attempt(script, relay("implicit", verify=False))
    assert (reply.stage, reply.code) == (Stage.TLS, None)


def with_login(tls: TlsMode, password: str = "correct horse", **more: object) -> SmtpRelay:
    return relay(tls, username="mailer", password=password, **more)


USERS = {"mailer": "correct horse"}


@pytest.mark.parametrize(
    "mechanisms, spoken",
    [("PLAIN LOGIN", "AUTH PLAIN"), ("LOGIN PLAIN", "AUTH PLAIN"), ("LOGIN", "AUTH LOGIN"), ("plain", "AUTH PLAIN")],
)
async def test_login_works_with_what_is_offered(
    mechanisms: str, spoken: str, authority: Authority, trusted: ssl.SSLContext
) -> None:
    """PLAIN is preferred, LOGIN serves where it is all there is."""
    script = Script(tls=trusted, users=USERS, mechanisms=mechanisms)
    reply, server = await attempt(script, with_login("starttls", ca_file=authority.file))
    assert (reply.stage, reply.code) == (Stage.FINAL, 250)
    assert server.messages[0].user == "mailer"
    assert any(command.startswith(spoken) for command in server.commands)


async def test_a_long_password_is_sent_on_a_line_of_its_own() -> None:
    """An AUTH command that would be over the limit of a command waits for the challenge."""
    password = "x" * 600
    reply, server = await attempt(Script(users={"mailer": password}), with_login("none", password))
    assert reply.code == 250
    assert "AUTH PLAIN" in server.commands


@pytest.mark.parametrize("mechanisms", ["PLAIN", "LOGIN"])
async def test_wrong_credentials_end_at_stage_login(mechanisms: str) -> None:
    """535 is about us, not about the message."""
    script = Script(users=USERS, mechanisms=mechanisms)
    reply, server = await attempt(script, with_login("none", "wrong"))
    assert (reply.stage, reply.code, reply.enhanced) == (Stage.LOGIN, 535, "5.7.8")
    assert server.messages == []


async def test_a_server_without_a_known_mechanism_ends_at_stage_login() -> None:
    """Unsupported mechanisms are not tried."""
    reply, _ = await attempt(Script(users=USERS, mechanisms="GSSAPI"), with_login("none"))
    assert (reply.stage, reply.code) == (Stage.LOGIN, None)


async def test_a_login_refused_before_the_password_keeps_the_password() -> None:
    """When the server says no to the mechanism, the credentials are not sent after it."""
    script = Script(users=USERS, mechanisms="LOGIN", challenge="504 5.5.4 not today")
    reply, server = await attempt(script, with_login("none"))
    assert (reply.stage, reply.code, reply.enhanced) == (Stage.LOGIN, 504, "5.5.4")
    assert server.commands[-2:] == ["AUTH LOGIN", "QUIT"]


async def test_the_old_spelling_of_auth_is_understood() -> None:
    """Servers that say AUTH=PLAIN offer PLAIN."""
    script = Script(extensions=("AUTH=PLAIN",), users=USERS, mechanisms="GSSAPI")
    reply, _ = await attempt(script, with_login("none"))
    assert reply.code == 250


async def test_password_repeated_by_a_server_is_not_stored() -> None:
    """Credentials are removed from replies."""
    said = "535 5.7.8 'correct horse' (Y29ycmVjdCBob3JzZQ==) is not it"
    reply, _ = await attempt(Script(users=USERS, says={"AUTH": said}), with_login("none"))
    assert (reply.stage, reply.code) == (Stage.LOGIN, 535)
    assert "correct horse" not in repr(reply)
    assert "Y29ycmVjdCBob3JzZQ==" not in repr(reply)


async def test_credentials_stay_here_when_tls_is_not_to_be_had() -> None:
    """Unless the host is plainly loopback, no TLS means no login, even if the relay would do without TLS."""
    elsewhere = with_login("opportunistic", verify=False, host="127.1")  # reaches the server, proves nothing
    reply, server = await attempt(Script(users=USERS), elsewhere)
    assert (reply.stage, reply.code) == (Stage.LOGIN, None)
    assert not any(command.startswith("AUTH") for command in server.commands)


def test_tls_works_on_uvloop_too(authority: Authority, trusted: ssl.SSLContext) -> None:
    """STARTTLS and login over the other event loop."""

    async def flow() -> list[Reply]:
        async with smtp_server(Script(tls=trusted, users=USERS)) as server:
            there = replace(with_login("starttls", ca_file=authority.file), port=server.port)
            async with transport_to(server, relay=there, max_connections=2) as transport:
                return await asyncio.gather(*(transport.send(envelope(), Letter()) for _ in range(10)))

    assert {(reply.code, reply.tls) for reply in uvloop.run(flow())} == {(250, "TLSv1.3")}


async def test_several_messages_share_one_login_over_tls(authority: Authority, trusted: ssl.SSLContext) -> None:
    """STARTTLS and AUTH happen once, and envelopes follow content as without them."""
    async with smtp_server(Script(tls=trusted, users=USERS)) as server:
        target = replace(with_login("starttls", ca_file=authority.file), port=server.port)
        async with transport_to(server, relay=target) as transport:
            feed = Feed("one@example.org", "two@example.org", "three@example.org")
            await transport.send_all(feed)
    assert list(feed.results.values()) == [(Stage.FINAL, 250)] * 3
    assert [(message.tls, message.user) for message in server.messages] == [(True, "mailer")] * 3
    assert sum(command.startswith("AUTH") for command in server.commands) == 1
