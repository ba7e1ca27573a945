"""Conversion of submitted messages to deliveries. No server, no database."""

import base64
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import SMTP, SMTPUTF8

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.delivery.check import CheckedRequest
from postroom.delivery.model import DeliveryRequest, Lane
from postroom.errors import BadInput
from postroom.intake.smtp.submission import SubmittedEnvelope, read_submission
from postroom.post.address import Address
from postroom.post.mime_guard import find_excess

ADA = "ada@example.org"
BOB = "bob@example.org"
EVE = "eve@example.org"


def mail(**headers: str) -> EmailMessage:
    """A small message; `X_Some_Header` becomes X-Some-Header, an empty value takes one away."""
    message = EmailMessage()
    given = {"From": "Shop <shop@example.com>", "To": ADA, "Subject": "Hello", "Message-ID": "<1@example.com>"}
    for name, value in (given | {name.replace("_", "-"): value for name, value in headers.items()}).items():
        if value:
            message[name] = value
    message.set_content("Hello, Ada.\n")
    return message


def read(message: EmailMessage | bytes, *recipients: str) -> DeliveryRequest:
    """The one request a message means."""
    [request] = read_all(message, *recipients)
    return request


def read_all(message: EmailMessage | bytes, *recipients: str) -> list[CheckedRequest]:
    data = message if isinstance(message, bytes) else message.as_bytes(policy=SMTPUTF8)
    return read_submission(data, SubmittedEnvelope("bounce@example.com", recipients or (ADA,)), source="shop")


def test_a_plain_message_keeps_what_it_says() -> None:
    """Subject, body, From and Message-ID arrive as they were; the source is the key's name."""
    request = read(mail())
    assert (request.subject, request.text, request.html) == ("Hello", "Hello, Ada.\n", None)
    assert request.sender == Address("shop@example.com", "Shop")
    assert request.headers == {"Message-ID": "<1@example.com>"}
    assert (request.source, request.lane) == ("shop", Lane.TRANSACTIONAL)


def test_the_envelope_rules_who_receives() -> None:
    """Shown in To or Cc with their names if they stand there, otherwise blind; who is only shown gets nothing."""
    message = mail(To=f"Ada <{ADA.upper()}>, ghost@example.org", Cc=f"Bob <{BOB}>")
    request = read(message, ADA, BOB, EVE)
    assert request.to == (Address("ADA@example.org", "Ada"),)
    assert request.cc == (Address(BOB, "Bob"),)
    assert request.bcc == (Address(EVE),)


@pytest.mark.parametrize(
    "written,name",
    [
        ("ada@example.org", None),
        ("<ada@example.org>", None),
        ("Ada <ada@example.org>", "Ada"),
        ("Ada Lovelace<ada@example.org>", "Ada Lovelace"),
        ('"Lovelace, Ada" <ada@example.org>', "Lovelace, Ada"),
        ("ada@example.org (Ada)", "Ada"),
        ("=?utf-8?b?w4RkYQ==?= <ada@example.org>", "Äda"),
        ("cron, Ada <ada@example.org>", "Ada"),
        ("friends: Ada <ada@example.org>;", "Ada"),
        ("Ada\r\n\t<ada@example.org>", "Ada"),
    ],
)
def test_addresses_as_programs_write_them(written: str, name: str | None) -> None:
    """However an address is spelled in To, the recipient is found there and keeps his name."""
    assert read(f"To: {written}\r\nSubject: s\r\n\r\nHi".encode()).to == (Address(ADA, name),)


def test_a_bcc_header_never_shows() -> None:
    """A program that leaves Bcc in the message does not betray anybody."""
    request = read(mail(Bcc=EVE), ADA, EVE)
    assert request.bcc == (Address(EVE),)
    assert "Bcc" not in request.headers


def test_blind_copies_alone_are_deliveries_of_their_own() -> None:
    """If To and Cc name no recipient, each gets a separate delivery with its own key and sees no other recipient."""
    requests = read_all(mail(To="undisclosed-recipients:;"), ADA, BOB)
    assert [request.to for request in requests] == [(Address(ADA),), (Address(BOB),)]
    assert all(not request.bcc for request in requests)
    assert len({request.idempotency_key for request in requests}) == 2


def test_cc_stands_in_for_an_empty_to() -> None:
    """Without a To, the visible Cc recipients become To."""
    request = read(mail(To="", Cc=f"Bob <{BOB}>"), BOB, EVE)
    assert (request.to, request.cc, request.bcc) == ((Address(BOB, "Bob"),), (), (Address(EVE),))


def test_reply_to_is_kept_and_from_falls_back_to_the_envelope() -> None:
    """Answers go where the message says; without From the sender of the envelope is shown."""
    request = read(mail(Reply_To=f"Bob <{BOB}>", From=""))
    assert request.reply_to == (Address(BOB, "Bob"),)
    assert request.sender == Address("bounce@example.com")


def test_alternatives_pictures_and_files() -> None:
    """Text and HTML are the bodies, a picture the HTML shows keeps its id, a file is a file."""
    message = mail()
    message.add_alternative('<img src="cid:logo@x">', subtype="html")
    html = message.get_payload()[1]  # type: ignore[index]
    html.add_related(b"PNG", "image", "png", cid="<logo@x>", filename="logo.png")  # type: ignore[union-attr]
    message.add_attachment(b"%PDF", maintype="application", subtype="pdf", filename="Rechnung März.pdf")
    request = read(message)
    assert (request.text, (request.html or "").strip()) == ("Hello, Ada.\n", '<img src="cid:logo@x">')
    logo, invoice = request.attachments
    assert (logo.filename, logo.content_type, logo.content_id) == ("logo.png", "image/png", "logo@x")
    assert (invoice.filename, invoice.content_id) == ("Rechnung März.pdf", None)
    assert base64.b64decode(invoice.content) == b"%PDF"


def test_an_id_that_the_html_does_not_show_is_dropped() -> None:
    """Programs that give every file an id do not turn files into hidden pictures."""
    message = mail()
    message.add_attachment(b"x", maintype="image", subtype="png", filename="a.png", cid="<a@x>")
    assert read(message).attachments[0].content_id is None


def test_a_picture_shown_by_an_escaped_address_keeps_its_id() -> None:
    """`cid:a%40b` in the HTML shows the part whose id is `a@b`."""
    message = mail()
    message.add_alternative("<img src='cid:logo%40x'>", subtype="html")
    html = message.get_payload()[1]  # type: ignore[index]
    html.add_related(b"PNG", "image", "png", cid="<logo@x>", filename="logo.png")  # type: ignore[union-attr]
    assert [file.content_id for file in read(message).attachments] == ["logo@x"]


@pytest.mark.parametrize(
    "written,kept",
    [
        (b"text/calendar; method=REQUEST; charset=UTF-8", "text/calendar; method=REQUEST; charset=UTF-8"),
        (b"text/csv; charset=iso-8859-1; name=a.csv", "text/csv; charset=iso-8859-1"),
        (b'Text/CSV; Header="not present"', 'text/csv; header="not present"'),
        (b"image/png; x-unix-mode=0644", "image/png"),
        (b"image/png; title=\xc3\xbc; a", "image/png"),
        (b'text/csv; a="b\\"c"; d=";"; e=f', "text/csv; e=f"),
    ],
)
def test_parameters_of_an_attachment_type_are_kept(written: bytes, kept: str) -> None:
    """The parameters of its type go along, but for its name, which stands elsewhere, and what cannot be written."""
    raw = b"Subject: s\r\nContent-Type: %b\r\nContent-Disposition: attachment; filename=a\r\n\r\nx"
    assert [file.content_type for file in read(raw % written).attachments] == [kept]


def test_an_invitation_stays_one() -> None:
    """The calendar that is an alternative of the text is a file whose type says that it invites."""
    message = mail()
    message.add_alternative("BEGIN:VCALENDAR", subtype="calendar", params={"method": "REQUEST"})
    [invitation] = read(message).attachments
    assert invitation.filename == "attachment-1.ics"
    assert set(invitation.content_type.split("; ")) == {"text/calendar", "charset=utf-8", "method=REQUEST"}


def test_a_forwarded_message_stays_whole() -> None:
    """A message inside the message is a file, and its text is not taken for ours."""
    message = mail()
    inner = mail(Subject="Inner")
    message.add_attachment(inner)
    request = read(message)
    [attached] = request.attachments
    assert (request.text, attached.content_type) == ("Hello, Ada.\n", "message/rfc822")
    assert message_from_bytes(base64.b64decode(attached.content))["Subject"] == "Inner"


@pytest.mark.parametrize(
    "header,expected",
    [
        pytest.param(b"Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=", "Grüße", id="encoded words"),
        pytest.param("Subject: Grüße".encode(), "Grüße", id="raw UTF-8"),
        pytest.param(b"Subject: a\r\n b", "a b", id="folded"),
        pytest.param(b"Subject: =?nonsense?q?x?=", "x", id="unknown charset"),
        pytest.param(b"Subject:", "(no subject)", id="empty"),
        pytest.param(b"X-None: x", "(no subject)", id="absent"),
        pytest.param(b"Subject: a\x00b", "ab", id="NUL"),
        pytest.param(b"Subject: Gr\xfc\xdfe", "Grüße", id="raw Latin-1"),
        pytest.param(b"Subject: =?us-ascii?q?Gr=C3=BC=C3=9Fe?=", "Grüße", id="words that claim to be ASCII"),
        pytest.param(b"Subject: =?klingon?q?Gr=FC=DFe?=", "Grüße", id="words in an unknown charset"),
        pytest.param("Subject: =?utf-8?q?a?= Ångström \\u0041".encode(), "a Ångström \\u0041", id="words and raw"),
        pytest.param(b"Subject: =?utf-7?q?x+2AA-y?=", "x+2AA-y", id="half a character"),
    ],
)
def test_subjects_as_programs_write_them(header: bytes, expected: str) -> None:
    """However it is spelled, the subject is what a reader would see."""
    assert read(header + b"\r\nTo: ada@example.org\r\n\r\nHi\r\n").subject == expected


@pytest.mark.parametrize(
    "content_type,body,text",
    [
        pytest.param(b"text/plain; charset=iso-8859-1", b"Gr\xfc\xdfe", "Grüße", id="latin-1"),
        pytest.param(b"text/plain; charset=klingon", "Grüße".encode(), "Grüße", id="unknown charset"),
        pytest.param(b"text/plain; charset=us-ascii", "Grüße".encode(), "Grüße", id="UTF-8 that claims to be ASCII"),
        pytest.param(b"text/plain; charset=utf-8", b"Gr\xfc\xdfe", "Grüße", id="Latin-1 that claims to be UTF-8"),
        pytest.param(b"text/plain; charset=klingon", b"Gr\xfc\xdfe", "Grüße", id="Latin-1, unknown charset"),
        pytest.param(b"text/plain", b"Gr\xfc\xdfe \x80", "Grüße €", id="Windows, no charset"),
        pytest.param(b"text/plain", b"a\x81b\xff\x00c", "a\x81bÿc", id="broken"),
        pytest.param(b"nonsense", b"x", "x", id="no type at all"),
    ],
)
def test_bodies_in_any_charset(content_type: bytes, body: bytes, text: str) -> None:
    """A body is readable text, whatever its charset claims."""
    raw = b"Subject: s\r\nContent-Type: " + content_type + b"\r\nContent-Transfer-Encoding: 8bit\r\n\r\n" + body
    assert read(raw).text == text


def test_marks_are_read_and_removed() -> None:
    """Headers that speak to Postroom say lane, campaign, tags and key, and do not leave."""
    message = mail(X_Postroom_Lane="bulk", X_Postroom_Campaign="spring", Idempotency_Key="order-7", X_Mailer="Shop 1.0")
    message["X-Postroom-Tag"] = "team=sales"
    message["X-Postroom-Tag"] = "receipt"
    request = read(message)
    assert (request.lane, request.custom_data) == (Lane.BULK, {"campaign": "spring"})
    assert request.tags == {"team": "sales", "tag": "receipt"}
    assert request.idempotency_key == "order-7"
    assert request.headers == {"Message-ID": "<1@example.com>", "X-Mailer": "Shop 1.0"}


def test_a_template_takes_the_place_of_the_content() -> None:
    """With a template, subject and bodies of the message are not used; files are."""
    message = mail(X_Postroom_Template="welcome", X_Postroom_Variables='{"name": "Ada"}', X_Postroom_Locale="fr")
    message.add_attachment(b"x", maintype="image", subtype="png", filename="a.png")
    request = read(message)
    assert (request.template, request.variables, request.locale) == ("welcome", {"name": "Ada"}, "fr")
    assert (request.subject, request.text, len(request.attachments)) == (None, None, 1)


@pytest.mark.parametrize(
    "header,value",
    [
        ("X-Postroom-Lane", "express"),
        ("X-Postroom-Variables", "[1]"),
        ("X-Postroom-Prioriti", "high"),
        ("Idempotency-Key", "with space"),
        ("X-Postroom-Variables", '{"name": "Ada"}'),
        ("X-Postroom-Locale", "fr"),
    ],
)
def test_a_wrong_mark_refuses_the_message(header: str, value: str) -> None:
    """An unknown control header is rejected, not ignored."""
    with pytest.raises(BadInput, match=header):
        read(mail(**{header: value}))


def test_a_mark_given_twice_refuses_the_message() -> None:
    """A repeated control header is rejected."""
    with pytest.raises(BadInput, match="twice"):
        read(b"X-Postroom-Lane: bulk\r\nX-Postroom-Lane: auth\r\nSubject: s\r\n\r\nHi")
    with pytest.raises(BadInput, match="twice"):
        read(b"X-Postroom-Tag: one\r\nX-Postroom-Tag: two\r\nSubject: s\r\n\r\nHi")


@pytest.mark.parametrize(
    "header,field",
    [
        (b"Subject: " + b"s" * 999, "subject"),
        (b"From: The shop <shop@>", "From"),
        (b"Reply-To: nobody", "Reply-To"),
        (b"Reply-To: ada@example.org, nobody", "Reply-To"),
    ],
)
def test_a_header_that_could_only_be_changed_refuses_the_message(header: bytes, field: str) -> None:
    """A message with a subject or author that cannot be kept is rejected."""
    with pytest.raises(BadInput) as refused:
        read(header + b"\r\nTo: ada@example.org\r\n\r\nHi")
    assert [error.field for error in refused.value.errors] == [field]


def test_a_bare_name_in_from_leaves_it_to_the_envelope() -> None:
    """Cron writes `From: root`; its mail is the envelope sender's."""
    assert read(b"From: root (Cron Daemon)\r\nSubject: s\r\n\r\nHi").sender == Address("bounce@example.com")


def test_a_report_without_a_sender_is_written_by_its_from() -> None:
    """A report with an empty envelope sender and no From is rejected."""
    [report] = read_submission(mail().as_bytes(), SubmittedEnvelope(None, (ADA,)), source="shop")
    assert report.sender == Address("shop@example.com", "Shop")
    with pytest.raises(BadInput, match="From"):
        read_submission(mail(From="").as_bytes(), SubmittedEnvelope(None, (ADA,)), source="shop")


def test_trace_headers_and_old_signatures_do_not_go_along() -> None:
    """Headers of earlier servers are dropped; headers of the program are kept."""
    message = mail(
        Received="from a by b", DKIM_Signature="v=1", Return_Path="<x@y>", In_Reply_To="<0@example.com>", X_Foo="bar"
    )
    assert read(message).headers == {
        "Message-ID": "<1@example.com>",
        "In-Reply-To": "<0@example.com>",
        "X-Foo": "bar",
    }


def test_the_message_id_and_the_recipients_are_the_key() -> None:
    """A repetition has the same key; the other half of a split message, or a message without id, has not."""
    one, again = read(mail()), read(mail(Received="from elsewhere"))
    other, nameless = read(mail(), BOB), read(mail(Message_ID=""))
    assert one == again
    assert one.idempotency_key is not None
    assert other.idempotency_key not in (None, one.idempotency_key)
    assert nameless.idempotency_key is None


def test_boundaries_are_not_content() -> None:
    """The same mail serialised twice is the same request, whatever separates its parts."""
    first, second = mail(), mail()
    for message, boundary in ((first, "one"), (second, "two")):
        message.add_attachment(b"x", maintype="image", subtype="png", filename="a.png")
        message.set_boundary(boundary)
    assert read(first.as_bytes(policy=SMTP)) == read(second.as_bytes(policy=SMTP))


@pytest.mark.parametrize("kind", ["multipart/signed", "multipart/encrypted", "application/pkcs7-mime"])
def test_signed_message_is_refused(kind: str) -> None:
    """A signed or encrypted message is rejected, because composing it again would break the signature."""
    raw = f"Subject: s\r\nContent-Type: {kind}; boundary=b\r\n\r\n--b\r\n\r\nx\r\n--b--\r\n".encode()
    with pytest.raises(BadInput, match="signed or encrypted"):
        read(raw)


def test_endless_nesting_is_refused() -> None:
    """A message inside a message inside a message ends somewhere."""
    levels = b"".join(
        b"Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n" % (level, level) for level in range(200)
    )
    with pytest.raises(BadInput, match="boundaries"):
        read(b"Subject: s\r\n" + levels + b"\r\nx")


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"To: " + b"(" * 51 + b"\r\n\r\nx", id="comments"),
        pytest.param(b"Reply-To: " + b"(" * 5000 + b"\r\n\r\nx", id="many comments"),
        pytest.param(b"Content-Type: message/rfc822\r\n\r\n" * 201, id="messages"),
        pytest.param(b"Content-Type: message/rfc822\r\n\r\n" * 3000, id="many messages"),
    ],
)
def test_nesting_is_limited_before_the_parser_recurses(raw: bytes) -> None:
    """The limit is the same with every interpreter, whatever its limit of recursion."""
    with pytest.raises(BadInput, match="nested too deeply"):
        read(b"Subject: s\r\n" + raw)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"To: " + b"(" * 50 + b")" * 50 + b" ada@example.org\r\n\r\nx", id="comments"),
        pytest.param(b"Content-Type: message/rfc822\r\n\r\n" * 200 + b"\r\nx", id="messages"),
        pytest.param(b'To: "' + b"(" * 99 + b'" <ada@example.org>\r\n\r\nx', id="parentheses in a name"),
    ],
)
def test_nesting_up_to_the_limit_is_read(raw: bytes) -> None:
    """Forwarded and commented mail is accepted."""
    assert read(b"Subject: s\r\n" + raw).to


def test_amp_body_is_refused_by_name() -> None:
    """It is refused as over HTTP, not turned into an attachment; a file of that type is one."""
    message = mail()
    message.add_alternative("<p>Hello</p>", subtype="html")
    message.add_alternative("<html amp4email></html>", subtype="x-amp-html")
    with pytest.raises(BadInput, match="text/x-amp-html, which is not sent"):
        read(message)
    file = mail()
    file.add_attachment("<html amp4email></html>", subtype="x-amp-html", filename="a.html")
    assert [each.filename for each in read(file).attachments] == ["a.html"]


def test_a_file_of_short_lines_is_still_read() -> None:
    """A large mail with ordinary parts stays far below the limits of the parser."""
    message = mail()
    message.add_attachment(b"x" * 25_000_000, maintype="application", subtype="pdf", filename="a.pdf")
    assert find_excess(message.as_bytes()) is None


@pytest.mark.parametrize(
    "raw,words",
    [
        (b"Content-Type: multipart/mixed; BOUNDARY*0=a\r\n" * 61 + b"\r\n", "60 MIME boundaries"),
        (b"Content-Type: multipart/mixed; boundary =a\r\n\r\n" + b"\n" * 3_000_000, "too many lines"),
        (b"\n\n" + b"\n" * 5_000_000, "too many lines"),
        (b"X: " + b"x" * 300_000, "256 kB of headers"),
    ],
)
def test_message_with_many_boundaries_is_refused_unparsed(raw: bytes, words: str) -> None:
    """Boundaries and lines are counted first: 500 boundaries in 128 kB took the parser 9 s."""
    with pytest.raises(BadInput, match=words):
        read(b"Subject: s\r\n" + raw)


def test_many_blind_copies_of_a_large_message_are_refused() -> None:
    """Everybody's own delivery has its own copy: that must not fill the disk."""
    message = mail(To="")
    message.add_attachment(b"x" * 3_000_000, maintype="image", subtype="png", filename="a.png")
    with pytest.raises(BadInput, match="too large"):
        read_all(message, *(f"u{number}@example.org" for number in range(60)))


@settings(max_examples=100)
@given(
    st.binary(max_size=300)
    | st.lists(
        st.sampled_from(
            [b"To: ", b"Content-Type: ", b"multipart/mixed; boundary=b", b"\r\n", b"\n", b"--b", b"--",
             b"=?utf-8?b?/?=",
             b"Content-ID: <", b"\xff", b"\x00", b"text/html", b"Subject: ", b"From: ", b"<", b"@", b"Message-ID: ",
             b"Content-Transfer-Encoding: base64", b"Content-Disposition: attachment; filename*=utf-8''%ff",
             b"message/rfc822"]
        )
    ).map(b"".join)
)  # fmt: skip
def test_whatever_is_submitted_is_answered(data: bytes) -> None:
    """No bytes make the reader raise anything but a refusal."""
    try:
        requests = read_all(data)
    except BadInput:
        return
    assert requests


def test_a_key_stands_alone_for_a_whole_message() -> None:
    """If the envelope equals To and Cc, another message with the same key is a conflict, whatever its recipients."""
    assert read(mail(Cc=BOB, Idempotency_Key="k"), BOB.upper(), ADA).idempotency_key == "k"
    assert read(mail(To=BOB, Idempotency_Key="k"), BOB).idempotency_key == "k"


@pytest.mark.parametrize("halves", [((ADA,), (BOB,)), ((ADA, EVE), (BOB,)), ((ADA, EVE), (BOB, "cyd@example.org"))])
def test_the_parts_of_a_split_message_have_keys_of_their_own(halves: tuple[tuple[str, ...], ...]) -> None:
    """If the envelope differs from To and Cc, the recipients are part of the key, in any order."""
    message = mail(To=f"{ADA}, {BOB}", Idempotency_Key="k")
    keys = [read(message, *half).idempotency_key for half in halves]
    assert len({*keys, "k"}) == 3
    assert keys == [read(message, *reversed(half)).idempotency_key for half in halves]


def test_a_blind_copy_has_the_same_key_however_the_message_is_split() -> None:
    """The key of a recipient does not depend on the other recipients."""
    message = mail(To="", Idempotency_Key="k")
    alone = read(message, BOB).idempotency_key
    among = [request.idempotency_key for request in read_all(message, ADA, BOB)]
    assert among == [read(message, ADA).idempotency_key, alone]
    assert len({*among, "k"}) == 3


def test_trace_headers_do_not_change_the_idempotency_key() -> None:
    """A repetition by another relay is the same message, and trace headers are not passed on."""
    one = read(mail(X_Received="by a", X_Originating_IP="[192.0.2.1]"))
    assert one == read(mail(X_Received="by b", X_Originating_IP="[192.0.2.2]")) == read(mail())
