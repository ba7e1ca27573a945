"""Classification of visitors: one row per rule."""

import pytest

from postroom.tracking.agents import classify

WINDOWS = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko)"
CHROME = f"{WINDOWS} Chrome/126.0.0.0 Safari/537.36"
PREFETCH = f"{WINDOWS} Chrome/42.0.2311.135 Safari/537.36 Edge/12.246 Mozilla/5.0"


@pytest.mark.parametrize(
    "agent, kind, is_machine",
    [
        (CHROME, "person", False),
        ("Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko)", "person", False),
        ("Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Thunderbird/128.1", "person", False),
        ("Microsoft Office/16.0 (Windows NT 10.0; Microsoft Outlook 16.0.17; Pro)", "person", False),
        ("Mozilla/5.0", "apple_privacy", True),
        (" Mozilla/5.0 ", "apple_privacy", True),
        (
            "Mozilla/5.0 (Windows NT 5.1; rv:11.0) Gecko Firefox/11.0 (via ggpht.com GoogleImageProxy)",
            "gmail_proxy",
            False,
        ),
        (PREFETCH, "gmail_prefetch", True),
        ("YahooMailProxy; https://help.yahoo.com/kb/yahoo-mail-proxy-SLN28749.html", "yahoo_proxy", False),
        ("Mozilla/5.0 (compatible; OutlookImageProxy)", "outlook_proxy", False),
        ("Barracuda Sentinel (EE)", "scanner", True),
        (f"{CHROME} Mimecast", "scanner", True),
        ("Proofpoint URL Defense", "scanner", True),
        ("Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)", "crawler", True),
        ("python-requests/2.32", "crawler", True),
        ("curl/8.9.1", "crawler", True),
        ("", "unknown", True),
        ("   ", "unknown", True),
        (None, "unknown", True),
    ],
)
def test_agent_kinds(agent: str | None, kind: str, is_machine: bool) -> None:  # noqa: FBT001 - a table
    """Each kind has a name, and counts as a person only if a person must have seen the mail."""
    found = classify(agent, method="GET", is_prefetch=False)
    assert (found.kind, found.is_machine) == (kind, is_machine)


def test_head_and_prefetch_are_machines() -> None:
    """HEAD and prefetch count as machines whatever the User-Agent; a known machine keeps its kind."""
    assert classify(CHROME, method="HEAD", is_prefetch=False).kind == "scanner"
    assert classify("curl/8", method="HEAD", is_prefetch=False).kind == "crawler"
    assert classify(CHROME, method="GET", is_prefetch=True) == ("prefetch", True)
