"""What people write as an address, and what becomes of it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.delivery.address import domain_of, normalize, parse_address
from postroom.delivery.model import Address


@pytest.mark.parametrize(
    "written, email, name",
    [
        ("a@example.org", "a@example.org", None),
        ("  a@example.org ", "a@example.org", None),
        ("<a@example.org>", "a@example.org", None),
        ("Ann.Lee+tag@Example.ORG", "Ann.Lee+tag@example.org", None),
        ("o'hara!#$%&*/=?^_`{|}~-@example.org", "o'hara!#$%&*/=?^_`{|}~-@example.org", None),
        ("Ann Lee <a@example.org>", "a@example.org", "Ann Lee"),
        ("Ann Lee<a@example.org>", "a@example.org", "Ann Lee"),
        ("J. R. R. (John) <a@example.org>", "a@example.org", "J. R. R. (John)"),
        ('"Lee, Ann \\"A\\" \\\\" <a@example.org>', "a@example.org", 'Lee, Ann "A" \\'),
        ('"" <a@example.org>', "a@example.org", None),
        ("Zoë Ωmega 🎉 <a@example.org>", "a@example.org", "Zoë Ωmega 🎉"),
        ("שלום <a@example.org>", "a@example.org", "שלום"),
        ("ann@example.org <ann@example.org>", "ann@example.org", "ann@example.org"),
        ("a@bücher.example", "a@xn--bcher-kva.example", None),
        ("a@xn--bcher-kva.example", "a@xn--bcher-kva.example", None),
        ("用户@例え.jp", "用户@xn--r8jz45g.jp", None),
        ("Zoë <zoë@BÜCHER.example>", "zoë@xn--bcher-kva.example", "Zoë"),
        ("user@localhost", "user@localhost", None),
        ("zoë@localhost", "zoë@localhost", None),
        ("zoë@host.invalid", "zoë@host.invalid", None),
        ("a@bücher.test", "a@xn--bcher-kva.test", None),
        ("user@machine.test", "user@machine.test", None),
        ("user@host.invalid", "user@host.invalid", None),
        ("a@1.example.org", "a@1.example.org", None),
        ("x" * 64 + "@example.org", "x" * 64 + "@example.org", None),
    ],
)
def test_accepts(written: str, email: str, name: str | None) -> None:
    """A usable address is read as its mailbox, domain in ASCII and lower case, and its name."""
    assert parse_address(written) == Address(email, name)


@pytest.mark.parametrize(
    "written, reason",
    [
        ("", "empty"),
        ("Ann <>", "empty"),
        ("ann", "@-sign"),
        ("@example.org", "before the @-sign"),
        ("ann@", "after the @-sign"),
        ("ann@host", "period"),
        ("ann@test", "period"),
        ("ann@bücher", "period"),
        ("ann@@example.org", "@"),
        ("a b@example.org", "SPACE"),
        ('"a b"@example.org', "Quoting"),
        ("ann@127.0.0.1", "top-level"),
        ("ann@[127.0.0.1]", "bracketed"),
        ("ann@ex_ample.org", "invalid characters"),
        ("ann@-example.org", "hyphen"),
        ("ann@example..org", "periods"),
        (".ann@example.org", "period"),
        ("ann@example.org.", "period"),
        ("a@example.org, b@example.org", "@"),
        ("a@example.org, Bob <b@example.org>", "more than one"),
        ("Ann <a@example.org> <b@example.org>", "Name <address>"),
        ("Ann <a@example.org", "Name <address>"),
        ("a@example.org>", "Name <address>"),
        ('"Ann <a@example.org>', "Name <address>"),
        ("a@example.org\r\nBcc: b@example.org", "control"),
        ("Ann\nBcc: x <a@example.org>", "control"),
        ("a\x00@example.org", "control"),
        ("Ann\x7f <a@example.org>", "control"),
        ("Ann\x85 <a@example.org>", "control"),
        ("Ann\u2028 <a@example.org>", "control"),
        ("Ann\ud800 <a@example.org>", "control"),
        ("Ann" * 400 + " <a@example.org>", "too long"),
        (" " * 999 + "<", "Name <address>"),
        ("x" * 65 + "@example.org", "64"),
        ("é" * 33 + "@example.org", "64"),
        ("a@" + "b" * 64 + ".org", "so many characters"),
        ("a@" + ("b" * 60 + ".") * 4 + "example.org", "254"),
    ],
)
def test_refuses(written: str, reason: str) -> None:
    """What cannot stand in an envelope is refused with a reason a person can use."""
    with pytest.raises(ValueError, match=reason) as caught:
        parse_address(written)
    assert type(caught.value) is ValueError
    assert len(str(caught.value)) < 120


@given(st.text(max_size=80))
@settings(max_examples=150)
def test_is_stable_or_refuses(written: str) -> None:
    """Whatever comes in, the answer is an address that reads as itself again, or a ValueError."""
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
