"""HTML that would cost a parser minutes is found before it is parsed; ordinary mail is not."""

import pytest

from postroom.post.html_guard import find_html_excess

DEEP = "has more than 1,000 nested or unclosed elements"


@pytest.mark.parametrize(
    "unit",
    [
        "<div>",
        "<b a={n}>",
        "<b a={n}><p>",
        "<a><p>",
        "<span><div></span>",
        "<b><div></b>",
        "<TABLE><tr>",
        "<div/>",
    ],
)
def test_deep_html_is_found(unit: str) -> None:
    """However the elements are written, and whether or not other tags are closed."""
    html = "".join(unit.format(n=n) for n in range(1_200))
    assert find_html_excess(html) == DEEP
    assert find_html_excess(f"{html}{'</div></b></x>' * 1_200}") == DEEP


@pytest.mark.parametrize("name", ["{n}=1", "a{n}"])
def test_a_tag_with_thousands_of_attributes_is_found(name: str) -> None:
    """Parsers look for duplicates among the attributes of a tag."""
    html = f"<p {' '.join(name.format(n=n) for n in range(4_000))}>x"
    assert find_html_excess(html) == "has a tag with more than 3,000 attributes"


@pytest.mark.parametrize(
    "html",
    [
        "<p>Hello" * 5_000,
        "<br>" * 5_000,
        "<hr/>" * 2_000,
        "<ul>" + "<li>one" * 5_000,
        "<div><b>x</b></div>" * 5_000,
    ],
)
def test_long_mail_is_parsed(html: str) -> None:
    """Elements that end by themselves, or that are closed, do not add up."""
    assert find_html_excess(html) is None
