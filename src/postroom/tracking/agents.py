"""Classify the visitor behind a pixel or a link from the request alone.

| kind          | machine | description                                                                                |
|---------------|---------|--------------------------------------------------------------------------------------------|
| person        | no      | a browser or a mail client                                                                 |
| gmail_proxy   | no      | Google's image proxy, which fetches when a person opens the mail                           |
| yahoo_proxy   | no      | Yahoo's image proxy, likewise                                                              |
| outlook_proxy | no      | Microsoft's image proxy for Outlook on the web, likewise                                   |
| apple_privacy | yes     | Apple's Mail Privacy Protection: fetches every image of every mail, opened or not          |
| gmail_prefetch| yes     | Google fetching images when the mail arrives                                               |
| prefetch      | yes     | a browser or an app that declares a prefetch                                               |
| scanner       | yes     | a mail gateway that checks links, or any HEAD request                                      |
| crawler       | yes     | search engines, chat previews, libraries, monitors                                         |
| unknown       | yes     | no User-Agent: every mail client sends one                                                 |

Scanners that imitate a browser count as people: the request alone cannot show the difference. Results are cached,
because a few agents cause most requests.
"""

import re
from functools import lru_cache

from crawlerdetect import CrawlerDetect  # type: ignore[import-untyped, unused-ignore]  # its releases differ

from postroom.tracking.model import Agent

PERSON = Agent("person", is_machine=False)
PREFETCH = Agent("prefetch", is_machine=True)
SCANNER = Agent("scanner", is_machine=True)
CRAWLER = Agent("crawler", is_machine=True)
UNKNOWN = Agent("unknown", is_machine=True)

LONGEST_AGENT = 512
"""Maximum characters of a User-Agent that are read and stored; real ones have at most 300."""

_READ = 256
"""Maximum characters compared with the long list of crawlers, so that a forged agent does not cost milliseconds."""

_SCANNERS = (
    r"\b(?:barracuda|proofpoint|mimecast|safelinks|defender|urldefense|symantec|messagelabs|trendmicro|trend micro"
    r"|sophos|forcepoint|websense|fireeye|trellix|ironport|cisco.?(?:secure|talos)|mailguard|vade|hornetsecurity"
    r"|cloudmark|bitdefender|kaspersky|avanan|zscaler|zix|appriver|spamtitan)"
)
_RULES: tuple[tuple[re.Pattern[str], Agent], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), Agent(kind, is_machine))
    for pattern, kind, is_machine in (
        (r"^Mozilla/5\.0$", "apple_privacy", True),
        (r"Chrome/42\.0\.2311\.135 Safari/537\.36 Edge/12\.246 Mozilla/5\.0$", "gmail_prefetch", True),
        (r"GoogleImageProxy", "gmail_proxy", False),
        (r"YahooMailProxy", "yahoo_proxy", False),
        (r"OutlookImageProxy|OutlookMobileCloudProxy", "outlook_proxy", False),
        (_SCANNERS, "scanner", True),
        # Outlook for desktop, which lists of crawlers misclassify.
        (r"Microsoft Outlook|Microsoft Office/|MSOffice", "person", False),
    )
)
_crawlers = CrawlerDetect()


def classify(user_agent: str | None, *, method: str, is_prefetch: bool) -> Agent:
    """The visitor of a request. HEAD and prefetch requests come from machines, whatever the User-Agent."""
    if is_prefetch:
        return PREFETCH
    found = _classify_agent(user_agent[:LONGEST_AGENT]) if user_agent else UNKNOWN
    return SCANNER if method == "HEAD" and not found.is_machine else found


@lru_cache(maxsize=4096)
def _classify_agent(user_agent: str) -> Agent:
    text = user_agent.strip()
    if not text:
        return UNKNOWN
    for pattern, agent in _RULES:
        if pattern.search(text):
            return agent
    return CRAWLER if _crawlers.is_crawler(text[:_READ]) else PERSON
