"""Rendering of letters, with hostile merge fields."""

from email import message_from_bytes
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import fields, replace
from tests.support.builders import NOON
from tests.support.campaigns import HTML, SIGNER, a_letter, letters_of

from postroom.campaigns.model import CampaignContent
from postroom.campaigns.rendering import CampaignRendering, RenderingOptions
from postroom.campaigns.template import ready, text_template
from postroom.delivery.model import (
    Channel,
    ClaimId,
    DeliveryId,
    Lane,
    Outgoing,
    Recipient,
    RecipientKind,
    RecipientOutcome,
)
from postroom.errors import BadInput
from postroom.mail.compose import Composer
from postroom.mail.render import Rendered
from postroom.post.address import Address
from postroom.post.dkim import Signer
from postroom.post.mime import ComposedMessage
from postroom.tracking.model import LinkSubject
from postroom.transports.smtp.session import stuffed

HOSTILE = '<script>alert("1")</script>\r\nBcc: all@example.org\r\n\r\n{{ 7 * 7 }}'


def claimed_mail(campaign_id: int | None = 7, email: str = "ann@example.org", **variables: Any) -> Outgoing:
    """A claimed delivery of a campaign; irrelevant fields are empty."""
    given: dict[str, Any] = {field.name: None for field in fields(Outgoing)}
    given |= {
        "id": DeliveryId(12), "claim_id": ClaimId(1), "channel": Channel.EMAIL, "lane": Lane.BULK, "ladder": "generic",
        "attempt_no": 1, "attempt_base": 0, "created_at": NOON, "dated_at": NOON,
        "recipients": (Recipient(RecipientKind.TO, 0, email, None, RecipientOutcome.PENDING),), "subject": "",
        "headers": {}, "attachments": (), "campaign_id": campaign_id, "variables": variables,
    }  # fmt: skip
    return Outgoing(**given)


def letters_with(letter: CampaignContent) -> CampaignRendering:
    letters = CampaignRendering(None, SIGNER, RenderingOptions(default_domain="example.org"))
    letters._letters.add({7: letters._ready(7, letter)})
    return letters


def encoded(outgoing: Outgoing) -> bytes:
    composer = Composer(default_sender=Address("post@example.org"), message_domain="example.org")
    return composer.compose(outgoing, now=NOON)[1].encode(eight_bit=True)


def test_mail_is_rendered_from_letter_and_fields() -> None:
    """Subject, both parts, sender and reply address are rendered; the delivery is otherwise unchanged."""
    letter = a_letter(reply_to=Address("help@example.org"))
    written = letters_with(letter).write(claimed_mail(first_name="Ann"))
    assert (written.subject, written.sender) == ("News for Ann", Address("news@example.org", "News"))
    assert "Hello Ann, look (https://shop.example.org/?a=1&b=2)" in (written.text or "")
    assert written.html is not None
    assert "Hello Ann" in written.html
    assert b"Reply-To: help@example.org" in encoded(written)


def test_every_mail_has_one_click_unsubscribe() -> None:
    """The headers follow RFC 8058, and the URL is the recipient's own."""
    written = letters_with(a_letter()).write(claimed_mail(first_name="Ann"))
    url = SIGNER.unsubscribe_url(LinkSubject(7, 12, "ann@example.org"))
    assert written.headers["List-Id"] == "<campaigns.example.org>"
    assert written.headers["Feedback-ID"].startswith("7:example.org:")
    assert f'href="{url}"' in (written.html or "")
    assert url in (written.text or "")
    message = message_from_bytes(encoded(written))
    assert message.get_all("List-Unsubscribe") == [f"<{url}>"]
    assert message.get_all("List-Unsubscribe-Post") == ["List-Unsubscribe=One-Click"]


def test_tracking_follows_the_campaign_option() -> None:
    """Only HTML links are tracked, except the unsubscribe link; without tracking none is."""
    tracked = letters_with(a_letter()).write(claimed_mail(first_name="Ann"))
    mark = LinkSubject(7, 12, "ann@example.org")
    assert SIGNER.click_url(mark, "https://shop.example.org/?a=1&b=2") in (tracked.html or "")
    assert SIGNER.open_url(mark) in (tracked.html or "")
    assert "/track/" not in (tracked.text or "")
    plain = letters_with(a_letter(is_tracked=False)).write(claimed_mail(first_name="Ann"))
    assert "/track/" not in (plain.html or "")
    assert "https://shop.example.org/?a=1&amp;b=2" in (plain.html or "")


def test_second_attempt_renders_the_same_bytes() -> None:
    """Rendering does not depend on the time."""
    letters = letters_with(a_letter())
    first, second = (encoded(letters.write(claimed_mail(first_name="Ann"))) for _ in range(2))
    assert first == second


def test_merge_fields_cannot_become_markup_or_headers() -> None:
    """Fields are escaped in HTML, literal in text, on one line in the subject, and never templates."""
    letter = a_letter(text="Dear {{ first_name }}", sender=None)
    written = letters_with(letter).write(claimed_mail(first_name=HOSTILE))
    assert isinstance(written.html, str)
    assert isinstance(written.text, str)
    assert "<script>" not in written.html
    assert "&lt;script&gt;" in written.html
    assert written.text.startswith('Dear <script>alert("1")')
    assert "{{ 7 * 7 }}" in written.text
    assert "\n" not in written.subject
    headers = encoded(written).partition(b"\r\n\r\n")[0]
    assert b"\r\nBcc:" not in headers


@pytest.mark.parametrize("part", ["subject", "text", "html"])
def test_missing_field_fails_the_mail(part: str) -> None:
    """The failure is permanent, and its reason names the field."""
    parts: dict[str, Any] = {"subject": "Hi", "text": "Hi", "html": "<p>Hi</p>", part: "Hi {{ first_name }}"}
    letter = CampaignContent(**parts)
    with pytest.raises(ValueError, match=f"{part}: line 1: unknown variable: first_name"):
        letters_with(letter).write(claimed_mail())


@pytest.mark.parametrize(
    "last_line, reason",
    [
        ("<p>{{ city }}</p>", "unknown variable: city"),
        ("<p>{{ city|nosuchfilter }}</p>", "unknown filter 'nosuchfilter'"),
    ],
)
def test_failure_in_a_derived_text_names_the_line_of_the_html(last_line: str, reason: str) -> None:
    """The author wrote no text part; lines of the derived text differ from those of the HTML."""
    letter = CampaignContent(subject="Hi", html=f"<p>Hello</p>\n\n\n\n\n{last_line}")
    with pytest.raises(ValueError, match=rf"html[:,] line 6: {reason}"):
        letters_with(letter).write(claimed_mail())


def test_error_in_the_subject_keeps_its_part_beside_a_derived_text() -> None:
    """An HTML part with a merge field does not hide the error of the subject."""
    with pytest.raises(BadInput) as caught:
        ready(CampaignContent(subject="{{ a", html="<p>{{ city }}</p>"))
    assert caught.value.errors[0].field == "subject"


def test_default_replaces_a_missing_field() -> None:
    """`default` replaces a missing field and, with `true`, an empty one."""
    letter = CampaignContent(subject="Hi {{ first_name|default('friend', true) }}", text="x")
    assert letters_with(letter).write(claimed_mail()).subject == "Hi friend"
    assert letters_with(letter).write(claimed_mail(first_name="")).subject == "Hi friend"


def test_merge_fields_cannot_override_built_in_variables() -> None:
    """`unsubscribe_url` and `email` keep their values whatever the recipient's fields are."""
    letter = CampaignContent(subject="x", text="{{ unsubscribe_url }} {{ email }}")
    theirs = {"unsubscribe_url": "https://evil.example", "email": "evil@example.org"}
    written = letters_with(letter).write(replace(claimed_mail(), variables=theirs))
    assert "evil" not in (written.text or "")


def test_mail_without_a_campaign_is_unchanged() -> None:
    """Rendering returns a delivery without a campaign as it is."""
    outgoing = claimed_mail(campaign_id=None)
    assert letters_with(a_letter()).write(outgoing) is outgoing


def test_letter_that_was_not_loaded_is_retried() -> None:
    """The database may have been unavailable: the error is not a ValueError, which would end the delivery."""
    with pytest.raises(LookupError):
        letters_of(None).write(claimed_mail())


def test_without_a_secret_key_no_mail_is_sent() -> None:
    """A mail without an unsubscribe link is not sent."""
    letters = CampaignRendering(None, None, RenderingOptions(default_domain="example.org"))
    letters._letters.add({7: letters._ready(7, a_letter())})
    with pytest.raises(ValueError, match="POSTROOM_SECRET_KEY"):
        letters.write(claimed_mail(first_name="Ann"))


@pytest.mark.parametrize(
    "html, text",
    [
        ("<p>Hello {{ name }}</p>", "Hello {{ name }}"),
        ("<a href='{{ url }}'>Go</a>", "Go ({{ url }})"),
        ("<p>{# not for readers #}Hi</p>", "Hi"),
        ("<p>{% if a %}A{% else %}B{% endif %}</p>", "{% if a %}A{% else %}B{% endif %}"),
        ("<p class='{% if a %}x{% endif %}'>Hi</p>", None),
        ("<table>{% for r in rows %}<tr><td>{{ r }}</td></tr>{% endfor %}</table>", None),
        ("<p>&#123;&#123; not a tag &#125;&#125;</p>", None),
        ("<p>prt0x {{ name }}</p>", None),
    ],
)
def test_text_part_is_derived_once_if_tags_keep_their_places(html: str, text: str | None) -> None:
    """Otherwise the text part is derived from each rendered mail."""
    assert text_template(html) == text


@pytest.mark.parametrize(
    "html",
    [
        "<p>{{ n }}</p>{% if n %}<p>It is {{ n }}</p>{% endif %}<ul>{% for i in m %}<li>{{ i }}</li>{% endfor %}</ul>",
        "<table>{% for i in m %}<tr><td>{{ i }}</td></tr>{% endfor %}</table><p class='{{ n }}'>{{ n }}</p>",
    ],
)
def test_both_derivations_give_the_same_text(html: str) -> None:
    """The text part has the words of the rendered HTML."""
    from postroom.mail.plaintext import plain_text

    rendered = ready(CampaignContent(subject="x", html=html)).render({"n": "<Ann>", "m": ["one", "two"]})
    assert isinstance(rendered, Rendered)
    assert (rendered.text or "").split() == plain_text(rendered.html or "").split()


@pytest.mark.parametrize(
    "wrong, field",
    [
        ({"subject": "{{ a"}, "subject"),
        ({"html": "<p>{% if %}</p>"}, "html"),
        ({"text": "{{ a|nosuchfilter }}"}, "text"),
        ({"html": "{% include '_layouts/base.html' %}"}, "html"),
    ],
)
def test_parse_error_names_the_part(wrong: dict[str, str], field: str) -> None:
    """The error names the part; includes of catalog files are errors, because those may change during a campaign."""
    with pytest.raises(BadInput) as caught:
        ready(a_letter(**wrong))
    assert caught.value.errors[0].field == field


def test_inlined_styles_keep_tracked_links() -> None:
    """Inlining styles and tracking links do not interfere."""
    styled = HTML.replace("<html>", "<html><head><style>p { color: #123456 }</style></head>")
    written = letters_with(a_letter(html=styled)).write(claimed_mail(first_name="Ann"))
    assert 'style="color: #123456' in (written.html or "")
    assert "/track/click/" in (written.html or "")
    assert "\x01" not in (written.html or "")


@pytest.mark.parametrize("part", ["html", "text"])
def test_part_over_a_million_characters_is_rejected(part: str) -> None:
    """The error names the part; nothing is parsed."""
    with pytest.raises(BadInput, match="longer than 1,000,000 characters") as refused:
        ready(a_letter(**{part: "x" * 1_000_001}))
    assert refused.value.errors[0].field == part


@given(first_name=st.text(max_size=20), city=st.text(max_size=20))
@example(first_name="Zoë", city="New York")
@example(first_name=".Ann", city="a  b")
@example(first_name="Ann ", city="\t")
def test_mail_known_to_be_canonical_needs_no_scan(first_name: str, city: str) -> None:
    """The same bytes, signature included, with and without the scans of DKIM and of SMTP."""
    html = f"{HTML}<p>{{{{ city }}}}</p>\n{{{{ first_name }}}}"
    try:
        written = letters_with(a_letter(html=html)).write(claimed_mail(first_name=first_name, city=city))
        message = signing(written)
    except ValueError:
        return  # cannot be rendered or written
    encoded = message.encode(eight_bit=True)
    assert encoded == replace(message, is_canonical=False).encode(eight_bit=True)
    assert not message.is_stuffed or stuffed(encoded) == encoded + b".\r\n"


def test_usual_mail_is_known_to_be_canonical() -> None:
    written = letters_with(a_letter()).write(claimed_mail(first_name="Zoë"))
    assert signing(written).is_stuffed


def test_a_header_that_starts_with_a_dot_is_stuffed() -> None:
    """RFC 5322 allows such a name, and a server would remove its dot."""
    written = letters_with(a_letter()).write(claimed_mail(first_name="Zoë"))
    message = signing(replace(written, headers={**written.headers, ".Trace": "1"}))
    assert not message.is_stuffed
    assert b"\r\n..Trace: 1\r\n" in stuffed(message.encode(eight_bit=True))


def signing(outgoing: Outgoing) -> ComposedMessage:
    key = Ed25519PrivateKey.from_private_bytes(bytes(32))
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    signers = {"example.org": (Signer.from_pem("example.org", "s", pem),)}
    composer = Composer(default_sender=Address("post@example.org"), message_domain="example.org", signers=signers)
    message = composer.compose(outgoing, now=NOON)[1]
    assert isinstance(message, ComposedMessage)
    return message
