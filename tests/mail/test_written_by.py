"""From and Reply-To of mail sent through an account."""

from tests.support.builders import a_compose, a_mail, accepted, with_content
from tests.support.senders import account_of, an_account, claimed

from postroom.db.pool import Pool
from postroom.mail.compose import written_by
from postroom.post.address import Address


async def headers(pool: Pool, **fields: object) -> bytes:
    """The headers of a mail with these fields, as news@shop.example sends it."""
    account = await an_account(pool, "news@shop.example", display_name="The Shop")
    await accepted(pool, a_mail(**fields))
    [outgoing] = await claimed(pool)
    _envelope, content = a_compose()(written_by(await with_content(pool, outgoing), await account_of(pool, account)))
    return content.encode(eight_bit=True).partition(b"\r\n\r\n")[0]


async def test_a_stranger_s_from_becomes_a_reply_to(pool: Pool) -> None:
    """From is the account; the original From becomes Reply-To and no recipient."""
    said = await headers(pool, sender=Address("ada@else.example", "Ada"))
    assert b"From: The Shop <news@shop.example>" in said
    assert b"Reply-To: Ada <ada@else.example>" in said
    assert b"To: ada@example.org" in said


async def test_a_reply_to_that_was_given_stays(pool: Pool) -> None:
    """A given Reply-To is kept."""
    said = await headers(pool, sender=Address("ada@else.example"), reply_to=(Address("help@else.example"),))
    assert b"Reply-To: help@else.example" in said
    assert b"ada@else.example" not in said


async def test_a_from_of_the_same_domain_stays(pool: Pool) -> None:
    """The account may write as any name of its domain."""
    said = await headers(pool, sender=Address("orders@shop.example", "Orders"))
    assert b"From: Orders <orders@shop.example>" in said
    assert b"Reply-To" not in said
