"""Going live: `doctor --live`, and what is refused until the sender and the address of links are set."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.command_line import outcome
from tests.support.smtp_server import Script, smtp_server

from postroom.cli import live_checks
from postroom.errors import SettingInvalid
from postroom.runtime.finding import Finding, Severity
from postroom.settings import Settings, read_settings

REAL = Settings(
    transport="smtp",
    smtp_relay="smtp://127.0.0.1:1?tls=none",
    given_from="Shop <post@shop.example>",
    public_url="https://mail.shop.example",
    secret_key=b"k" * 32,
)
CHECKS = (
    "from", "public url", "message domain", "dkim", "transport", "bounces", "administrator", "secret key", "backups",
    "alerts", "archive",
)  # fmt: skip


async def examine(settings: Settings, *, is_live: bool | None = True) -> dict[str, Finding]:
    return {finding.check: finding for finding in await live_checks.examine(settings, is_live=is_live)}


async def test_captured_mail_needs_none_of_the_settings(tmp_path: Path) -> None:
    """In development no check fails; judged for real mail, all that is missing does, with what to set."""
    captured = Settings(data_dir=tmp_path)
    found = await examine(captured, is_live=None)
    assert tuple(found) == CHECKS
    assert {finding.verdict for finding in found.values()} <= {Severity.OK, Severity.WARN}
    sending = await examine(replace(REAL, transport="senders", data_dir=tmp_path), is_live=None)
    assert {name for name, finding in sending.items() if finding.verdict is not Severity.OK} == set()
    live = await examine(captured)
    failing = {name for name, finding in live.items() if finding.verdict is Severity.FAIL}
    assert failing == {"from", "public url", "transport", "secret key"}
    assert all(finding.advice for finding in live.values() if finding.verdict is not Severity.OK)


@pytest.mark.parametrize("given, verdict", [
    (None, Severity.FAIL),
    ("Shop <post@localhost>", Severity.WARN),
    ("Shop <post@shop.example>", Severity.OK),
])  # fmt: skip
def test_the_sender_is_set_and_can_be_answered(given: str | None, verdict: Severity) -> None:
    """An unset From fails, an explicit one of this machine is a warning."""
    assert live_checks.sender(replace(REAL, given_from=given), is_live=True).verdict is verdict


@pytest.mark.parametrize("url, verdict", [
    (None, Severity.FAIL),
    ("http://127.0.0.1:8025", Severity.WARN),
    ("https://192.168.0.7", Severity.WARN),
    ("https://mailer", Severity.WARN),
    ("http://mail.shop.example", Severity.WARN),
    ("https://mail.shop.example", Severity.OK),
])  # fmt: skip
def test_links_lead_to_an_address_that_recipients_can_open(url: str | None, verdict: Severity) -> None:
    """An unset public URL fails; one of this machine or network, or without TLS, is a warning."""
    assert live_checks.public_url(replace(REAL, public_url=url), is_live=True).verdict is verdict


@pytest.mark.parametrize("given, own, domain", [
    (None, None, "postroom.localhost"),
    ("Shop <post@Shop.example>", None, "shop.example"),
    ("post@shop.example", "ids.example", "ids.example"),
])  # fmt: skip
def test_the_domain_of_message_ids_follows_the_sender(given: str | None, own: str | None, domain: str) -> None:
    """Only POSTROOM_FROM needs to be set; POSTROOM_MESSAGE_DOMAIN overrides its domain."""
    environment = {"POSTROOM_FROM": given or "", "POSTROOM_MESSAGE_DOMAIN": own or ""}
    assert read_settings(environment).message_domain == domain


@pytest.mark.parametrize("variable", ["POSTROOM_FROM", "POSTROOM_ADMIN_EMAIL"])
def test_an_address_that_does_not_parse_stops_every_command(variable: str) -> None:
    """The error names the variable, before anything starts."""
    with pytest.raises(SettingInvalid, match=variable):
        read_settings({variable: "shop"})


async def test_a_key_of_another_domain_is_reported(tmp_path: Path) -> None:
    """A DKIM key that is not of the domain of From signs nothing that receivers count as ours."""
    key = tmp_path / "key.pem"
    done = await asyncio.create_subprocess_exec("openssl", "genrsa", "-out", str(key), "1024", stderr=-3)
    assert await done.wait() == 0
    key.chmod(0o600)
    found = live_checks.dkim(replace(REAL, dkim_keys=f"other.example:s:{key}"), is_live=True)
    assert (found.verdict, "not for shop.example" in found.found) == (Severity.WARN, True)
    assert live_checks.dkim(replace(REAL, dkim_keys=f"shop.example:s:{key}"), is_live=True).verdict is Severity.OK


async def test_doctor_live_sends_a_probe_mail(database_url: str, tmp_path: Path) -> None:
    """The mail has the sender and the domains of every other mail, and the row has the reply of the relay."""
    async with smtp_server(Script(says={".": "250 2.0.0 queued as 4711"})) as server:
        settings = {
            "POSTROOM_DATABASE_URL": database_url,
            "POSTROOM_DATA_DIR": str(tmp_path),
            "POSTROOM_TRANSPORT": "smtp",
            "POSTROOM_SMTP_RELAY": f"smtp://127.0.0.1:{server.port}?tls=none",
            "POSTROOM_FROM": "Shop <post@shop.example>",
            "POSTROOM_PUBLIC_URL": "https://mail.shop.example",
            "POSTROOM_SECRET_KEY": "ab" * 32,
        }
        code, output, errors = await outcome(
            "doctor", "--live", "--to", "ann@shop.example", "--json", settings=settings
        )
        assert (code, errors) == (0, "")
        [message] = server.messages
    checks = {check["check"]: check for check in json.loads(output)["checks"]}
    assert tuple(checks) == ("database", "room", "migrations", "workers", *CHECKS, "probe mail")
    assert (checks["migrations"]["verdict"], checks["workers"]["verdict"]) == ("ok", "warn")
    assert (checks["transport"]["verdict"], checks["probe mail"]["verdict"]) == ("ok", "ok")
    assert "queued as 4711" in checks["probe mail"]["found"]
    assert message.recipients == ("ann@shop.example",)
    assert b"From: Shop <post@shop.example>" in message.content
    assert b"@shop.example>" in message.content.partition(b"Message-ID: ")[2].partition(b"\r\n")[0]


@pytest.mark.parametrize("settings, check, advice", [
    ({}, "database", "set POSTROOM_DATABASE_URL"),
    ({"POSTROOM_DATABASE_URL": "postgresql://app@127.0.0.1:1/app"}, "database", "check POSTROOM_DATABASE_URL"),
    ({"POSTROOM_SCHEMA": "elsewhere"}, "room", "postroom migrate"),
])  # fmt: skip
async def test_doctor_live_fails_without_a_room(
    settings: dict[str, str], check: str, advice: str, database_url: str, tmp_path: Path
) -> None:
    """A database that is not set or does not answer, or lacks the room, is a failure: no mail could be stored."""
    room = {"POSTROOM_DATABASE_URL": database_url} if "POSTROOM_SCHEMA" in settings else {}
    given = {"POSTROOM_DATA_DIR": str(tmp_path), **room, **settings}
    code, output, _errors = await outcome("doctor", "--live", "--json", settings=given)
    checks = {each["check"]: each for each in json.loads(output)["checks"]}
    assert (code, checks[check]["verdict"]) == (1, "fail")
    assert advice in checks[check]["advice"]
    assert checks["probe mail"]["verdict"] == "warn"  # it was not sent


async def test_doctor_live_fails_for_a_relay_that_refuses_the_login(tmp_path: Path) -> None:
    """A port that accepts connections is not enough."""
    async with smtp_server(Script(users={"shop": "right"})) as server:
        relay = f"smtp://shop:wrong@127.0.0.1:{server.port}?tls=none"
        found = (await examine(replace(REAL, smtp_relay=relay, data_dir=tmp_path)))["transport"]
    assert (found.verdict, "ends at login: 535" in found.found) == (Severity.FAIL, True)
    assert "wrong" not in (found.found + found.advice).replace("wrong credentials", "")
    assert "password" in found.advice


async def test_a_relay_url_that_does_not_parse_is_a_failure(tmp_path: Path) -> None:
    """A password with an unescaped character is the commonest one: rows say so, and the password is not printed."""
    settings = {
        "POSTROOM_DATA_DIR": str(tmp_path),
        "POSTROOM_TRANSPORT": "smtp",
        "POSTROOM_SMTP_RELAY": "smtp://shop:relay/secret#1@relay.example:587",
        "POSTROOM_FROM": "Shop <post@shop.example>",
    }
    code, output, errors = await outcome("doctor", "--live", "--to", "a@shop.example", "--json", settings=settings)
    checks = {check["check"]: check for check in json.loads(output)["checks"]}
    assert (code, errors) == (1, "")
    assert (checks["transport"]["verdict"], checks["probe mail"]["verdict"]) == ("fail", "warn")
    assert "%XX" in checks["transport"]["found"]
    assert "secret#1" not in output


async def test_a_recipient_of_the_probe_that_is_no_address_is_a_usage_error(tmp_path: Path) -> None:
    """Nothing is checked or sent."""
    settings = {"POSTROOM_DATA_DIR": str(tmp_path)}
    code, output, errors = await outcome("doctor", "--live", "--to", "ann", settings=settings)
    assert (code, output) == (2, "")
    assert "--to" in errors
    assert "@-sign" in errors
