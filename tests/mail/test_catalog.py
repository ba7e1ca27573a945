"""Finding, parsing and choosing templates."""

from pathlib import Path
from typing import Any

import pytest

from postroom.mail.catalog import BUILTIN_TEMPLATES, Catalog, Draft, locale_chain
from postroom.mail.errors import TemplateInvalid
from postroom.mail.render import Rendered, RenderError


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return root


def rendered(answer: Rendered | RenderError) -> Rendered:
    assert isinstance(answer, Rendered), answer
    return answer


def failed(answer: Rendered | RenderError) -> RenderError:
    assert isinstance(answer, RenderError), answer
    return answer


def subject_of(catalog: Catalog, template: str, locale: str | None) -> str:
    return rendered(catalog.render(template, locale=locale, variables={})).subject


def refusal(root: Path, files: dict[str, str]) -> str:
    with pytest.raises(TemplateInvalid) as caught:
        Catalog.load(write(root, files))
    return caught.value.message


ACCOUNT_MAIL = {"link": "https://quill.example/activate?token=abc", "code": "12345", "login": "zoë", "minutes": 15}
BUILTIN_VARIABLES: dict[str, dict[str, Any]] = {
    "account-activation": ACCOUNT_MAIL,
    "account-recovery": ACCOUNT_MAIL,
    "birthday": {"first_name": "Zoë", "last_name": "Quick"},
    "login-code": {"code": "123 456", "minutes": 10},
    "operator-notice": {
        "event": "sign_in",
        "at": "2026-11-19 20:15 UTC",
        "client": "192.0.2.7",
        "browser": "Firefox on Linux",
        "url": "https://mail.example.org",
    },
    "operator-sign-in": {"code": "1234 5678", "minutes": 10, "url": "https://mail.example.org"},
    "welcome": {"name": "Zoë", "product": "Quill", "url": "https://quill.example/start?a=1&b=2"},
}


@pytest.mark.parametrize("locale", ["en", "fr"])
@pytest.mark.parametrize("template", sorted(BUILTIN_VARIABLES))
def test_builtin_templates_render_completely(template: str, locale: str) -> None:
    """Our own templates hold all their variables in text and HTML, and say their language."""
    catalog = Catalog.load(BUILTIN_TEMPLATES)
    assert catalog.names() == sorted(BUILTIN_VARIABLES)
    assert catalog.locales(template) == ["en", "fr"]
    letter = rendered(catalog.render(template, locale=locale, variables=BUILTIN_VARIABLES[template]))
    assert letter.text is not None
    assert letter.html is not None
    assert f'<html lang="{locale}">' in letter.html
    assert "@media" in letter.html
    shown = [value for name, value in BUILTIN_VARIABLES[template].items() if name != "event"]  # it chooses a sentence
    for value in shown:
        assert str(value) in letter.text
        assert str(value).replace("&", "&amp;") in letter.html


def test_a_sign_in_code_stays_out_of_the_subject() -> None:
    """Subjects appear in listings and on lock screens."""
    answer = Catalog.load(BUILTIN_TEMPLATES).render(
        "login-code", locale="en", variables={"code": "123456", "minutes": 5, "product": "Quill"}
    )
    assert rendered(answer).subject == "Your sign-in code for Quill"


@pytest.mark.parametrize(
    "wanted,chain",
    [
        ("fr-FR", ["fr-fr", "fr", "en"]),
        ("fr_FR", ["fr-fr", "fr", "en"]),
        ("zh-Hant-TW", ["zh-hant-tw", "zh-hant", "zh", "en"]),
        ("EN", ["en", "en"]),
        (None, ["en"]),
        ("", ["en"]),
    ],
)
def test_locale_chain(wanted: str | None, chain: list[str]) -> None:
    """From special to general, then English."""
    assert list(locale_chain(wanted)) == chain


@pytest.mark.parametrize(
    "wanted,found",
    [
        ("fr-FR", "fr"),
        ("fr-CA", "fr-CA"),
        ("FR_ca", "fr-CA"),
        ("pt-BR", "pt-BR"),
        ("pt", "en"),
        ("zh-Hant-TW", "zh-Hant"),
        ("zh-Hans", "en"),
        ("nonsense / ..", "en"),
        ("x" * 10_000, "en"),
        (None, "en"),
    ],
)
def test_the_nearest_locale_is_rendered(tmp_path: Path, wanted: str | None, found: str) -> None:
    """Case and underscore do not matter; an unknown locale gets English."""
    for locale in ("en", "fr", "fr-CA", "pt_BR", "zh-Hant"):
        write(tmp_path, {f"t/{locale}/subject": locale.replace("_", "-"), f"t/{locale}/text": "x"})
    catalog = Catalog.load(tmp_path)
    assert subject_of(catalog, "t", wanted) == found
    assert catalog.locales("t") == ["en", "fr", "fr-CA", "pt-BR", "zh-Hant"]


def test_no_locale_is_an_answer(tmp_path: Path) -> None:
    """Without English there is no guessing."""
    catalog = Catalog.load(write(tmp_path, {"t/fr/subject": "s", "t/fr/text": "x"}))
    assert failed(catalog.render("t", locale="de", variables={})).message.startswith("no_locale")
    assert failed(catalog.render("t", locale=None, variables={})).message.startswith("no_locale")


def test_an_unknown_template_is_an_answer(tmp_path: Path) -> None:
    """Rendering never raises for a name."""
    catalog = Catalog.load(tmp_path)
    error = failed(catalog.render("../etc/passwd", locale=None, variables={}))
    assert error.message.startswith("template_not_found")
    assert "nope" not in catalog
    assert catalog.locales("nope") == []


def test_a_later_directory_replaces_a_whole_template(tmp_path: Path) -> None:
    """Overriding is per id: no locale of the earlier one shines through."""
    first = write(
        tmp_path / "a",
        {
            f"{name}/{locale}/{part}": f"old {name}"
            for name in ("t", "u")
            for locale in ("en", "fr")
            for part in ("subject", "text")
        },
    )
    second = write(tmp_path / "b", {"t/en/subject": "new t", "t/en/text": "x", "v/en/subject": "v", "v/en/text": "x"})
    catalog = Catalog.load(first, second)
    assert catalog.names() == ["t", "u", "v"]
    assert "t" in catalog
    assert catalog.locales("t") == ["en"]
    assert [subject_of(catalog, name, "fr") for name in ("t", "u", "v")] == ["new t", "old u", "v"]


def test_file_names_may_carry_an_ending(tmp_path: Path) -> None:
    """Editors like endings; hidden files and backups are not parts."""
    files = {
        "t/en/subject.txt": "s",
        "t/en/text.txt": "t",
        "t/en/html.html": "<p>h",
        "t/en/.swp": "x",
        "t/en/text~": "x",
    }
    letter = rendered(Catalog.load(write(tmp_path, files)).render("t", locale=None, variables={}))
    assert letter == Rendered("s", "t", "<p>h")


GOOD = {"t/en/subject": "s", "t/en/text": "x"}


@pytest.mark.parametrize(
    "files,reason",
    [
        ({"t/en/text": "x"}, "no subject"),
        ({"t/en/subject": "x"}, "neither text nor html"),
        ({"t/README": "x"}, "no locale"),
        (GOOD | {"t/en/subjct": "x"}, "subjct: not a part"),
        (GOOD | {"t/en/text.txt": "x"}, "'text' exists twice"),
        (GOOD | {"t/en-/subject": "x"}, "not a locale"),
        (GOOD | {"t/f/subject": "x"}, "not a locale"),
        (GOOD | {"t/EN/subject": "x", "t/EN/text": "x"}, "exists twice"),
        (GOOD | {"Bad Name/en/subject": "x"}, "not a template id"),
        (GOOD | {"t/en/html": "a\nb {{ x }"}, "html, line 2: "),
        (GOOD | {"t/en/html": "a\n{% if x %}"}, "html, line 2: "),
        (GOOD | {"t/en/html": "a\n{{ x|uper }}"}, "html, line 2: unknown filter 'uper'"),
        (GOOD | {"t/en/html": "{{ '9'|format(1) }}"}, "unknown filter 'format'"),
        (
            GOOD | {"t/en/html": "\n{% include '../secret' %}"},
            "line 2: there is no '../secret' in the catalog",
        ),
        (GOOD | {"t/en/html": '{% extends "_layouts/none" %}'}, "there is no '_layouts/none'"),
        (GOOD | {"_layouts/a.html": "x\n{% block %}"}, "a.html, line 2: "),
        (GOOD | {"t/en/mjml": "<mjml><mj-body>"}, "mjml: MJML: "),
        (GOOD | {"t/en/mjml": "<mjml><mj-body>prx1x</mj-body></mjml>"}, "a word like 'prx1x' cannot be used"),
    ],
)
def test_a_wrong_catalog_stops_the_start(tmp_path: Path, files: dict[str, str], reason: str) -> None:
    """The error names the file, the line if any, and the reason."""
    message = refusal(tmp_path, files)
    assert reason in message
    assert str(tmp_path) in message


def test_a_missing_directory_and_foreign_bytes_stop_the_start(tmp_path: Path) -> None:
    """A setting that points nowhere is not an empty catalog."""
    with pytest.raises(TemplateInvalid, match="no such template directory"):
        Catalog.load(tmp_path / "nowhere")
    file = write(tmp_path, GOOD) / "t/en/text"
    file.write_bytes(b"caf\xe9")
    with pytest.raises(TemplateInvalid, match="text: not UTF-8"):
        Catalog.load(tmp_path)


def test_layouts_and_partials(tmp_path: Path) -> None:
    """Shared files are found by path; styles of a layout reach what a template puts in it."""
    files = {
        "_layouts/base.html": "<style>p { color: red }</style><body>{% block body %}{% endblock %}</body>",
        "_partials/name": "{{ name }}",
        "t/en/subject": "For {% include '_partials/name' %}",
        "t/en/html": '{% extends "_layouts/base.html" %}'
        '{% block body %}<p>{% include "_partials/name" %}</p>{% endblock %}',
    }
    catalog = Catalog.load(write(tmp_path, files))
    letter = rendered(catalog.render("t", locale=None, variables={"name": "<A&B>"}))
    assert letter.subject == "For <A&B>"
    assert letter.html is not None
    assert '<p style="color: red;">&lt;A&amp;B&gt;</p>' in letter.html
    error = failed(catalog.render("t", locale=None, variables={}))
    assert error.message == "line 1: the included '_partials/name' failed in its line 1: {{ name }}"


def test_a_later_directory_replaces_a_shared_file(tmp_path: Path) -> None:
    """A house's own footer appears in the templates that came before it."""
    first = write(
        tmp_path / "a",
        {"t/en/subject": "{% include '_partials/f' %}", "t/en/text": "x", "_partials/f": "old"},
    )
    second = write(tmp_path / "b", {"_partials/f": "new"})
    assert subject_of(Catalog.load(first, second), "t", None) == "new"


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../secret", "_partials/../../secret", "_partials/..\\..\\secret", "secret"]
)
def test_no_path_leads_out_of_the_catalog(tmp_path: Path, path: str) -> None:
    """An include named by a variable reaches catalog files only, and the error does not repeat the name."""
    write(tmp_path, {"secret": "top secret"})
    files = {"t/en/subject": "s", "t/en/text": "{% include name %}"}
    catalog = Catalog.load(write(tmp_path / "catalog", files))
    error = failed(catalog.render("t", locale=None, variables={"name": path}))
    assert error.message == "line 1: there is no such file in the catalog: include name"


MJML = """<mjml><mj-head><mj-title>{{ title }}</mj-title>
<mj-style inline="inline">.x { color: green }</mj-style></mj-head><mj-body><mj-section><mj-column>
<mj-text><p class="x">Hi {{ name|default("a & b") }}{% if count < 3 %}, few{% endif %}</p></mj-text>
<mj-raw>{% for row in rows %}</mj-raw><mj-text>{{ row.label }}</mj-text><mj-raw>{% endfor %}</mj-raw>
<mj-button href="{{ url }}" background-color="{{ colour }}">Go</mj-button>
<mj-table>{% for row in rows %}<tr><td>{{ row.price }}</td></tr>{% endfor %}</mj-table>
</mj-column></mj-section></mj-body></mjml>"""


@pytest.mark.parametrize("name", ["mjml", "html.mjml"])
def test_mjml_is_compiled_with_its_tags_intact(tmp_path: Path, name: str) -> None:
    """Variables survive in text, attributes, loops and tables, and stay escaped; styles marked inline are."""
    catalog = Catalog.load(write(tmp_path, {"t/en/subject": "s", f"t/en/{name}": MJML}))
    rows = [{"label": "L1", "price": "P1"}, {"label": "L2", "price": "P2"}]
    variables = {
        "title": "T",
        "name": "<N>",
        "count": 1,
        "rows": rows,
        "url": "https://x.org/?a=1&b=2",
        "colour": "#123456",
    }
    letter = rendered(catalog.render("t", locale=None, variables=variables))
    assert letter.html is not None
    assert '<p class="x" style="color: green;">Hi &lt;N&gt;, few</p>' in letter.html
    assert 'href="https://x.org/?a=1&amp;b=2"' in letter.html
    assert "background:#123456" in letter.html
    assert "<tr><td>P1</td></tr><tr><td>P2</td></tr>" in letter.html
    assert "{" not in letter.html.split("<body", 1)[1]
    assert letter.text is not None
    assert letter.text.startswith("Hi <N>, few\nL1\nL2\nGo (https://x.org/?a=1&b=2)")
    error = failed(catalog.render("t", locale=None, variables=variables | {"rows": [{"price": 1}]}))
    assert error.message == "line 4: unknown variable: row.label"


def test_mjml_that_drops_a_tag_stops_the_start(tmp_path: Path) -> None:
    """A tag MJML has no place for would silently vanish from the letter."""
    image = '<mj-image src="x" width="{{ w }}"/>'
    source = f"<mjml><mj-body><mj-section><mj-column>\n{image}</mj-column></mj-section></mj-body></mjml>"
    assert "mjml, line 2: MJML: leaves no place for {{ w }}" in refusal(tmp_path, GOOD | {"t/en/mjml": source})


def test_mjml_that_moves_a_tag_stops_the_start(tmp_path: Path) -> None:
    """Applying styles parses the HTML, and a parser pushes loose words out of a table."""
    source = MJML.replace("<mj-table>", "<mj-table>{{ rows_html|safe }}")
    assert "line 6: MJML: cannot stand between the rows" in refusal(tmp_path, GOOD | {"t/en/mjml": source})


def test_mjml_cannot_read_files(tmp_path: Path) -> None:
    """`mj-include` is refused; shared files go through the catalog."""
    secret = write(tmp_path, {"secret.mjml": "<mj-text>secret</mj-text>"}) / "secret.mjml"
    source = f'<mjml><mj-body><mj-include path="{secret}"/></mj-body></mjml>'
    files = {"t/en/subject": "s", "t/en/mjml": source}
    assert "MJML: unable to load included template" in refusal(tmp_path / "c", files)


def test_drafts_use_shared_files_and_answer_their_errors(tmp_path: Path) -> None:
    """A preview parses once, renders often, and a wrong source is an answer."""
    catalog = Catalog.load(write(tmp_path, {"_partials/f": "-- {{ name }}"}))
    draft = catalog.draft(subject="Hi {{ name }}", text="{% include '_partials/f' %}")
    assert isinstance(draft, Draft)
    assert [rendered(draft.render({"name": name})).text for name in "ab"] == ["-- a", "-- b"]
    escaping = catalog.draft(subject="s", html="<p>{{ x }}</p>")
    assert isinstance(escaping, Draft)
    assert rendered(escaping.render({"x": "<"})) == Rendered("s", "<", "<p>&lt;</p>")
    wrong = catalog.draft(subject="s", text="\n{{ x")
    assert isinstance(wrong, RenderError)
    assert wrong.message.startswith("text, line 2: ")
