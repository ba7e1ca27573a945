"""Classification of rejections: one row per wording."""

import pytest

from postroom.feedback.model import BounceClass, classify
from postroom.post.reply import Stage

HARD = BounceClass.RECIPIENT_HARD
SOFT = BounceClass.RECIPIENT_SOFT
AWAY = BounceClass.INFRASTRUCTURE
POLICY = BounceClass.POLICY
MESSAGE = BounceClass.MESSAGE
UNKNOWN = BounceClass.UNKNOWN

BY_CODE = [
    (550, "5.1.1", "no", HARD),
    (550, "5.1.2", "no", AWAY),
    (553, "5.1.3", "no", UNKNOWN),
    (553, "5.1.4", "no", SOFT),
    (551, "5.1.6", "no", HARD),
    (550, "5.1.7", "no", POLICY),
    (550, "5.1.8", "no", POLICY),
    (556, "5.1.10", "no", HARD),
    (550, "5.2.0", "no", SOFT),
    (550, "5.2.1", "no", HARD),
    (552, "5.2.2", "no", SOFT),
    (552, "5.2.3", "no", MESSAGE),
    (550, "5.2.4", "no", AWAY),
    (554, "5.3.0", "no", AWAY),
    (552, "5.3.1", "no", AWAY),
    (554, "5.3.2", "no", AWAY),
    (552, "5.3.4", "no", MESSAGE),
    (554, "5.3.5", "no", AWAY),
    (554, "5.4.0", "no", AWAY),
    (554, "5.4.4", "no", AWAY),
    (554, "5.4.6", "no", AWAY),
    (550, "5.4.7", "no", AWAY),
    (554, "5.5.0", "no", MESSAGE),
    (554, "5.6.0", "no", MESSAGE),
    (550, "5.7.0", "no", POLICY),
    (550, "5.7.1", "no", POLICY),
    (550, "5.7.23", "no", POLICY),
    (550, "5.7.26", "no", POLICY),
    (550, "5.7.515", "no", POLICY),
    (None, "4.1.1", "no", SOFT),
    (None, "4.2.1", "no", SOFT),
    (None, "4.2.2", "no", SOFT),
    (None, "4.4.1", "no", AWAY),
    (None, "4.4.7", "no", AWAY),
    (None, "4.7.0", "no", POLICY),
    (550, None, "", UNKNOWN),
    (551, None, "", UNKNOWN),
    (552, None, "", SOFT),
    (553, None, "", UNKNOWN),
    (554, None, "", UNKNOWN),
    (556, None, "", UNKNOWN),
    (521, None, "", UNKNOWN),
    (530, None, "", POLICY),
    (571, None, "", UNKNOWN),
    (421, None, "", AWAY),
    (450, None, "", SOFT),
    (451, None, "", AWAY),
    (452, None, "", SOFT),
    (None, None, "", UNKNOWN),
]

BY_TEXT = [
    # unknown user
    (550, "5.0.0", "User unknown", HARD),
    (550, None, "No such user here", HARD),
    (550, None, "unknown user account", HARD),
    (550, None, "Invalid recipient", HARD),
    (554, None, "delivery error: dd This user doesn't have a yahoo account", HARD),
    (554, None, "delivery error: dd Requested mail action aborted, mailbox not found", HARD),
    (550, None, "The email account that you tried to reach is disabled", HARD),
    (550, None, "550 RESOLVER.ADR.RecipNotFound; not found", HARD),
    (550, None, "sorry, no mailbox here by that name", HARD),
    (554, None, "Recipient address rejected: user does not exist", HARD),
    (553, None, "this address no longer exists", HARD),
    (550, None, "unknown or illegal alias: ann", HARD),
    (550, "5.0.0", "Empfänger ist unbekannt", HARD),
    (550, "5.0.0", "l'adresse du destinataire n'existe pas", HARD),
    (550, "5.0.0", "la dirección no existe", HARD),
    (550, "5.0.0", "utente sconosciuto", HARD),
    (550, "5.0.0", "o usuário não existe", HARD),
    (550, "5.0.0", "adres onbekend", HARD),
    (550, "5.0.0", "пользователь не найден", HARD),
    (550, "5.0.0", "用户不存在", HARD),
    (550, None, "User ann (ann@example.org) not listed in Domino Directory", HARD),
    (550, "5.0.0", "The recipient name is not recognized", HARD),
    (553, "5.3.0", "Addressee unknown, relay=[192.0.2.1]", HARD),
    (None, None, "Invalid final delivery userid: ann@example.org", HARD),
    (554, None, "This account has been disabled or discontinued", HARD),
    (550, None, "no existe ese usuario", HARD),
    # no such domain
    (None, "5.4.4", "Host or domain name not found. Name service error: Host not found", HARD),
    (550, None, "Domain does not exist", HARD),
    (None, "5.4.4", "DNS error: NXDOMAIN", HARD),
    (None, "5.1.0", "unrouteable mail domain", HARD),
    (556, None, "domain accepts no mail (nullMX)", HARD),
    # full
    (554, None, "mailbox is full", SOFT),
    (552, "5.0.0", "Quota exceeded (mailbox for user is full)", SOFT),
    (550, None, "user is over quota", SOFT),
    (550, None, "The recipient's inbox is out of storage space", SOFT),
    (550, "5.0.0", "Das Postfach ist voll", SOFT),
    (550, "5.0.0", "la boîte aux lettres est pleine", SOFT),
    (550, "5.0.0", "el buzón está lleno", SOFT),
    (450, "4.2.1", "The user you are trying to contact is receiving mail too quickly", SOFT),
    (550, "5.2.1", "The user is receiving mail at a rate that prevents more", SOFT),
    # the receiving servers
    (None, None, "connection timed out", AWAY),
    (None, None, "retry timeout exceeded", AWAY),
    (None, "5.4.6", "mail for example.org loops back to myself", AWAY),
    (None, None, "I'm not going to try again; this message has been in the queue too long", AWAY),
    # the message
    (552, None, "message size exceeds fixed maximum message size", MESSAGE),
    (550, None, "line too long", MESSAGE),
    (553, "5.6.7", "SMTPUTF8 is required but was not offered", MESSAGE),
]

BLOCKS_ON_US = [
    (550, "5.1.1", "mail from 192.0.2.1 blocked using zen.spamhaus.org"),
    (554, None, "Service unavailable; Client host [192.0.2.1] blocked using bl.spamcop.net"),
    (550, None, "JunkMail rejected - sender is listed at b.barracudacentral.org"),
    (550, "5.7.1", "Message rejected as spam"),
    (421, "4.7.0", "[TSS04] Messages from 192.0.2.1 temporarily deferred due to unexpected volume"),
    (554, None, "Message not allowed - [PH01] Email not accepted for policy reasons"),
    (550, None, "SC-001 Mail rejected for policy reasons: your IP has been blocked"),
    (
        550,
        "5.7.1",
        "Unfortunately, messages from [192.0.2.1] weren't sent. Part of their network is on our block list (S3150)",
    ),
    (550, "5.7.26", "This mail has been blocked because the sender is unauthenticated: SPF and DKIM did not pass"),
    (550, None, "Unauthenticated email from example.net is not accepted due to domain's DMARC policy"),
    (550, "5.7.515", "Access denied, sending domain does not meet the required authentication level"),
    (554, "5.7.1", "Relay access denied"),
    (550, None, "relaying not permitted"),
    (550, None, "Sender address rejected: not logged in"),
    (550, None, "Sender verify failed"),
    (550, None, "poor reputation of your server"),
    (554, None, "your mail was considered unsolicited"),
    (550, None, "too many messages from your server, slow down"),
    (450, "4.2.0", "Recipient address rejected: Greylisted, see you later"),
    (550, "5.2.1", "Mailbox unavailable: your address is blocked by the recipient's reputation filter"),
    (550, None, "no PTR record for your host, reverse DNS required"),
    (554, "5.3.0", "Content rejected by filter"),
    (550, "5.1.1", "The message contains a virus"),
    (550, "5.1.0", "Blocked due to phishing"),
    (550, None, "Access denied, banned sending IP [192.0.2.1]"),
    (550, None, "550 5.7.1 user unknown, your IP is on a blocklist"),
]


NOT_FOR_GOOD = [
    (550, None, "Bad SPF records for [example.org:192.0.2.1], see http://openspf.example", POLICY),
    (550, None, "Rejected", UNKNOWN),
    (550, "5.1.1", "RCPT TO:<ann@example.org> max message size exceeded", MESSAGE),
    (554, None, "Transaction failed", UNKNOWN),
    (550, None, "Requested action not taken: mailbox unavailable", UNKNOWN),
    (550, "5.1.0", "Address rejected ann@example.org", UNKNOWN),
    (550, "5.4.1", "Recipient address rejected: Access denied", POLICY),
    (550, None, "Recipient is only accepting mail from specific email addresses", POLICY),
    (550, None, "Message refused by the security policy of the recipient", POLICY),
    (554, None, "Message rejected: the content is not acceptable", POLICY),
    (550, None, "Mail from unknown sender domain", POLICY),
    (550, "5.1.1", "sender domain of ann@example.net does not exist", POLICY),
    (550, None, "Your host's IP address is unknown", POLICY),
    (550, None, "That domain isn't in my list: relaying denied", POLICY),
    (552, None, "ann@example.org mailbox full", SOFT),
    (550, None, "ann@example.org user overquota", SOFT),
    (550, "5.1.1", "user over quota", SOFT),
    (550, "5.1.1", "account disabled temporarily for exceeding its receiving quota", SOFT),
    (550, "5.2.1", "Mailbox temporarily disabled", SOFT),
    (550, None, "account has been suspended", SOFT),
    (550, None, "inactive user", SOFT),
    (None, "5.4.4", "Name service error for name=example.org type=MX: Host not found, try again", AWAY),
    (554, "5.3.0", "unknown mailer error 1", AWAY),
    (None, "5.3.0", "Command died with status 1: /usr/bin/procmail", AWAY),
    (550, None, "local configuration error for user ann", AWAY),
    (None, None, "can't create user output file", AWAY),
    (None, None, "The group may not exist, or you may not be a member of it", UNKNOWN),
    (550, None, "Possible reasons: the user does not exist; the mailbox is full", SOFT),
    (None, None, "Please check that the address exists, perhaps the user is unknown.", UNKNOWN),
]


@pytest.mark.parametrize("code, enhanced, text, expected", NOT_FOR_GOOD)
def test_hard_bounces_need_evidence(code: int | None, enhanced: str | None, text: str, expected: BounceClass) -> None:
    """Blocks, system errors, full mailboxes, bare codes and guesses are never hard."""
    assert classify(code, enhanced, text) is expected


@pytest.mark.parametrize("code", range(500, 600))
def test_bare_codes_are_not_hard(code: int) -> None:
    """A 5yz without text suppresses no address."""
    assert classify(code, None, str(code)) is not HARD


@pytest.mark.parametrize("code, enhanced, text, expected", BY_CODE)
def test_codes(code: int | None, enhanced: str | None, text: str, expected: BounceClass) -> None:
    """Without a conclusive text, the enhanced code decides, then the SMTP code."""
    assert classify(code, enhanced, text) is expected


@pytest.mark.parametrize("code, enhanced, text, expected", BY_TEXT)
def test_texts(code: int | None, enhanced: str | None, text: str, expected: BounceClass) -> None:
    """If the code is generic, the text decides, in any supported language."""
    assert classify(code, enhanced, text) is expected


@pytest.mark.parametrize("code, enhanced, text", BLOCKS_ON_US)
def test_blocks_are_never_attributed_to_the_recipient(code: int | None, enhanced: str | None, text: str) -> None:
    """Reputation, authentication, blocklists and rate limits are policy, even under a code for an unknown user."""
    assert classify(code, enhanced, text) is POLICY


@pytest.mark.parametrize("text", ["<spam@example.org>: user unknown", "blocklist@example.org: no such user"])
def test_words_inside_an_address_are_ignored(text: str) -> None:
    """A recipient whose address contains a keyword is still an unknown user."""
    assert classify(550, "5.1.1", text) is HARD


@pytest.mark.parametrize("code, enhanced, text", [(450, "4.1.1", "user unknown"), (450, None, "user unknown")])
def test_temporary_codes_are_not_hard(code: int, enhanced: str | None, text: str) -> None:
    """A final failure after a 4yz is a soft bounce."""
    assert classify(code, enhanced, text) is SOFT


@pytest.mark.parametrize(
    "code, text, expected",
    [(550, "", POLICY), (554, "", POLICY), (451, "", AWAY), (550, "user unknown", HARD), (552, "too big", MESSAGE)],
)
def test_bare_550_after_data_is_not_about_the_recipient(code: int, text: str, expected: BounceClass) -> None:
    """A bare 550 to the content is policy; only a text about the mailbox makes it hard."""
    assert classify(code, None, text, stage=Stage.FINAL) is expected


def test_mail_from_is_never_about_the_recipient() -> None:
    """MAIL FROM names the sender only: "user unknown" is our own address there."""
    assert classify(550, "5.1.1", "user unknown", stage=Stage.SENDER) is POLICY
