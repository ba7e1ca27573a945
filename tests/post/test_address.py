"""Parsing and normalisation of addresses."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.addresses import ACCEPTED, REFUSED

from postroom.post.address import DEEPEST_COMMENT, Address, domain_of, normalize, parse_address, split_addresses


@pytest.mark.parametrize("written, email, name", ACCEPTED)
def test_accepts(written: str, email: str, name: str | None) -> None:
    """A usable address is read as its mailbox, domain in ASCII and lower case, and its name."""
    assert parse_address(written) == Address(email, name)


@pytest.mark.parametrize("written, reason", REFUSED)
def test_refuses(written: str, reason: str) -> None:
    """An unusable address is rejected with a readable reason."""
    with pytest.raises(ValueError, match=reason) as caught:
        parse_address(written)
    assert type(caught.value) is ValueError
    assert len(str(caught.value)) < 120


@given(st.text(max_size=80))
@settings(max_examples=150)
def test_is_stable_or_refuses(written: str) -> None:
    """Any input gives an address that parses to itself, or a ValueError."""
    try:
        address = parse_address(written)
    except ValueError:
        return
    assert parse_address(address.email).email == address.email


@given(st.from_regex(r"[^<>]{0,20}<[a-zé.@ ]{0,12}@[a-zé.\-@]{1,12}>", fullmatch=True))
@settings(max_examples=150)
def test_accepted_addresses_are_safe(written: str) -> None:
    """An accepted address has one @, no blanks, no brackets, and no control character in its name."""
    try:
        address = parse_address(written)
    except ValueError:
        return
    assert address.email.count("@") == 1
    assert not set(address.email) & set(' \t\r\n<>,;:"\\')
    assert domain_of(address.email).isascii()
    assert address.name is None or not any(ord(char) < 32 or ord(char) == 127 for char in address.name)


def test_normalize_folds_case() -> None:
    """Look-ups do not distinguish case, in any script."""
    assert normalize("Ann@Example.ORG") == normalize("ann@example.org")
    assert normalize("ΣΟΦΊΑ@example.org") == normalize("σοφία@example.org")


def test_domain_of_takes_the_last_part() -> None:
    """The domain is what follows the last @, in lower case."""
    assert domain_of("Ann@Example.ORG") == "example.org"
    assert domain_of('"a@b"@example.net') == "example.net"


@pytest.mark.parametrize(
    "value",
    ["(" * 50 + ")" * 50 + "(" * 50, r"(a \( b)" * 60, '"' + "(" * 60 + '" <a@b.example>', "(it's 5\" " + ")" * 60],
)
def test_ordinary_comments_are_read(value: str) -> None:
    """A parenthesis in quotes or after a backslash opens no comment, and comments side by side are not nested."""
    assert isinstance(split_addresses([value]), list)


@pytest.mark.parametrize("value", ["(" * 51, '(" ' * 51, "a@b.example, " + "(x " * 60 + ")" * 60])
def test_comments_nested_too_deeply_are_refused(value: str) -> None:
    """The standard parser calls itself for each level: 500 exceed the recursion limit of some interpreters."""
    assert DEEPEST_COMMENT == 50
    with pytest.raises(ValueError, match="nested too deeply"):
        split_addresses([value])
