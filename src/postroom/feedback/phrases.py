"""What servers of the world say when they refuse a mail, by what they mean. Read by `classify`; case does not matter.

Each line is a pattern for a way of saying it. They were written for meaning, not for one product: the same sentence
comes from a dozen servers with small changes.
"""

import re


def _any(*phrases: str) -> re.Pattern[str]:
    return re.compile("|".join(phrases), re.IGNORECASE | re.DOTALL)


BLOCKED = _any(
    # lists and reputation services, by name
    r"spam(?:haus|cop|rats|assassin)\b|\bbarracuda(?:central)?\b|\bsorbs\b|\buceprotect|\binvaluement|\bcloudmark\b",
    r"\bsender ?(?:score|base)\b|\btrend ?micro\b.{0,60}\b(?:block|list)|\bproofpoint\b.{0,80}\bblock",
    r"\b(?:rbl|dnsbl|dnswl|urib?l|surbl|zen|sbl|xbl|pbl)\b.{0,40}\b(?:list|block|reject|entr)",
    r"\b(?:block|black|deny|reject)[\s-]?list|\blisted (?:at|by|in|on)\b.{0,40}\b(?:rbl|dnsbl|\w+\.org|\w+\.net)\b",
    # what we are, or what they take us for
    r"\breputation\b|\bpoor sender\b|\bunsolicited\b|\bjunk ?mail\b|\bbulk mail rejected|\bspam(?!\w)",
    r"\bvirus(?:es)?\b|\bmalware\b|\bphish|\bbanned\b|\bs31[45]0\b|\bcs01\b|\[(?:ts|tss|bl|ri|pt)\d{2,3}\]",
    r"\bour (?:system|network|filters?) (?:has |have )?(?:detected|blocked|flagged)",
    r"\b(?:ip|address|host|client|server|sender|domain|network)\b.{0,60}"
    r"\b(?:is|was|been|are) (?:\w+ )?(?:blocked|banned|refused)",
    r"\bblocked (?:by|using|due|because|for|from)\b|\bmessages? (?:was|were|has been) blocked\b",
    r"\byour (?:message|mail|e-?mail)\b.{0,40}\b(?:looks like|considered|classified)",
    r"\bnot accept(?:ed|ing)? (?:mail )?from (?:your|this)\b",
    # authentication
    r"\b(?:dmarc|spf|dkim)\b.{0,80}\b(?:fail|reject|polic|not pass|align|requir|invalid|check)",
    r"\b(?:fail\w*|unauthenticated|authentication)\b.{0,60}\b(?:dmarc|spf|dkim)\b",
    r"\bunauthenticated (?:e-?mail|mail|message|sender)|\breverse dns\b|\bptr record\b|\brdns\b|\bno ptr\b|\bhelo\b",
    # pace, policy, relaying
    r"\b(?:too many|rate[\s-]?limit|throttl|exceeded).{0,60}\b(?:messages|connections|e-?mails|sessions|rate)\b",
    r"\bpolicy\b.{0,60}\b(?:violat|reason|restrict|reject|block|prohibit)",
    r"\b(?:violat|prohibit|reject|refus|due to)\w*.{0,60}\bpolicy\b|\baccess denied.{0,40}\b(?:banned|sending|ip)\b",
    r"\brelay(?:ing)? (?:access )?(?:is )?(?:denied|not permitted|not allowed|prohibited)|\bunable to relay\b",
    r"\bsender (?:address )?(?:rejected|denied|verif|not allow|block)|\bcontent (?:reject|filter|block|not accept)",
    r"\bgr[ae]y-?list",
)
"""They do not want our mail, or this mail, or mail at this pace."""

FULL = _any(
    r"\b(?:mail)?box\b.{0,40}\b(?:full|exceed|quota|over)|\bfull mailbox|\bmail ?folder is full|\bdisk (?:quota|full)",
    r"\b(?:over|exceed\w*|out of|insufficient)\b.{0,30}\b(?:quota|storage|space)",
    r"\bquota\b.{0,40}\b(?:exceed|full|reach|over)|\bstorage\b.{0,30}\b(?:exceed|full|insufficient)",
    r"\bpostfach\b.{0,40}\bvoll|\bspeicherplatz|\bbo[iî]te\b.{0,40}\bpleine|\bbuz[oó]n\b.{0,40}\blleno",
    r"\bcasella\b.{0,40}\bpiena|\bcaixa\b.{0,40}\bcheia|\bpostvak\b.{0,40}\bvol\b|\bskrzynk\w+.{0,40}pe[lł]na",
    r"переполнен|邮箱.{0,10}满|容量|メールボックス.{0,20}いっぱい",
)

NOBODY = _any(
    r"\b(?:user|recipient|mailbox|account|address|addressee|alias)\b.{0,60}"
    r"\b(?:unknown|not (?:be )?found|does ?n[o']?t (?:appear to )?exist|not exist|not known|is invalid|undeliverable)",
    r"\b(?:user|recipient|mailbox|account|address)\b.{0,60}\bno longer (?:exist|in use|valid|active|available)",
    r"\b(?:user|recipient|mailbox|account|address)\b.{0,60}"
    r"\b(?:disabled|deactivated|suspended|closed|inactive|terminated|deleted|unavailable|unroutable|rejected)",
    r"\b(?:unknown|invalid|no such|non-?existent|bad|unroute?able|inactive|disabled|illegal) (?:e-?mail |mail)?"
    r"(?:user|recipient|address(?:ee)?|mailbox|account|alias|destination|person|local[\s-]part)",
    r"\bunknown or illegal alias|\bno (?:mail)?box (?:here|by that|found|available)",
    r"\bno (?:user|one|person|account|mailbox)\b.{0,30}\b(?:by that name|here|name)",
    r"\bthis user doesn't have a\b|\bdoes not have an? .{0,40}account|\bnot a valid (?:mailbox|user|recipient|address)",
    r"\bnot in (?:our )?directory|\brecipnotfound\b|\bnot our customer",
    r"\b(?:empf[aä]nger|benutzer|postfach|adresse)\b.{0,60}\b(?:unbekannt|existiert nicht|nicht (?:gefunden|bekannt))",
    r"\b(?:adresse|utilisateur|destinataire|bo[iî]te|compte)\b.{0,60}(?:inconnue?|n'existe pas|introuvable)",
    r"\b(?:direcci[oó]n|usuario|destinatario|buz[oó]n|cuenta)\b.{0,60}(?:desconocid|no existe|no (?:se )?encontr)",
    r"\b(?:indirizzo|utente|destinatario|casella)\b.{0,60}(?:sconosciut|non (?:esiste|trovat|valid)|inesistente)",
    r"\b(?:endere[cç]o|usu[aá]rio|destinat[aá]rio|caixa|conta)\b.{0,60}(?:desconhecid|n[aã]o (?:existe|encontrad))",
    r"\b(?:adres|gebruiker|ontvanger)\b.{0,40}(?:onbekend|bestaat niet)|пользовател\w+.{0,40}не (?:найден|существует)",
    r"\b(?:adresat|u[zż]ytkownik|skrzynka)\b.{0,40}nie istnieje|用户不存在|收件人.{0,12}不存在",
    r"(?:宛先|ユーザー?).{0,20}(?:見つかりません|存在しません)",
)
"""Nobody lives there, or not any more."""

NO_DOMAIN = _any(
    r"\b(?:domain|host)\b.{0,60}\b(?:not found|does ?n[o']?t (?:exist|accept)|unknown|not known|no such|invalid)",
    r"\bnxdomain\b|\bno such (?:domain|host)|\bunknown (?:domain|host)|\bnull ?mx\b|\bno (?:valid )?mx\b",
    r"\b(?:domain|host)\b.{0,60}\bno mail (?:server|exchanger)|\baccepts? no mail\b|\bunrouteable (?:mail )?domain",
    r"\bcouldn't find any host",
)

AWAY = _any(
    r"\btimed?[ -]?out\b|\bconnection (?:refused|reset|lost|dropped|closed)|\bnetwork (?:is )?unreachable",
    r"\bno route to host|\bhost\b.{0,40}\b(?:unreachable|down|not respond)|\btoo many hops|\bloop\b|\bhop count",
    r"\bretry time(?:out)?\b|\bexpired\b|\b(?:could not|unable to) connect|\bgave up\b|\bnot going to try again",
    r"\bsystem (?:is )?(?:resources|full|overload|busy)|\btemporar(?:y|ily)\b|\btry again later|\bname service error",
    r"\btls\b.{0,40}\b(?:required|fail|handshake|negotiat)",
)
"""Their servers cannot be reached."""

MESSAGE = _any(
    r"\bmessage\b.{0,40}\b(?:too (?:large|big)|exceeds|size)|\bsize limit|\bmaximum (?:message )?size",
    r"\bline (?:is )?too long|\bheaders?\b.{0,30}\b(?:missing|malformed|invalid|duplicate)|\bsmtputf8\b",
    r"\bmime\b.{0,30}\b(?:error|invalid)|\battachment\b.{0,60}\b(?:not allowed|blocked|type)|\bbare (?:lf|cr)\b",
)
"""This mail is too large, or not understood."""

PACE = _any(r"\breceiving (?:mail|messages)\b.{0,40}\b(?:rate|too quickly)")
"""The person gets too much mail, from anybody."""
