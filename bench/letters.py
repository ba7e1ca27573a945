"""The mail everybody in the benchmark sends: one welcome letter, about 5 KB on the wire, text and HTML.

The template uses only `{{ variable }}`, which minijinja and Django's template language read alike, so that every
subject renders the same source with the same variables.
"""

from email.message import EmailMessage
from pathlib import Path

TEMPLATE_ID = "welcome"
LOCALE = "en"
SENDER = "postroom@example.org"
BODY_BYTES = 4096

SUBJECT = "Welcome, {{ name }}: your order {{ order }} is on its way"
_SENTENCE = "Your parcel left our house this morning and the carrier expects to reach your door within two days. "
TEXT = (
    "Dear {{ name }},\n\nthank you for order {{ order }}.\n\n"
    + "".join(f"{_SENTENCE.strip()}\n" for _ in range(14))
    + "\nFollow it at {{ link }}\n\nYours,\nthe people of the post room\n"
)
HTML = (
    "<!doctype html><html><body><h1>Dear {{ name }},</h1><p>thank you for order <b>{{ order }}</b>.</p>\n"
    + "".join(f'<p style="margin:0 0 8px">{_SENTENCE.strip()}</p>\n' for _ in range(20))
    + '<p><a href="{{ link }}">Follow it</a></p><p>Yours,<br>the people of the post room</p></body></html>\n'
)


def recipient(number: int) -> str:
    return f"reader-{number}@example.org"


def variables(number: int) -> dict[str, str]:
    return {
        "name": f"Reader {number}",
        "order": f"2026-{number:08d}",
        "link": f"https://shop.example.org/orders/{number}",
    }


def own_body(number: int) -> str:
    """A text of 4 KB that no other mail shares."""
    opening = f"Letter number {number}.\n"
    return (opening + _SENTENCE * (BODY_BYTES // len(_SENTENCE) + 1))[:BODY_BYTES]


def fill(template: str, number: int) -> str:
    for name, value in variables(number).items():
        template = template.replace("{{ " + name + " }}", value)
    return template


def prepared_message() -> bytes:
    """One finished letter in wire format, for the scripts that measure the wire and not the writing."""
    message = EmailMessage()
    message["From"] = SENDER
    message["To"] = recipient(0)
    message["Subject"] = fill(SUBJECT, 0)
    message["Message-ID"] = "<prepared@example.org>"
    message.set_content(fill(TEXT, 0))
    message.add_alternative(fill(HTML, 0), subtype="html")
    return message.as_bytes().replace(b"\n", b"\r\n").replace(b"\r\n.", b"\r\n..")


def write_template(directory: Path) -> None:
    """Lays the template out as Postroom reads it: <directory>/<template>/<locale>/{subject,text,html}."""
    home = directory / TEMPLATE_ID / LOCALE
    home.mkdir(parents=True, exist_ok=True)
    for name, source in (("subject", SUBJECT), ("text", TEXT), ("html", HTML)):
        (home / name).write_text(source, "utf-8")
