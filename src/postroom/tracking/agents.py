"""Who asked for a pixel or a link, told from what the request says about itself.

| kind          | machine | what it is                                                                                 |
|---------------|---------|--------------------------------------------------------------------------------------------|
| person        | no      | a browser or a mail program, as far as anybody can tell                                    |
| gmail_proxy   | no      | Google's image proxy, which asks when a person opens the mail                              |
| yahoo_proxy   | no      | Yahoo's, likewise                                                                          |
| outlook_proxy | no      | Microsoft's, for Outlook on the web, likewise                                              |
| apple_privacy | yes     | Apple's Mail Privacy Protection: fetches every image of every mail, opened or not          |
| gmail_prefetch| yes     | Google fetching images when the mail arrives                                               |
| prefetch      | yes     | a browser or an app that fetches ahead, and says so                                        |
| scanner       | yes     | a mail gateway that follows links to see where they lead, or anything that asks with HEAD  |
| crawler       | yes     | search engines, previews of chats, libraries, monitors                                     |
| unknown       | yes     | nothing was said: no program that people read mail with does that                          |

Scanners that pretend to be a browser are taken for people: from the request alone nobody can know. Answers are
remembered, because the same few agents ask all day.
"""

import re
from functools import lru_cache

from crawlerdetect import CrawlerDetect  # type: ignore[import-untyped, unused-ignore]

from postroom.tracking.model import Agent

PERSON = Agent("person", is_machine=False)
PREFETCH = Agent("prefetch", is_machine=True)
SCANNER = Agent("scanner", is_machine=True)
CRAWLER = Agent("crawler", is_machine=True)
UNKNOWN = Agent("unknown", is_machine=True)

LONGEST_AGENT = 512
"""Characters of a User-Agent that are read and kept; real ones have at most 300."""

_READ = 256
"""Characters that are compared with the list of crawlers, which is long: a made-up agent must not cost milliseconds."""

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
        # Outlook on a desk, which lists of crawlers take for one of them.
        (r"Microsoft Outlook|Microsoft Office/|MSOffice", "person", False),
    )
)
_crawlers = CrawlerDetect()


def classify(user_agent: str | None, *, method: str, is_prefetch: bool) -> Agent:
    """Who asked. A request that shows nobody anything is a machine's, whatever it calls itself."""
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
