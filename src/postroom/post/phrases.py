"""Phrases of mail servers that reject a mail, by their meaning. Used by `meaning`; case-insensitive.

Each line is a pattern for one phrasing. They are written for meaning, not for one product: the same sentence
comes from a dozen servers with small changes. They are matched against text without addresses, so a gap that excludes
the end of a sentence is not ended by the dot of a domain.
"""

import re


def _any(*phrases: str) -> re.Pattern[str]:
    return re.compile("|".join(phrases), re.IGNORECASE | re.DOTALL)


ACCOUNT_LIMIT = _any(r"rate[ -]?limit[ -]?exceeded|quotaexceeded|too many (?:login|request)s?")
"""The provider of a sender account limits it; `userRateLimitExceeded` and `quotaExceeded` are Google's names."""

SENDING_LIMIT = _any(
    r"\b(?:sending|outgoing|submission|relay(?:ing)?) (?:\w+ )?(?:quota|limit)|\bdaily (?:user )?sending\b",
    r"\bunusual sending activity\b",
)
"""The sending account has exhausted its own quota."""

FULL_MAILBOX = _any(
    r"\b(?:mail ?box|inbox|mail ?drop|mail ?folder)\b[^.;]{0,30}"
    r"\b(?:full|over ?quota|(?:over|exceed\w*) (?:\w+ )?quota|(?:size )?limit exceeded)",
    r"\b(?:user|recipient|account)(?:'s| is| has|) (?:\w+ ){0,2}over-?\s?quota",
)
"""The mailbox is full, in unambiguous words; `FULL` has the others."""

PACE = _any(
    r"\breceiving (?:mail|messages)\b.{0,40}\b(?:rate|too quickly)",
)
"""The recipient gets too much mail, from all senders together."""

GREYLISTED = _any(r"\bgr[ae]y-?list")

RATE = _any(
    r"\brate[\s-]?limit|\bthrottl|\bslow(?:er| down)\b|\btoo fast\b|\btemporarily (?:deferred|blocked)",
    r"\btoo many (?:\w+ ){0,2}(?:messages|e?-?mails|connections|sessions|requests)\b|\b(?:unusual|unexpected) (?:\w+ )?"
    r"(?:rate|volume|traffic)",
    r"\bsent to too many\b|\btoo many recipients (?:this|per|within|today|in (?:an?|the|this))\b",
)
"""We send too fast, or too much at once."""

BLOCKED = _any(
    # lists and reputation services, by name
    r"spam(?:haus|cop|rats|assassin)\b|\bbarracuda(?:central)?\b|\bsorbs\b|\buceprotect|\binvaluement|\bcloudmark\b",
    r"\bsender ?(?:score|base)\b|\btrend ?micro\b.{0,60}\b(?:block|list)|\bproofpoint\b.{0,80}\bblock",
    r"\b(?:rbl|dnsbl|dnswl|urib?l|surbl|zen|sbl|xbl|pbl)\b.{0,40}\b(?:list|block|reject|entr)",
    r"\b(?:block|black|deny|reject)[\s-]?list|\blisted (?:at|by|in|on)\b.{0,40}\b(?:rbl|dnsbl|\w+\.org|\w+\.net)\b",
    # our identity, or a classification of us
    r"\breputation\b|\bpoor sender\b|\bunsolicited\b|\bjunk ?mail\b|\bbulk mail rejected|\bspam(?!\w)",
    r"\bvirus(?:es)?\b|\bmalware\b|\bphish|\bbanned\b|\bs31[45]0\b|\bcs01\b|\[(?:ts|tss|bl|ri|pt)\d{2,3}\]",
    r"\bour (?:system|network|filters?) (?:has |have )?(?:detected|blocked|flagged)",
    r"\b(?:ip|address|host|client|server|sender|domain|network)\b.{0,60}"
    r"\b(?:is|was|been|are) (?:\w+ )?(?:blocked|banned|refused)",
    r"\binvalid ip\b|\bblocked (?:by|using|due|because|for|from)\b|\bmessages? (?:was|were|has been) blocked\b",
    r"\byour (?:message|mail|e-?mail)\b.{0,40}\b(?:looks like|considered|classified)",
    r"\bnot accept(?:ed|ing)? (?:mail )?from (?:your|this)\b",
    # authentication
    r"\b(?:dmarc|spf|dkim|openspf)\b|\bsender id\b|\bauthentication (?:is )?required|\bnot authenticated\b",
    r"\bunauthenticated (?:e-?mail|mail|message|sender)|\breverse dns\b|\brdns\b|\bptr (?:\w+ )?record\b|\bno ptr\b|"
    r"\bhelo\b",
    # policy, relaying
    r"\b(?:too many|rate[\s-]?limit|throttl|exceeded).{0,60}\b(?:messages|connections|e-?mails|sessions|rate)\b",
    r"\bpolicy\b.{0,60}\b(?:violat|reason|restrict|reject|block|prohibit)",
    r"\b(?:violat|prohibit|reject|refus|due to)\w*.{0,60}\bpolicy\b|\baccess denied.{0,40}\b(?:banned|sending|ip)\b",
    r"\brelay(?:ing)? (?:access )?(?:is )?(?:denied|not permitted|not allowed|prohibited)|\bunable to relay\b",
    r"\bsender (?:address |domain )?(?:rejected|denied|verif|not allow|block|too long)|\bcontent (?:reject|filter|"
    r"block|not accept)",
    r"\b(?:sender|mail ?from|return[- ]path|originator|helo|ehlo)\b[^.;]{0,60}"
    r"\b(?:not exist|not (?:be )?found|unknown|invalid|not resolv|unresolv|no mx|no a record)",
    r"\byour (?:host|server|ip|domain|network)\b|\bfrom:? (?:domain|address|header)\b|\bsending domain\b",
    r"\bdomain of (?:the )?sender\b|\b(?:invalid|unknown|bad|forged) (?:sender|return[- ]path|originator|helo|ehlo)",
    # security, content, permission
    r"\b(?:administrative(?:ly)?|security|content|message|attachment|url|link)\b[^.;]{0,40}"
    r"\b(?:prohibit|polic|reject|refus|violat|filter|scan|denied|restrict|unaccept|"
    r"not accept(?!\w* -- invalid mailbox)|"
    r"disallow)",
    r"\b(?:message|mail|e-?mail|transaction|submission|delivery) (?:was |has been |is |been )?"
    r"(?:refused|filtered|denied|discarded|quarantined|not authori[sz]ed)",
    r"\bnot (?:allowed|permitted|authori[sz]ed) to (?:send|post|write|mail|relay|deliver)|"
    r"\bpermission to (?:send|post)",
    r"\b(?:only|not) accept(?:s|ed|ing)? (?:(?:mail|messages|e-?mail)s? )?(?:from|over)|\bonly accepts\b|"
    r"\bask your postmaster\b|\brcpthosts\b|\b(?:callout|postmaster) verification fail|"
    r"(?<!address )\brejected: domain not found|\brestricted (?:mailbox|recipient|"
    r"address|group)",
    r"\brestricted\b|\baccess (?:is )?denied|\bprohibited\b|\bsuspicious\b|\bnot rfc|\bpermission denied",
    r"\brejected (?:by|due|for|because)\b[^.;]{0,60}\b(?:rule|filter|polic|reason|content|administrat|owner|user)",
    r"\b(?:challenge|whitelist|white-list|allow-?list)\b|\btls (?:is )?required|\bblocked\b|\bblock list",
)
"""They reject our mail, this mail, or mail at this rate."""

FULL = _any(
    r"\b(?:mail|in)?box(?:es)?\b.{0,40}\b(?:full|exceed|quota|over)|\bfull mail ?box|\bfolder is full|"
    r"\bdisk (?:quota|full)",
    r"\b(?:over|exceed\w*|out of|insufficient|not enough|no)\b.{0,30}\b(?:quota|storage|space)\b|\bover-?quota",
    r"\bquota\b.{0,40}\b(?:exceed|full|reach|over|violat|limit)|\bstorage\b.{0,30}\b(?:exceed|full|insufficient|"
    r"limit)",
    r"\bdisk ?space quota|\bnot (?:have )?(?:enough|sufficient) (?:\w+ )?(?:storage|space)|\bspace has been used up",
    r"\bmailfolder is full|\bmail ?drop (?:is )?(?:full|over)|\btoo much (?:mail|data)|\bspace not enough|"
    r"\bmaximum (?:mailbox|storage)",
    r"\bpostfach\b.{0,40}\bvoll|\bspeicherplatz|\bbo[iî]te\b.{0,40}\bpleine|\bbuz[oó]n\b.{0,40}\blleno",
    r"\bcasella\b.{0,40}\bpiena|\bcaixa\b.{0,40}\bcheia|\bpostvak\b.{0,40}\bvol\b|\bskrzynk\w+.{0,40}pe[lł]na",
    r"переполнен|邮箱.{0,10}满|容量|メールボックス.{0,20}いっぱい",
)

_THERE = (
    r"(?:user(?:name|id)?|recipient|rcpt|mail ?box|account|(?<!ip )address(?:ee)?|alias|person|customer|subscriber|"
    r"member)"
)
_GAP = r"[^.;]{0,40}"
_UNKNOWN = r"unknown(?! (?:mailer|error|reason|problem|status|cause|failure|host|domain|command|transport))"

NO_SUCH = _any(
    r"\bno (?:such )?(?:user|recipient|mail[ -]?box)\b[^\w]*(?:$|\b(?:here|found|by that|available for|at this|"
    r"exists?)\b)",
    r"\b(?:user|recipient|mail[ -]?box) (?:is )?(?:not found|unknown|does ?n[o']t exist|unrecogni[sz]ed)\b",
    r"\bunknown (?:user|recipient|mail[ -]?box)\b",
)
"""No such mailbox, in words that are evidence even under a code for policy; `NOBODY` has the others."""

NOBODY = _any(
    rf"\b{_THERE}(?:\(s\)|s)?\b{_GAP}\b(?:{_UNKNOWN}|invalid\b|not (?:be )?(?: ?found|known|present|"
    rf"recogni[sz]ed|listed|registered|"
    rf"valid)\b|"
    r"does ?n[o']?t (?:appear to )?exist|do not exist|not exist|(?:is|are|was) invalid|non-?existent|not a valid)",
    rf"\b{_THERE}\b{_GAP}\bno longer (?:exist|in use|valid|active|available|accept|receiv|employ|with|work|here|on)",
    rf"\b{_THERE}\b{_GAP}\b(?:disabled|deactivated|closed|terminated|deleted|removed|expired|discontinued|"
    rf"cancell?ed)",
    rf"\b(?:{_UNKNOWN}|invalid|no such|non-?existent|bad|unroute?able|disabled|deactivated|closed|deleted|"
    rf"illegal|unrecogni[sz]ed|obsolete) "
    r"(?:final delivery |local |e-?mail |mail|smtp |virtual |pop3? |destination |forward |final |recipient |user )*"
    rf"(?:{_THERE}|name|id|person|local[\s-]part|destination)\b",
    r"\bunknown or illegal alias|\bno (?:such )?(?:mail[ -]?)?box\b(?: (?:here|by that|found|available|with)|[^\w]*$)",
    rf"\bnot a local address\b|\bbad_recipient\b|\bdisableduser\b|\b{_THERE} unrecogni[sz]ed\b",
    r"\bno (?:such )?(?:user|one|person|account|mailbox|recipient|member)\b[^.;]{0,30}\b(?:by that name|here|"
    r"name|exists?|found)",
    r"\bthis user doesn't have an?\b|\bdoes not have an? [^.;]{0,40}account|\bnot a valid (?:mail ?box|user|"
    r"recipient|address)",
    r"\b(?:is )?not (?:a )?(?:known|valid|local|current|registered) (?:user|mail ?box|recipient|customer|member|"
    r"account)",
    r"\bnot in (?:our |the )?(?:directory|name & address|address book)|\brecipnotfound\b|\bnot our customer|"
    r"\bnot ?found in (?:\w+ ){0,2}directory|"
    r"\bno one (?:\w+ )?(?:at|with) (?:this|that)|\bno existe (?:ese|el|la|dich[ao]) |"
    r"\bnot listed in",
    r"\bunknown (?:in|to|at) (?:this|our|the|virtual|local|relay)\b|\b(?:user|recipient|"
    r"mailbox) (?:is )?not local\b|\bhas (?:left|moved)\b",
    r"\b(?:could not|cannot|can't|unable to) (?:find|locate|look ?up|resolve) (?:the |a |this |that )?"
    rf"(?:e-?mail )?{_THERE}|\bno (?:valid |existing )?(?:user|recipient)s?\b[^.;]{{0,20}}\bmatch",
    r"\b(?:empf[aä]nger|benutzer|postfach|adresse)\b[^.;]{0,60}\b(?:unbekannt|existiert nicht|nicht (?:gefunden|"
    r"bekannt))",
    r"\b(?:adresse|utilisateur|destinataire|bo[iî]te|compte)\b[^.;]{0,60}(?:inconnue?|n'existe pas|introuvable)",
    r"\b(?:direcci[oó]n|usuario|destinatario|buz[oó]n|cuenta)\b[^.;]{0,60}(?:desconocid|no existe|"
    r"no (?:se )?encontr)",
    r"\b(?:indirizzo|utente|destinatario|casella)\b[^.;]{0,60}(?:sconosciut|non (?:esiste|trovat|valid)|inesistente)",
    r"\b(?:endere[cç]o|usu[aá]rio|destinat[aá]rio|caixa|conta)\b[^.;]{0,60}(?:desconhecid|n[aã]o (?:existe|"
    r"encontrad))",
    r"\b(?:adres|gebruiker|ontvanger)\b[^.;]{0,40}(?:onbekend|bestaat niet)|пользовател\w+.{0,40}не (?:найден|"
    r"существует)",
    r"\b(?:adresat|u[zż]ytkownik|skrzynka)\b[^.;]{0,40}nie istnieje|用户不存在|收件人.{0,12}不存在",
    r"(?:宛先|ユーザー?).{0,20}(?:見つかりません|存在しません)",
)
"""The mailbox does not exist, or no longer exists."""

SUSPENDED = _any(
    rf"\b{_THERE}\b{_GAP}\b(?:suspended|inactive|locked|frozen|dormant|not active|on hold)",
    rf"\b(?:inactive|suspended|locked|frozen) {_THERE}\b",
)
"""The mailbox exists but accepts nothing: it may come back."""

NO_DOMAIN = _any(
    r"\b(?:domain|host)(?: or domain)?(?: name)?\b[^.;]{0,40}"
    r"\b(?:not found|does ?n[o']?t (?:exist|accept)|unknown|not known|no such|invalid)",
    r"\bnxdomain\b|\bno such (?:domain|host)|\bunknown (?:domain|host)|\bnull ?mx\b|\bno (?:valid )?mx\b",
    r"\b(?:domain|host)\b[^.;]{0,60}\bno mail (?:server|exchanger)|\baccepts? no mail\b|"
    r"\bunrouteable (?:mail )?domain",
    r"\bcouldn't find any host",
)

LATER = _any(
    r"(?<!not )(?<!not going to )\btry(?:ing)? (?:\w+ )?(?:again (?:later|in|after)|later)\b",
    r"\bretry (?:later|in|after)\b",
    r"(?<!not )\btemporar\w*|\bdeferred\b|\bcome back later|\bat a later time",
)
"""The sender is asked to retry: even a 5yz is then not final."""

DOUBT = _any(
    r"\btry(?:ing)? (?:\w+ )?(?:again|later)|\btemporar\w*|\btransient\b|\bretry\b|\bat this time\b|"
    r"\bservfail\b|\bdns error (?:when|while|during)\b",
    r"\b(?:name server|dns|lookup) (?:\w+ )?(?:timeout|timed out|failure)\b|\bcurrently\b",
    r"\bdeferred\b|\bname service error\b(?!.{0,80}host not found)",
)
"""The text casts doubt on a missing mailbox: it is no evidence."""

AWAY = _any(
    r"\btimed?[ -]?out\b|\bconnection (?:refused|reset|lost|dropped|closed)|\bnetwork (?:is )?unreachable",
    r"\brefused to talk\b|\bno route to host|\bhost\b.{0,40}\b(?:unreachable|down|not respond)|\btoo many hops|"
    r"\bloop(?:s|ing)?\b|"
    r"\bhop count",
    r"\bretry time(?:out)?\b|\bexpired\b|\b(?:could not|unable to) connect|\bgave up\b|\bnot going to try again",
    r"\bsystem (?:is )?(?:resources|full|overload|busy)|\btemporar(?:y|ily)\b|\btry again later|\bname service error",
    r"\btls\b.{0,40}\b(?:required|fail|handshake|negotiat)",
    r"\b(?:mailer|system|i/?o|internal|local|configuration|config|server|lookup|software|database|"
    r"ldap) (?:\w+ )?error\b",
    r"\b(?:command|program|process|filter) (?:died|failed|output|exited)|\bexit (?:status|code)\b|\bcan(?:not|"
    r"'t) (?:create|open|write)",
    r"\bnot responding\b|\bservice (?:is )?(?:un|not )available|\bnot reachable\b|\bqueue (?:period|time)\b|"
    r"\bdeadline\b",
)
"""Their servers cannot be reached, or do not work."""

SIZE = _any(
    r"\bmessage\b.{0,40}\b(?:too (?:large|big)|exceeds|size exceed)|\bsize limit|\bmax(?:imum)? (?:message )?size",
)
"""This mail is too large; some servers say so under 5.1.1."""

MESSAGE = _any(
    r"\bline (?:is )?too long|\bheaders?\b.{0,30}\b(?:missing|malformed|invalid|duplicate|format error)|\bsmtputf8\b",
    r"\bmime\b.{0,30}\b(?:error|invalid)|\battachment\b.{0,60}\b(?:not allowed|blocked|type)|\bbare (?:lf|cr)\b",
)
"""This mail is invalid for the server."""

REJECTED = _any(r"\b(?:message|e?-?mail) (?:(?:was|is|has been) )?(?:rejected|rejet[eé]e?\b)")
"""The mail is rejected without a reason: more often for its sender or content than for the mailbox."""

UNAVAILABLE = _any(r"\bmail ?box (?:is )?unavaila?ble\b")
"""The text that RFC 5321 gives for a 550 of any reason."""

_GUESS = _any(
    r"\b(?:may|might|maybe|perhaps|possibl[ey]|either|usually|probably|likely|reasons? (?:include|are))\b",
    r"\bdouble-?check|\b(?:please (?:check|verify)|check (?:the|that|your|for)|make sure|verify (?:the|that))\b",
)
_SENTENCE_ENDS = re.compile(r"[.;!?]")
_ADDRESS = re.compile(r"<[^<>\s]{1,320}@[^<>\s]{1,320}>|[\w.+'=-]{1,64}@[\w.-]{1,255}")


def without_guesses(text: str) -> str:
    """A text without sentences that guess: "the address may not exist, or the mailbox is full"."""
    if _GUESS.search(text) is None:
        return text
    return ". ".join(sentence for sentence in _SENTENCE_ENDS.split(text) if _GUESS.search(sentence) is None)


def without_addresses(text: str) -> str:
    """A text without addresses: spam@example.org or blocklist.example.org inside <> is no reason."""
    return _ADDRESS.sub(" ", text)
