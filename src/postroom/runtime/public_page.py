"""The page that a link in a mail opens: a heading, a sentence, and buttons or links.

It loads no resources, runs no scripts and sends no Referer header, because its URL contains a secret or a token.
"""

from html import escape

PAGE_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": (
        "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

_STYLE = """\
body { margin: 0; padding: 48px 24px; font-family: Helvetica, Arial, sans-serif; font-size: 17px; line-height: 1.5; \
color: #1f2933; background: #ffffff; }
main { max-width: 480px; margin: 0 auto; overflow-wrap: anywhere; }
h1 { margin: 0 0 16px; font-size: 26px; line-height: 1.3; }
form { margin: 24px 0; }
button { padding: 12px 20px; border: 0; border-radius: 6px; font: inherit; font-weight: bold; color: #ffffff; \
background: #1f4e79; cursor: pointer; }
button:focus-visible { outline: 3px solid #f0b429; outline-offset: 2px; }
.why form { margin: 8px 0; }
.why button { padding: 8px 16px; font-weight: normal; color: inherit; background: transparent; \
border: 1px solid currentColor; }
a { color: #1f4e79; }
@media (prefers-color-scheme: dark) { body { color: #f5f7fa; background: #111827; } a { color: #9cc9f0; } }"""


def public_page(lang: str, title: str, text: str, *, address: str = "", more: str = "") -> bytes:
    """The page; `{address}` in the text is replaced, and `more` is HTML."""
    sentence = escape(text).replace("{address}", f"<strong>{escape(address)}</strong>")
    return f"""<!doctype html>
<html lang="{lang}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="robots" content="noindex">
<title>{escape(title)}</title>
<style>
{_STYLE}
</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
<p>{sentence}</p>
{more}</main>
</body>
</html>
""".encode()
