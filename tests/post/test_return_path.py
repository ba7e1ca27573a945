"""Return paths and Message-IDs that prove the origin of a report."""

from datetime import UTC, datetime, timedelta

import pytest
from tests.support.builders import NOON, a_mail, accepted, claimed

from postroom.db.pool import Pool
from postroom.delivery.model import Lane
from postroom.mail.compose import Composer
from postroom.post.address import Address
from postroom.post.keyed_hash import RoomKey, SecretKey
from postroom.post.message_id import find_message_ids, is_message_id_of, make_message_id, room_keys
from postroom.post.return_path import find_return_paths, make_return_path, read_return_path
from postroom.settings import Settings

KEY, OTHER = RoomKey(bytes(range(32))), RoomKey(bytes(reversed(range(32))))
DOMAIN = "bounce.example.net"


def test_a_return_path_comes_back() -> None:
    """A return path is read as its delivery."""
    address = make_return_path(4711, domain=DOMAIN, key=KEY)
    assert address.startswith("bounce+4711.")
    assert read_return_path(address, domain=DOMAIN, keys=[KEY]) == 4711


@pytest.mark.parametrize(
    "change", [str.upper, str.title, str.swapcase, lambda text: f"<{text}>", lambda text: f" {text} "]
)
def test_servers_may_change_its_case(change: object) -> None:
    """Case, angle brackets and blanks do no harm."""
    address = change(make_return_path(4711, domain=DOMAIN, key=KEY))  # type: ignore[operator]
    assert read_return_path(address, domain=DOMAIN, keys=[KEY]) == 4711


@pytest.mark.parametrize(
    "address",
    [
        "bounce+4712.{tag}@bounce.example.net",
        "bounce+04711.{tag}@bounce.example.net",
        "bounce+4711.{tag}@elsewhere.example",
        "bounce+4711.{tag}a@bounce.example.net",
        "bounce+4711.@bounce.example.net",
        "bounce+.{tag}@bounce.example.net",
        "bounce+4711@bounce.example.net",
        "postmaster@bounce.example.net",
        "",
        "bounce+99999999999999999999.{tag}@bounce.example.net",
    ],
)
def test_changed_return_path_is_rejected(address: str) -> None:
    """A return path with another id, domain or tag is rejected."""
    tag = make_return_path(4711, domain=DOMAIN, key=KEY).partition(".")[2].partition("@")[0]
    assert read_return_path(address.format(tag=tag), domain=DOMAIN, keys=[KEY]) is None


def test_tag_of_another_key_is_rejected() -> None:
    """A tag under another key is rejected."""
    address = make_return_path(4711, domain=DOMAIN, key=OTHER)
    assert read_return_path(address, domain=DOMAIN, keys=[KEY]) is None


def test_the_longest_return_path_fits() -> None:
    """The local part stays within the 64 octets of RFC 5321, even for the largest id."""
    assert len(make_return_path(2**63 - 1, domain=DOMAIN, key=KEY).partition("@")[0]) <= 64


def test_return_paths_are_found_in_text() -> None:
    """Each once, in order, and inventions are passed over."""
    first, second = (make_return_path(number, domain=DOMAIN, key=KEY) for number in (7, 8))
    text = f"To: {first}\nbounce+9.aaaaaaaaaaaaaaaa@{DOMAIN}\nReturn-Path: <{second}> {first}"
    assert find_return_paths(text, domain=DOMAIN, keys=[KEY]) == [7, 8]


def test_a_key_is_valid_for_deliveries_up_to_its_end() -> None:
    """A leaked key signs addresses of older mail only, whenever it is used."""
    ended, now = KEY._replace(last_id=7), datetime(2030, 1, 1, tzinfo=UTC)
    for number, found in ((7, 7), (8, None)):
        address = make_return_path(number, domain=DOMAIN, key=KEY)
        assert read_return_path(address, domain=DOMAIN, keys=[OTHER, ended]) == found
        assert find_return_paths(address, domain=DOMAIN, keys=[ended]) == [number for each in [found] if each]
        (message_id,) = find_message_ids(make_message_id(number, now, domain=DOMAIN, key=KEY))
        assert is_message_id_of(now, message_id, keys=[ended]) is (found is not None)


def composer(key: RoomKey | None) -> Composer:
    return Composer(default_sender=Address("post@example.org"), message_domain="example.org", keys=[key] if key else [])


async def test_a_composed_message_id_is_recognised(pool: Pool) -> None:
    """Compose and check agree; another time of acceptance, or another key, does not fit."""
    await accepted(pool, a_mail())
    (outgoing,) = await claimed(pool, Lane.TRANSACTIONAL)
    envelope, _ = composer(KEY).compose(outgoing, now=NOON)
    (found,) = find_message_ids(f"Message-ID: {envelope.message_id}")
    assert found[0] == outgoing.id
    assert is_message_id_of(outgoing.created_at, found, keys=[KEY])
    assert is_message_id_of(outgoing.created_at, found, keys=[OTHER, KEY])
    assert not is_message_id_of(datetime(2030, 1, 1, tzinfo=UTC), found, keys=[KEY])
    assert not is_message_id_of(outgoing.created_at, found, keys=[OTHER])


async def test_every_attempt_has_the_same_message_id(pool: Pool) -> None:
    """A receiver recognises the second attempt, with and without a key; a key shows in the digest."""
    await accepted(pool, a_mail())
    (outgoing,) = await claimed(pool, Lane.TRANSACTIONAL)
    for key in (KEY, None):
        first, second = (composer(key).compose(outgoing, now=NOON + timedelta(hours=n))[0] for n in range(2))
        assert first.message_id == second.message_id
        assert first.message_id.startswith(f"<pr.{outgoing.id}.")
    assert composer(KEY).compose(outgoing, now=NOON)[0].message_id != first.message_id


async def test_without_a_key_no_message_id_is_believed(pool: Pool) -> None:
    """Without a key the digest is a plain hash and proves nothing."""
    await accepted(pool, a_mail())
    (outgoing,) = await claimed(pool, Lane.TRANSACTIONAL)
    envelope, _ = composer(None).compose(outgoing, now=NOON)
    (found,) = find_message_ids(envelope.message_id)
    assert not is_message_id_of(outgoing.created_at, found, keys=[])
    assert not is_message_id_of(outgoing.created_at, found, keys=[KEY])


def test_rooms_with_one_secret_have_marks_of_their_own() -> None:
    """The key of a room depends on its name; old secrets still read what they signed."""
    secrets = Settings(secret_key=KEY.key, old_secret_keys=(SecretKey(OTHER.key),)).secret_keys
    one, other = room_keys(secrets, "one"), room_keys(secrets, "other")
    address = make_return_path(7, domain=DOMAIN, key=one[0])
    assert read_return_path(address, domain=DOMAIN, keys=one) == 7
    assert read_return_path(address, domain=DOMAIN, keys=other) is None
    before = make_return_path(7, domain=DOMAIN, key=one[1])
    assert read_return_path(before, domain=DOMAIN, keys=one) == 7
    assert Settings().secret_keys == ()
