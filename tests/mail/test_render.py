"""Rendering: allowed expressions, the sandbox, and errors."""

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser, LexborNode

from postroom.mail.catalog import Catalog
from postroom.mail.markup import inline_at_load, inline_styles
from postroom.mail.render import MAX_PART, Rendered, Renderer, RenderError, TemplateParts, seal
from postroom.post.mime import ComposedMessage
from postroom.transports.smtp.session import END, stuffed

EMPTY = Catalog.load()


def answer(variables: dict[str, Any], *, subject: str = "s", text: str | None = None, html: str | None = None) -> Any:
    draft = EMPTY.draft(subject=subject, text=text, html=html)
    return draft if isinstance(draft, RenderError) else draft.render(variables)


def text_of(source: str, **variables: Any) -> str:
    letter = answer(variables, text=source)
    assert isinstance(letter, Rendered), letter
    assert letter.text is not None
    return letter.text


def html_of(source: str, **variables: Any) -> str:
    letter = answer(variables, html=source)
    assert isinstance(letter, Rendered), letter
    assert letter.html is not None
    return letter.html


def error_of(source: str, **variables: Any) -> str:
    error = answer(variables, text=source)
    assert isinstance(error, RenderError), error
    assert error.part in {"text", "variables", "source"}
    return error.message


@pytest.mark.parametrize(
    "source,variables,message",
    [
        ("{{ a }}", {}, "line 1: unknown variable: a"),
        ("\n\n{{ a.b }}", {"a": {}}, "line 3: unknown variable: a.b"),
        ("é {{ a.b.c }}", {"a": {}}, "line 1: unknown variable: a.b.c"),
        ("{{ a['b'] }}", {"a": {"c": 1}}, "line 1: unknown variable: a['b']"),
        ("{{ a[3] }}", {"a": [1]}, "line 1: unknown variable: a[3]"),
        ("{% if a %}x{% endif %}", {}, "line 1: unknown variable: a"),
        ("{% for x in a %}x{% endfor %}", {}, "line 1: unknown variable: a"),
        ("{{ a|upper }}", {}, "line 1: unknown variable: a|upper"),
        ("{{ a / 0 }}", {"a": 1}, "line 1: the operation does not fit its values: a / 0"),
        ("{{ a() }}", {}, "line 1: unknown function: a()"),
        ("{{ a is odder }}", {"a": 1}, "line 1: unknown test: odder"),
    ],
)
def test_strictness(source: str, variables: dict[str, Any], message: str) -> None:
    """A missing value is an error that names the expression and its line."""
    assert error_of(source, **variables) == message


@pytest.mark.parametrize(
    "source,expected",
    [
        ("{{ a|default('x') }}", "x"),
        ("{{ n.b or 'none' }}", "none"),
        ("{% if a is defined %}y{% else %}n{% endif %}", "n"),
        ("{{ order.items[0].name }}, {{ order['items']|length }}", "Tea, 1"),
        ("{% for k, v in order.total|items %}{{ k }}={{ v }};{% endfor %}", "EUR=3;"),
        ("{{ order.total|tojson }}", '{"EUR": 3}'),
        ("{{ 'a b/ü'|urlencode }}", "a%20b/%C3%BC"),
        ("{{ [1, 2]|join(', ') }}", "1, 2"),
        ("{{ big }} {{ yes }} {{ pi }}", "170141183460469231731687303715884105727 True 3.5"),
    ],
)
def test_templates_have_filters_tests_and_keys(source: str, expected: str) -> None:
    """Keys win over built-in names, and ordinary filters and tests work."""
    order = {"items": [{"name": "Tea"}], "total": {"EUR": 3}}
    assert text_of(source, n={"b": None}, order=order, big=2**127 - 1, yes=True, pi=3.5) == expected


def test_a_printed_null_is_an_error_that_names_the_nulls() -> None:
    """Mail never says "Hello None"."""
    variables = {"name": None, "list": [{"x": None}], "full": "secret"}
    message = "a null was printed, give it a default (null here: list[0].x, name)"
    assert error_of("Hello {{ name }}", **variables) == message


@pytest.mark.parametrize(
    "expression",
    [
        "a.__class__",
        "a['__class__']",
        "a|attr('__class__')",
        "a.clear()",
        "a.pop",
        "a.keys",
        "a.items",
        "a.items()",
        "a.update(b=1)",
        "l.append(1)",
        "l.__class__.__mro__",
        "l.sort",
        "''.__class__.__mro__",
        "s.format(a)",
        "s.upper()",
        "debug()",
        "self.__init__",
        "cycler.__globals__",
        "range.__globals__",
        "a.__init__()",
        "a.__getattribute__('x')",
        "a()",
        "l[0].clear()",
    ],
)
def test_nothing_but_json_is_reachable(expression: str) -> None:
    """No attribute, method or global leads to Python, and the caller's values stay as they were."""
    variables: dict[str, Any] = {"a": {"k": {}}, "l": [{"x": 1}], "s": "text"}
    error_of(f"{{{{ {expression} }}}}", **variables)
    assert variables == {"a": {"k": {}}, "l": [{"x": 1}], "s": "text"}


@pytest.mark.parametrize(
    "source", ["{% import 'os' as os %}", "{% from 'os' import path %}", "{% include '/etc/passwd' %}"]
)
def test_imports_find_only_the_catalog(source: str) -> None:
    """A source that names something outside is refused before it is rendered."""
    assert "in the catalog" in error_of(source)


@pytest.mark.parametrize(
    "source,reason",
    [
        ("{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}", "too much work"),
        ("{% for i in range(1000000000) %}{% endfor %}", "does not fit"),
        ("{{ range(n) }}", "does not fit"),
        ("{{ 'x' * n }}", "does not fit"),
        ("{{ [1] * n }}", "does not fit"),
        ("{{ 2 ** n }}", "does not fit"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "does not fit"),
        ("{{ 'x' * 6000000 }}", f"longer than {MAX_PART}"),
        ("{{ '%09d'|format(n) }}", "unknown filter 'format'"),
        ("{{ 'x'|indent(n) }}", "unknown filter 'indent'"),
        ("{{ [1]|batch(n, 0) }}", "unknown filter 'batch'"),
        ("{{ [1]|slice(n, 0) }}", "unknown filter 'slice'"),
    ],
)
def test_work_and_memory_are_bounded(source: str, reason: str) -> None:
    """No loop and no number given as a variable can hold the worker or fill its memory."""
    assert reason in error_of(source, n=10_000_000_000)


def test_subject_is_one_line() -> None:
    """Line breaks collapse to a space: no header can be injected."""
    letter = answer({"x": "a\r\nBcc: b@x.org\n"}, subject="\n Re:\t{{ x }} \n", text="t")
    assert letter.subject == "Re: a Bcc: b@x.org"


@pytest.mark.parametrize(
    "value,message",
    [(" \n", "the subject is empty"), ("é" * 999, "the subject is longer than 998 characters")],
)
def test_an_unusable_subject_is_an_error(value: str, message: str) -> None:
    """Empty and overlong subjects are refused; 998 characters are the limit of a header line."""
    assert answer({"x": value}, subject="{{ x }}", text="t") == RenderError("draft", "subject", message)
    assert len(answer({"x": "é" * 998}, subject="{{ x }}", text="t").subject) == 998


def test_only_html_is_escaped() -> None:
    """The same value stands verbatim in subject and text, and as text in HTML."""
    value = '<b>Tom & "Jerry\'s"</b> /'
    letter = answer({"x": value}, subject="{{ x }}", text="{{ x }}", html='<a title="{{ x }}">{{ x }}</a>')
    escaped = "&lt;b&gt;Tom &amp; &quot;Jerry&#x27;s&quot;&lt;/b&gt; /"
    assert letter == Rendered(value, value, f'<a title="{escaped}">{escaped}</a>')
    assert html_of("{{ x|safe }}", x="<b>") == "<b>"


def test_a_value_cannot_call_itself_safe() -> None:
    """Strings that claim to be HTML are escaped like any other."""

    class Claimed(str):
        __slots__ = ()

        def __html__(self) -> str:
            return "<script>"

    assert html_of("{{ x }}", x=Claimed("<b>")) == "&lt;b&gt;"


def nested(depth: int) -> Any:
    return {"x": nested(depth - 1)} if depth else 1


@pytest.mark.parametrize(
    "value,message",
    [
        (dt.date(2026, 1, 1), "variables.v is not a JSON value (date)"),
        ({"a": [b"x"]}, "variables.v.a[0] is not a JSON value (bytes)"),
        ({1, 2}, "variables.v is not a JSON value (set)"),
        (2**127, "variables.v is not a JSON value (int)"),
        (nested(40), "the variables are nested more than 32 deep"),
    ],
)
def test_only_json_values_are_taken(value: Any, message: str) -> None:
    """Anything else is refused by its path and type, not by its content."""
    assert error_of("x", v=value) == message


def test_any_variable_name_is_allowed() -> None:
    """Names that mean something to Python or the engine are names like others."""
    variables = {"self": 1, "name": 2, "source": 3, "template_name": 4, "a b": 5, "": 6, "items": 7}
    source = "{{ self }}{{ name }}{{ source }}{{ template_name }}{{ items }}"
    assert answer(variables, text=source).text == "12347"


def test_a_failure_does_not_disturb_the_next_answer() -> None:
    """One renderer answers in turn; a missing variable is the answer to its own message only."""
    renderer = Renderer()
    renderer.add("s", "{{ x }}", html=False)
    message = TemplateParts("t", "s", None, None)
    assert [renderer.render(message, variables) for variables in ({"x": 1}, {}, {"x": 3})] == [
        Rendered("1", None, None),
        RenderError("t", "subject", "line 1: unknown variable: x"),
        Rendered("3", None, None),
    ]


def test_text_is_derived_from_the_rendered_html() -> None:
    """Logic and values are part of it, decoded."""
    html = "<h1>Hi {{ n }}</h1>{% for x in l %}<p>{{ x }}</p>{% endfor %}"
    assert answer({"n": "A & B", "l": ["1", "2"]}, html=html).text == "Hi A & B\n\n1\n\n2"


STEADY = {
    "text and attributes": '<style>a{color:red}</style><a href="{{ u }}?a=1&amp;b={{ v|default("&") }}">'
    "{{ v }} < 3</a>",
    "rows in a loop": "<style>td{color:red}</style><table>"
    "{% for x in l %}<tr><td>{{ x }}</td></tr>{% endfor %}</table>",
    "rows in a body": "<style>td{color:red}</style><table><tbody>"
    "{% for x in l %}<tr><td>{{ x }}</td></tr>{% endfor %}</tbody></table>",
    "comparison": "<style>p{color:red}</style>{% if n < 3 and n > 1 %}<p>a</p>{% else %}<p>b</p>{% endif %}",
    "condition in a value": '<style>a{color:red}</style><a href="{% if n %}x{% else %}y{% endif %}">a</a>',
    "comment": "<style>p{color:red}</style><p>a{# <b> #}</p>",
    "media": "<style>p{color:red}@media (max-width:9px){p{color:blue}}a:hover{color:red}</style><p>{{ v }}</p>",
    "document": '<!doctype html><html lang="{{ v }}"><head><title>{{ v }}</title>'
    "<style>p{color:red}</style></head><body><p>x</p></body></html>",
}
UNSTEADY = {
    "class": '<style>.on{color:red}</style><p class="{{ c }}">a</p>',
    "condition in a tag": '<style>.on{color:red}</style><p {% if n %}class="on"{% endif %}>a</p>',
    "attributes": "<style>p{color:red}</style><p {{ attributes|safe }}>a</p>",
    "own style": '<style>p{color:red}</style><p style="{{ s }}">a</p>',
    "rule": "<style>p{color:{{ colour }}}</style><p>a</p>",
    "rule with logic": "<style>{% if n %}p{color:red}{% endif %}</style><p>a</p>",
    "odd rows": "<style>tr:nth-child(odd){color:red}</style><table>"
    "{% for x in l %}<tr><td>{{ x }}</td></tr>{% endfor %}</table>",
    "neighbour": "<style>p + p{color:red}</style>{% if not n %}<p>a</p>{% endif %}<p>b</p>",
    "attribute selector": '<style>a[href="u"]{color:red}</style><a href="{{ u }}">a</a>',
    "sometimes inside": '<style>.x p{color:red}</style>{% if not n %}<div class="x">{% endif %}'
    "<p>a</p>{% if not n %}</div>{% endif %}",
    "ready html": "<style>b{color:red}</style><p>{{ ready|safe }}</p>",
    "loose words in a table": "<style>td{color:red}</style><table>{{ v }}<tr><td>a</td></tr></table>",
    "macro": "<style>p{color:red}</style>{% macro f() %}<p>m</p>{% endmacro %}{{ f() }}",
    "set": "<style>b{color:red}</style>{% set x %}<b>y</b>{% endset %}{{ x }}",
    "open paragraphs": "<style>p{color:red}</style>{% for x in l %}<p>{{ x }}{% endfor %}",
}
VALUES = {
    "u": "u", "v": "<v>", "l": ["1", "2", "3"], "n": 2, "c": "on", "attributes": 'title="t"', "s": "color:blue",
    "colour": "green", "ready": "<b>r</b>",
}  # fmt: skip


def tree(html: str) -> list[Any]:
    def branch(node: LexborNode) -> Iterator[Any]:
        child = node.child
        while child is not None:
            if child.tag == "-text":
                yield (child.text_content or "").strip()
            elif child.tag != "-comment":
                yield (child.tag, dict(sorted(child.attributes.items())), list(branch(child)))
            child = child.next

    root = LexborHTMLParser(html).root
    assert root is not None
    return list(branch(root))


def unstyled(source: str) -> str:
    renderer = Renderer()
    renderer.add("s", "s", html=False)
    renderer.add("h", source, html=True)
    letter = renderer.render(TemplateParts("t", "s", None, "h"), VALUES)
    assert isinstance(letter, Rendered), letter
    assert letter.html is not None
    return letter.html


@pytest.mark.parametrize("name", [*STEADY, *UNSTEADY])
def test_styles_apply_as_if_after_rendering(name: str) -> None:
    """Whenever the work is done, the document is the one that styling the rendered HTML gives."""
    source = (STEADY | UNSTEADY)[name]
    html = html_of(source, **VALUES)
    assert tree(html) == tree(inline_styles(unstyled(source)))


@pytest.mark.parametrize("name", STEADY)
def test_steady_styles_are_applied_once_at_load(name: str) -> None:
    """Ordinary templates pay nothing per message."""
    source = inline_at_load(STEADY[name])
    assert source is not None
    assert 'style="color: red;"' in source


@pytest.mark.parametrize("name", UNSTEADY)
def test_unsteady_styles_wait_for_the_rendered_html(name: str) -> None:
    """Where logic decides what a rule matches, nothing is guessed at load."""
    assert inline_at_load(UNSTEADY[name]) is None


def test_styles_that_cannot_be_inlined_stay_and_nothing_is_fetched() -> None:
    """Media queries and hover remain; linked stylesheets are dropped, not loaded."""
    html = html_of(
        '<link rel="stylesheet" href="http://127.0.0.1:1/x.css"><style>p{color:red}'
        "@media (max-width:600px){p{color:blue}} a:hover{color:green}</style><p>{{ x }}</p><a>y</a>",
        x=1,
    )
    assert '<p style="color: red;">1</p>' in html
    assert "@media (max-width:600px)" in html
    assert "a:hover" in html
    assert "127.0.0.1" not in html


def test_html_without_styles_is_left_alone() -> None:
    """A fragment stays the fragment its author wrote."""
    assert html_of("<p class=x>{{ a }}<br/>", a="1") == "<p class=x>1<br/>"


WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@given(WORDS)
def test_any_string_survives(value: str) -> None:
    """Verbatim in text; escaped in HTML so that a parser reads the same value back from text and attribute.

    Line ends become LF, because a message has one kind and readers see what was sent.
    """
    letter = PROPERTY.render({"x": value})
    assert isinstance(letter, Rendered)
    expected = value.replace("\r\n", "\n").replace("\r", "\n")
    assert letter.text == f"[{expected}]"
    assert letter.html is not None
    paragraph = LexborHTMLParser(letter.html).css_first("p")
    assert paragraph is not None
    assert paragraph.text() == f"[{expected}]"
    assert paragraph.attributes["title"] == f"[{expected}]"


PROPERTY: Any = EMPTY.draft(subject="s", text="[{{ x }}]", html='<p title="[{{ x }}]">[{{ x }}]</p>')

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["x", "y", "items", "self"]), JSON))
def test_any_json_is_an_answer(variables: dict[str, Any]) -> None:
    """Rendering never raises, whatever the variables hold, and leaves them alone."""
    before = repr(variables)
    source = "{{ x }}{% for i in y|default([]) %}{{ i.a.b }}{% endfor %}{{ items|length }}"
    assert isinstance(answer(variables, text=source), Rendered | RenderError)
    assert repr(variables) == before


SECRET = "hunter2-secret"


@pytest.mark.parametrize(
    "source",
    [
        "{{ x.y.z }}",
        "{{ x / 2 }}",
        "{{ x|int }}",
        "{{ x|round }}",
        "{% include x %}",
        "{% extends x %}",
        "{{ {}[x] }}",
        "{{ x() }}",
        "{{ x.nope() }}",
        "{% for a, b in [x] %}{% endfor %}",
        "{{ y / 0 }}",
        "{{ [1]|sort(attribute=x) }}{{ nope }}",
        "{{ ({}|attr(x)) }}",
        "{{ 1|map(x) }}",
        "{{ [1]|map(x)|list }}",
        "{{ [1]|select(x)|list }}",
    ],
)
def test_errors_never_hold_values(source: str) -> None:
    """Messages are stored and shown; they speak of the source only."""
    message = error_of(source, x=SECRET, y=31337)
    assert SECRET not in message
    assert "31337" not in message


def test_sealing_copies() -> None:
    """Later changes by the caller do not reach what was sealed, and objects keep their order."""
    original = {"b": [1, {"c": 2}], "a": 1}
    sealed = seal(original)
    original["b"] = []
    assert list(sealed) == ["b", "a"]
    assert sealed["b"] == (1, {"c": 2})


PLAIN_PARTS = {
    "subject": "News for {{ name }}",
    "text": "Dear {{name}},\n\nsee {{ link }}\n.. and\n",
    "html": '<p title="{{ name }}">Dear {{ name }},</p>\r\n<a href="{{ link }}">look</a>\n',
}


@given(st.fixed_dictionaries({"name": st.text(), "link": st.text()}))
@example({"name": 'Zoë O\'Hara & <sons> "x"', "link": "https://example.org/a?b=1&c=2"})
@example({"name": ".hidden", "link": " x  y "})
@example({"name": "a\u00a0b", "link": "\ud800"})
@example({"name": "", "link": "&#x2f;"})
def test_joined_parts_equal_those_of_the_engine(variables: dict[str, str]) -> None:
    """Parts with plain variables are joined; an operator in each tag leaves them to the engine."""
    with_operators = {part: source.replace("}}", "~ '' }}") for part, source in PLAIN_PARTS.items()}
    expected, found = answer(variables, **with_operators), answer(variables, **PLAIN_PARTS)
    assert found == expected or (isinstance(found, RenderError) and isinstance(expected, RenderError))


@pytest.mark.parametrize("name", ["true", "loop", "self"])
def test_names_of_the_engine_are_not_variables(name: str) -> None:
    assert answer({name: "x"}, text=f"{{{{ {name} }}}}") == answer({name: "x"}, text=f"{{{{ {name} ~ '' }}}}")


SENT_PARTS = {
    "plain": {
        "subject": "To {{ name }}",
        "text": "Dear {{ name }},\n\nsee {{ link }}\n",
        "html": "<p>{{ link }}</p>\n",
    },
    "one part": {"subject": "To {{ name }}", "text": "Zoë says: {{ name }}\r\nsee {{ link }}\rand go\n\n"},
    "no variables": {"subject": "News", "text": "Nothing new.\n"},
    "nearly too long": {"subject": "s", "text": f"{'x' * 900}{{{{ name }}}}{{{{ link }}}}\nto {{{{ name }}}}"},
    "too long": {"subject": "s", "text": f"{'x' * 999}{{{{ name }}}}"},
    "not canonical": {"subject": "s", "text": "Dear  {{ name }} \n.{{ link }}\n"},
}


@pytest.mark.parametrize("parts", SENT_PARTS.values(), ids=SENT_PARTS)
@given(variables=st.fixed_dictionaries({"name": st.text(), "link": st.text()}))
@example(variables={"name": "Zoë & <sons>", "link": "https://example.org/a?b=1&c=2"})
@example(variables={"name": "x" * 60, "link": "y" * 60})
@example(variables={"name": "ü" * 30, "link": "."})
def test_bytes_are_those_of_the_rendered_texts(parts: dict[str, str], variables: dict[str, str]) -> None:
    """A mail rendered as bytes leaves as the same bytes as one rendered as strings, and needs no stuffing."""
    draft = EMPTY.draft(**parts)
    assert not isinstance(draft, RenderError)
    ready = draft.renderer.render_bytes(draft.message, variables)
    if ready is None:
        return
    rendered = draft.render(variables)
    assert isinstance(rendered, Rendered)
    assert rendered.is_canonical
    assert ready.subject == rendered.subject
    for eight_bit in (True, False):
        sent = ComposedMessage((), "seed", ready.text, ready.html).encode(eight_bit=eight_bit)
        assert sent == ComposedMessage((), "seed", rendered.text, rendered.html).encode(eight_bit=eight_bit)
        assert stuffed(sent) == sent + END


@pytest.mark.parametrize(
    "name,variables,is_ready",
    [
        ("plain", {"name": "Zoë", "link": "https://example.org"}, True),
        ("no variables", {}, True),
        ("plain", {"name": "two\nlines", "link": "x"}, False),
        ("plain", {"name": 1, "link": "x"}, False),
        ("plain", {"name": "Ann"}, False),
        ("nearly too long", {"name": "x" * 49, "link": "y" * 49}, False),  # the name is in two lines
        ("nearly too long", {"name": "x" * 24, "link": "y" * 49}, True),
        ("too long", {"name": "x", "link": "y"}, False),
        ("not canonical", {"name": "x", "link": "y"}, False),
    ],
)
def test_usual_mail_is_rendered_as_bytes(name: str, variables: dict[str, Any], *, is_ready: bool) -> None:
    """Anything but lines of text in a canonical part is left to `render`."""
    draft = EMPTY.draft(**SENT_PARTS[name])
    assert not isinstance(draft, RenderError)
    assert (draft.renderer.render_bytes(draft.message, variables) is not None) is is_ready
