"""Extensions of the server decide the commands and the encoding of the content."""

import pytest
from tests.support.smtp_server import ALL_EXTENSIONS, Letter, Script, envelope, smtp_server, transport_to

from postroom.post.reply import Stage

BOTH = Letter(plain=b"Subject: x\r\n\r\ngr=C3=BC=C3=9Fe\r\n", eight_bit="Subject: x\r\n\r\ngrüße\r\n".encode())


async def mail_command(*extensions: str, letter: Letter | None = None, sender: str = "from@example.org") -> str:
    """The MAIL command a server with these extensions hears."""
    async with smtp_server(Script(extensions=extensions)) as server, transport_to(server) as transport:
        await transport.send(envelope(sender=sender), letter or Letter())
    return next(command for command in server.commands if command.startswith("MAIL"))


@pytest.mark.parametrize(
    "extensions, expected",
    [
        ((), "MAIL FROM:<from@example.org>"),
        (("SIZE 1000",), f"MAIL FROM:<from@example.org> SIZE={len(BOTH.plain)}"),
        (("SIZE",), f"MAIL FROM:<from@example.org> SIZE={len(BOTH.plain)}"),
        (("size 0",), f"MAIL FROM:<from@example.org> SIZE={len(BOTH.plain)}"),
        ((f"SIZE {'9' * 5_000}",), f"MAIL FROM:<from@example.org> SIZE={len(BOTH.plain)}"),
        (("SIZE many",), f"MAIL FROM:<from@example.org> SIZE={len(BOTH.plain)}"),
        (("8BITMIME",), "MAIL FROM:<from@example.org> BODY=8BITMIME"),
        (("DSN",), "MAIL FROM:<from@example.org> RET=HDRS ENVID=7"),
        (("SMTPUTF8",), "MAIL FROM:<from@example.org>"),
        (
            ALL_EXTENSIONS,
            f"MAIL FROM:<from@example.org> SIZE={len(BOTH.eight_bit or b'')} BODY=8BITMIME RET=HDRS ENVID=7",
        ),
    ],
)
async def test_only_what_is_offered_is_used(extensions: tuple[str, ...], expected: str) -> None:
    """A parameter appears exactly when its extension was announced and is needed."""
    assert await mail_command(*extensions, letter=BOTH) == expected


@pytest.mark.parametrize("extensions, expected", [(("8BITMIME",), BOTH.eight_bit), ((), BOTH.plain)])
async def test_content_travels_as_the_server_can_take_it(extensions: tuple[str, ...], expected: bytes) -> None:
    """Eight bits where they are offered, ASCII everywhere else."""
    async with smtp_server(Script(extensions=extensions)) as server, transport_to(server) as transport:
        assert (await transport.send(envelope(), BOTH)).code == 250
    assert server.messages[0].content == expected


async def test_ascii_content_does_not_ask_for_eight_bits() -> None:
    """ASCII content can be relayed anywhere."""
    assert await mail_command("8BITMIME") == "MAIL FROM:<from@example.org>"


async def test_a_message_over_the_servers_limit_is_not_offered() -> None:
    """An oversized message is rejected locally with the server's status."""
    async with smtp_server(Script(extensions=("SIZE 20",))) as server, transport_to(server) as transport:
        reply = await transport.send(envelope(), Letter())
    assert (reply.stage, reply.code, reply.enhanced) == (Stage.SENDER, 552, "5.3.4")
    assert not any(command.startswith("MAIL") for command in server.commands)


@pytest.mark.parametrize("recipient, sender", [("jürgen@example.org", "a@x"), ("a@x", "jürgen@example.org")])
async def test_internationalised_addresses_are_announced(recipient: str, sender: str) -> None:
    """With SMTPUTF8 the addresses travel as they are, and MAIL says so."""
    async with smtp_server() as server, transport_to(server) as transport:
        reply = await transport.send(envelope(recipient, sender=sender), Letter())
    assert reply.code == 250
    assert (server.messages[0].sender, server.messages[0].recipients) == (sender, (recipient,))
    assert "SMTPUTF8" in server.messages[0].parameters


async def test_internationalised_addresses_need_a_server_that_takes_them() -> None:
    """Without SMTPUTF8 the message is refused and nothing is said."""
    async with smtp_server(Script(extensions=("8BITMIME",))) as server, transport_to(server) as transport:
        reply = await transport.send(envelope("jürgen@example.org"), Letter())
    assert (reply.stage, reply.code, reply.enhanced) == (Stage.SENDER, 553, "5.6.7")
    assert not any(command.startswith("MAIL") for command in server.commands)


async def test_a_server_from_before_esmtp_gets_helo_and_plain_commands() -> None:
    """EHLO refused for good: HELO, no extensions, and the mail still arrives."""
    async with smtp_server(Script(says={"EHLO": "502 5.5.1 what?"})) as server, transport_to(server) as transport:
        reply = await transport.send(envelope(), BOTH)
    assert reply.code == 250
    assert server.commands[:3] == ["EHLO localhost", "HELO localhost", "MAIL FROM:<from@example.org>"]
    assert server.messages[0].content == BOTH.plain


async def test_a_server_that_takes_neither_greeting_is_left() -> None:
    """EHLO and HELO refused is a refusal at stage CONNECT."""
    script = Script(says={"EHLO": "502 5.5.1 what?", "HELO": "550 5.7.1 no"})
    async with smtp_server(script) as server, transport_to(server) as transport:
        reply = await transport.send(envelope(), Letter())
    assert (reply.stage, reply.code, reply.enhanced) == (Stage.CONNECT, 550, "5.7.1")


@pytest.mark.parametrize(
    "said, seconds",
    [("451 4.7.1 try again in 300 seconds", 300), ("550 5.7.1 wait 300 seconds", None), ("451 later", None)],
)
async def test_a_hint_counts_only_in_a_refusal_that_is_not_for_good(said: str, seconds: float | None) -> None:
    """A hint counts in a temporary reply, not in a permanent one."""
    async with smtp_server(Script(says={"MAIL": said})) as server, transport_to(server) as transport:
        reply = await transport.send(envelope(), Letter())
    assert reply.retry_after_s == seconds
