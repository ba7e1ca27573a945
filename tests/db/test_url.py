"""The database's URL for other programs: without the password, otherwise unchanged."""

import pytest

from postroom.db.url import without_password


@pytest.mark.parametrize(
    "url, address, password",
    [
        ("postgresql://h/d", "postgresql://h/d", None),
        ("postgresql://u@h/d", "postgresql://u@h/d", None),
        ("postgresql://u:@h/d", "postgresql://u@h/d", None),
        ("postgresql://u:p%40s%2Bs@h:5/d", "postgresql://u@h:5/d", "p@s+s"),
        ("postgresql://u:p@h1:1,h2:2/d?a=1", "postgresql://u@h1:1,h2:2/d?a=1", "p"),
        ("postgresql://u@h/d?password=p%40s%2Bs", "postgresql://u@h/d", "p@s+s"),
        ("postgresql://u@h/d?a=%2F&password=p&b=1%202", "postgresql://u@h/d?a=%2F&b=1%202", "p"),
        ("postgresql://u@h/d?password=p&password=q", "postgresql://u@h/d", "q"),
        ("postgresql://u@h/d?p%61ssword=p", "postgresql://u@h/d", "p"),
        ("postgresql://u:p@h/d?password=q", "postgresql://u@h/d", "p"),
        ("postgresql:///d?host=/run/pg&user=u&password=p", "postgresql:///d?host=/run/pg&user=u", "p"),
    ],
)
def test_password_is_removed_from_the_url(url: str, address: str, password: str | None) -> None:
    """Before the host or among the parameters, decoded; the rest is unchanged."""
    assert without_password(url) == (address, password)
