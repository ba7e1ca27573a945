"""`postroom secrets rotate`: after a change of the secret key."""

import re
from dataclasses import replace

import pytest
from tests.support.builders import a_mail, accepted
from tests.support.command_line import postroom
from tests.support.senders import an_account

from postroom.cli import database_checks
from postroom.db.pool import Session
from postroom.db.room import Room
from postroom.http import operators, second_factor
from postroom.http.model import Operator, Role
from postroom.http.notices import OperatorNotice
from postroom.http.totp import code_at, new_secret
from postroom.outbox.model import Topic
from postroom.outbox.topics import save_topic
from postroom.outbox.webhooks import service as webhooks
from postroom.post.keyed_hash import SecretKey
from postroom.runtime.finding import Severity
from postroom.runtime.secrets import SecretBox
from postroom.senders.seal import LocalSealer, purpose_of
from postroom.settings import Settings, read_settings

OLD, NEW = "11" * 32, "22" * 32
ADA = "ada@example.org"


@pytest.fixture
async def sealed(room: Room) -> None:
    """A sender, a webhook with a previous secret and an operator with a second factor, sealed with the old key."""
    key = bytes.fromhex(OLD)
    box = SecretBox([key])
    sealer = LocalSealer.from_keys(key)
    key_id, password = await sealer.seal(b"a password", purpose=purpose_of("smtp", 7))
    await an_account(room.pool, id=7, smtp_username="a", smtp_password_encrypted=password, credentials_key_id=key_id)
    await save_topic(room.pool, Topic(name="orders"), actor="tests")
    endpoint, _secret = await webhooks.register(
        room.pool, box, url="https://example.org/", topics=["orders"], actor="tests"
    )
    await webhooks.rotate(room.pool, box, endpoint.id, actor="tests")
    ada = await operators.add_operator(room.pool, ADA, Role.ADMIN, actor="tests")
    secret = new_secret()
    now = await room.pool.fetchval("SELECT extract(epoch FROM now())::bigint / 30")
    await second_factor.enroll(room.pool, box, ada, secret, code_at(secret, now), notify=unheard)


async def unheard(_connection: Session, _operator: Operator, _notice: OperatorNotice) -> None:
    """No mail about the operator of a test."""


def environment(room: Room, **changes: str) -> dict[str, str]:
    return {"POSTROOM_DATABASE_URL": room.url, "POSTROOM_SECRET_KEY": NEW, "POSTROOM_OLD_SECRET_KEYS": OLD, **changes}


async def sealing(room: Room, settings: Settings) -> Severity:
    async with room.pool.acquire() as session:
        checks = {each.check: each for each in await database_checks.examine(session, settings)}
    return checks["sealed secrets"].verdict


@pytest.mark.usefixtures("sealed")
async def test_everything_is_sealed_with_the_new_key(room: Room) -> None:
    """Afterwards nothing needs the old key: senders, webhooks with their previous secret, second factors."""
    new = replace(room.settings, secret_key=bytes.fromhex(NEW))
    assert await sealing(room, new) is Severity.FAIL
    done = postroom("secrets", "rotate", settings=environment(room))
    assert (done.returncode, done.stderr) == (0, "")
    assert "postroom: sealed 1 senders, 1 webhooks, 1 second factors" in done.stdout
    assert await sealing(room, new) is Severity.OK
    assert postroom("secrets", "rotate", settings=environment(room, POSTROOM_OLD_SECRET_KEYS="")).returncode == 0


async def test_the_end_of_an_old_key_is_printed_without_the_key(room: Room) -> None:
    """It is the last delivery that was accepted before; keys that have an end keep it."""
    [*_, last] = await accepted(room.pool, a_mail(), a_mail())
    older = f"{'33' * 32}@1"
    done = postroom("secrets", "rotate", settings=environment(room, POSTROOM_OLD_SECRET_KEYS=f"{OLD},{older}"))
    assert f"POSTROOM_OLD_SECRET_KEYS=1111…@{last},3333…@1\n" in done.stdout
    assert OLD not in done.stdout
    ended = f"{OLD}@{last},{older}"
    again = postroom("secrets", "rotate", settings=environment(room, POSTROOM_OLD_SECRET_KEYS=ended))
    assert "POSTROOM_OLD_SECRET_KEYS" not in again.stdout
    read = read_settings({"POSTROOM_SECRET_KEY": NEW, "POSTROOM_OLD_SECRET_KEYS": ended})
    assert [each.last_id("postroom") for each in read.old_secret_keys] == [last, 1]


async def test_a_secret_of_an_unknown_key_is_named(room: Room, sealed: None) -> None:
    """Nothing is lost: the command names the setting that lacks the key."""
    done = postroom("secrets", "rotate", settings=environment(room, POSTROOM_OLD_SECRET_KEYS="33" * 32))
    assert (done.returncode, "POSTROOM_OLD_SECRET_KEYS" in done.stderr) == (1, True)
    assert await sealing(room, replace(room.settings, secret_key=bytes.fromhex(OLD))) is Severity.OK


async def test_many_rooms_are_rotated_with_an_end_for_each(room: Room) -> None:
    """Deliveries of each room are counted from one, so an end belongs to a room."""
    [*_, last] = await accepted(room.pool, a_mail(), a_mail())
    assert postroom("rooms", "create", "annex", settings=environment(room)).returncode == 0
    done = postroom("secrets", "rotate", "--rooms", "*", settings=environment(room))
    assert done.returncode == 0, done.stderr
    [written] = re.findall(r"POSTROOM_OLD_SECRET_KEYS=1111…(\S+)", done.stdout)
    read = read_settings({"POSTROOM_SECRET_KEY": NEW, "POSTROOM_OLD_SECRET_KEYS": OLD + written})
    assert [each.last_id(name) for each in read.old_secret_keys for name in ("annex", "postroom", "x")] == [0, last, 0]
    assert postroom("secrets", "rotate", "--rooms", "none*", settings=environment(room)).stdout.startswith("No room")


@pytest.mark.parametrize("value", ["11", f"{OLD}@", f"{OLD}@x", f"{OLD}@shop:", f"{OLD}@1,", f"{OLD}@{2**63}"])
def test_an_invalid_end_is_refused(value: str) -> None:
    """A mistyped end must not become a key without one."""
    with pytest.raises(Exception, match="POSTROOM_OLD_SECRET_KEYS"):
        read_settings({"POSTROOM_OLD_SECRET_KEYS": value})


def test_a_key_without_an_end_is_valid_for_every_delivery() -> None:
    """As before the end existed."""
    [old] = read_settings({"POSTROOM_OLD_SECRET_KEYS": OLD}).old_secret_keys
    assert old == SecretKey(bytes.fromhex(OLD))
    assert old.last_id("postroom") == 2**63 - 1
