"""The actions of a person on the pages of Mail and Audience, in the order of a day."""

from playwright.async_api import expect
from tests.support.builders import REFUSED, a_mail, accepted
from tests.support.dashboard import ambiguous, captured, given_up, tried
from tests.support.dashboard_actions import Step, Walker
from tests.support.played_campaign import HTML

# ── Mail ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _mail(walker: Walker) -> None:
    """A day of mail: some wait, one was refused, one was given up, one is ambiguous, and some were captured."""
    pool = walker.office.pool
    await accepted(pool, a_mail("bob@example.org", subject="Your invoice"), a_mail(subject="Your parcel"))
    await tried(pool, a_mail("cleo@example.org", subject="Your refund"), reply=REFUSED)
    await given_up(pool, a_mail("dan@example.org", subject="Your receipt"))
    await given_up(pool, a_mail("eve@example.net", subject="Your ticket", source="shop"))
    await ambiguous(pool)
    for subject in ("Hello Ada", "Hello Bob", "Hello Cleo"):
        link = f"<a href={walker.office.url}/sign-in>shop</a>"
        raw = f"Subject: {subject}\r\nFrom: Shop <shop@example.org>\r\nContent-Type: text/html\r\n\r\n<p>{link}</p>"
        await captured(pool, raw.encode(), subject=subject)


def _delivery(subject: str, condition: str) -> str:
    return (
        "EXISTS (SELECT FROM deliveries AS d JOIN delivery_payloads AS p ON p.delivery_id = d.id"
        f" WHERE p.subject = '{subject}' AND {condition})"
    )


MAIL = (
    Step(
        before=_mail,
        route="/deliveries/new",
        at="/deliveries",
        way=("New mail",),
        fields={"to": "Fay <fay@example.org>", "subject": "Your question", "text": "Hello Fay.", "lane": "bulk"},
        shows="The mail is accepted.",
        holds=_delivery("Your question", "d.lane = 'bulk'"),
        audit="delivery.send",
    ),
    Step(
        route="/deliveries/{delivery_id:int}/cancel",
        at="/deliveries?recipient=fay@example.org",
        way=("fay@example.org",),
        shows="The delivery is cancelled.",
        holds=_delivery("Your question", "d.state = 'cancelled'"),
        audit="delivery.cancel",
    ),
    Step(
        route="/deliveries/{delivery_id:int}/resend",
        at="/deliveries?recipient=fay@example.org",
        way=("fay@example.org",),
        shows="This is a new delivery of the same message.",
        holds=_delivery("Your question", "d.resend_of IS NOT NULL AND d.state = 'queued'"),
        audit="delivery.resend",
    ),
    Step(
        route="/deliveries/{delivery_id:int}/edit",
        at="/deliveries",
        way=("cleo@example.org", "Edit and send"),
        fields={"to": "cleo@example.com", "subject": "Your refund, again"},
        shows="This is a new delivery with your changes.",
        holds=_delivery("Your refund, again", "d.state = 'queued'"),
        audit="delivery.edit",
    ),
    Step(
        route="/deliveries/{delivery_id:int}/retry",
        at="/dead-letters",
        row="dan@example.org",
        shows="The delivery is due now.",
        holds=_delivery("Your receipt", "d.state = 'queued'"),
        audit="delivery.retry",
    ),
    Step(
        route="/dead-letters/{delivery_id:int}/settle",
        at="/dead-letters?reason=ambiguous",
        row="ambiguous",
        shows="The delivery counts as sent.",
        holds="EXISTS (SELECT FROM deliveries WHERE state = 'sent')",
        audit="dead_letter.settle",
    ),
    Step(
        route="/deliveries/mass-actions",
        at="/dead-letters",
        asked={"source": "shop"},
        shows="The mass action is started.",
        holds=_delivery("Your ticket", "d.state = 'queued'"),
        audit="delivery.mass_retry",
    ),
    Step(
        route="/deliveries/mass-actions",
        at="/deliveries?recipient=fay@example.org",
        way=("Cancel…",),
        shows="The mass action is started.",
        holds=_delivery("Your question", "d.resend_of IS NOT NULL AND d.state = 'cancelled'"),
        audit="delivery.mass_cancel",
    ),
    Step(
        route="/deliveries/mass-actions",
        at="/deliveries?recipient=bob@example.org",
        way=("Resend…",),
        shows="The mass action is started.",
        holds=_delivery("Your invoice", "d.resend_of IS NOT NULL"),
        audit="delivery.mass_resend",
    ),
    Step(
        route="/inbox/{message_id:int}/links",
        at="/inbox",
        way=("Hello Bob", "Checks"),
        shows="ok 200",
        audit="inbox.request_links",
        reason="Requests store nothing.",
    ),
    Step(
        route="/inbox/{message_id:int}/unread",
        at="/inbox",
        way=("Hello Ada",),
        shows="The message is marked as unread.",
        holds="EXISTS (SELECT FROM inbox_messages WHERE subject = 'Hello Ada' AND read_at IS NULL)",
        audit="inbox.mark",
    ),
    Step(
        route="/inbox/read",
        at="/inbox",
        shows="All messages are marked as read.",
        holds="NOT EXISTS (SELECT FROM inbox_messages WHERE read_at IS NULL)",
        audit="inbox.mark",
    ),
    Step(
        route="/inbox/{message_id:int}/release",
        at="/inbox",
        way=("Hello Cleo",),
        fields={"to": "boss@example.com"},
        shows="The message is released",
        holds="EXISTS (SELECT FROM deliveries WHERE source = 'inbox')",
        audit="inbox.release",
        needs=("deliveries:write",),
    ),
    Step(
        route="/inbox/{message_id:int}/delete",
        at="/inbox",
        way=("Hello Cleo",),
        shows="The message is deleted.",
        holds="NOT EXISTS (SELECT FROM inbox_messages WHERE subject = 'Hello Cleo')",
        audit="inbox.delete",
    ),
    Step(
        route="/inbox/clear",
        at="/inbox",
        shows="The inbox is empty: 2 deleted.",
        holds="NOT EXISTS (SELECT FROM inbox_messages)",
        audit="inbox.clear",
    ),
)

# ── Audience ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _campaign(condition: str) -> str:
    return f"EXISTS (SELECT FROM campaigns WHERE name LIKE 'Spring%' AND {condition})"


async def _type_a_draft(walker: Walker) -> None:
    """The preview follows the typing: the form is posted into a frame without a click."""
    await walker.page.locator("[name=subject]").fill("Hello {{ first_name }}")
    shown = walker.page.frame_locator("iframe[name^=preview]:not([hidden])")
    await expect(shown.locator(".subject")).to_have_text("Hello [first_name]")


AUDIENCE = (
    Step(
        route="/campaigns/preview",
        at="/campaigns",
        way=("New campaign",),
        act=_type_a_draft,
        shows=None,
        reason="Nothing is stored.",
        audit=None,
    ),
    Step(
        route="/campaigns/new",
        at="/campaigns",
        way=("New campaign",),
        fields={"name": "Spring", "subject": "Spring is here", "html": HTML.replace("{", "{{").replace("}", "}}")},
        shows="The draft is saved. Upload its recipients next.",
        holds=_campaign("status = 'draft'"),
        audit="campaign.create",
    ),
    Step(
        route="/campaigns/{campaign_id:int}/edit",
        at="/campaigns",
        way=("Spring", "Edit"),
        fields={"subject": "Spring is here at last", "start_at": "2030-03-20T09:00"},
        shows="The draft is saved.",
        holds=_campaign("subject = 'Spring is here at last' AND start_at = '2030-03-20 09:00Z'"),
        audit="campaign.update",
    ),
    Step(
        route="/campaigns/{campaign_id:int}/upload",
        at="/campaigns",
        way=("Spring", "Upload recipients"),
        fields={"file": "{people}"},
        shows="People added",
        holds=_campaign("total_count = 30"),
        audit="campaign.upload",
    ),
    Step(
        route="/campaigns/{campaign_id:int}/test",
        at="/campaigns",
        way=("Spring", "Preview and test"),
        fields={"to": "boss@example.org"},
        shows="A test mail is on its way to boss@example.org.",
        holds=_delivery("[Test] Spring is here at last", "d.state = 'queued'"),
        audit="campaign.test",
    ),
    Step(
        route="/campaigns/{campaign_id:int}/start",
        at="/campaigns",
        way=("Spring", "Start"),
        shows="The campaign is started: 30 mails",
        holds=_campaign("status = 'active'"),
        audit="campaign.start",
    ),
    Step(
        route="/campaigns/{campaign_id:int}/reopen",
        at="/campaigns",
        way=("Spring",),
        shows="The campaign is a draft again.",
        holds=_campaign("status = 'draft'"),
        audit="campaign.reopen",
    ),
    Step(
        route="/campaigns/{campaign_id:int}/start",
        at="/campaigns",
        way=("Spring", "Start"),
        shows="The campaign is started: 30 mails",
        holds=_campaign("status = 'active'"),
        audit="campaign.start",
    ),
    Step(
        route="/campaigns/{campaign_id:int}/pause",
        at="/campaigns",
        way=("Spring",),
        shows="The campaign is paused.",
        holds=_campaign("status = 'paused'"),
        audit="campaign.pause",
    ),
    Step(
        route="/campaigns/{campaign_id:int}/resume",
        at="/campaigns",
        way=("Spring",),
        shows="The campaign is active again.",
        holds=_campaign("status = 'active'"),
        audit="campaign.resume",
    ),
    Step(
        route="/campaigns/{campaign_id:int}/cancel",
        at="/campaigns",
        way=("Spring",),
        shows="The campaign is cancelled.",
        holds=_campaign("status = 'cancelled'"),
        audit="campaign.cancel",
    ),
    Step(
        route="/campaigns/new",
        at="/campaigns",
        way=("Spring", "Duplicate"),
        shows="The draft is saved. Upload its recipients next.",
        holds=_campaign("name = 'Spring (copy)' AND status = 'draft'"),
        audit="campaign.create",
    ),
    Step(
        route="/campaigns/{campaign_id:int}/delete",
        at="/campaigns",
        way=("Spring (copy)",),
        shows="The draft is deleted.",
        holds="NOT EXISTS (SELECT FROM campaigns WHERE name = 'Spring (copy)')",
        audit="campaign.delete",
    ),
    Step(
        route="/suppressions/new",
        at="/suppressions",
        way=("Add",),
        fields={"email": "gone@example.org", "reason": "complaint", "detail": "wrote to support"},
        shows="gone@example.org is suppressed.",
        holds="EXISTS (SELECT FROM suppressions WHERE address = 'gone@example.org' AND reason = 'complaint')",
        audit="suppression.add",
    ),
    Step(
        route="/suppressions/lift",
        at="/suppressions",
        way=("gone@example.org",),
        shows="gone@example.org gets mail again.",
        holds="NOT EXISTS (SELECT FROM suppressions WHERE address = 'gone@example.org')",
        audit="suppression.lift",
    ),
    Step(
        route="/suppressions/import",
        at="/suppressions",
        way=("Import",),
        fields={"list": "one@example.org\ntwo@example.org\nno address"},
        shows="2 addresses were written, 1 line was rejected.",
        holds="(SELECT count(*) FROM suppressions WHERE address IN ('one@example.org', 'two@example.org')) = 2",
        audit="suppression.import",
    ),
    Step(
        route="/senders/new",
        at="/senders",
        way=("Add a sender",),
        fields={
            "email": "news@example.org",
            "smtp_host": "127.0.0.1",
            "smtp_port": "{smtp}",
            "smtp_use_tls": "",
            "lanes": "bulk",
            "warmup": "on",
        },
        shows="news@example.org is added.",
        holds="EXISTS (SELECT FROM sender_accounts WHERE email = 'news@example.org' AND lanes = '{bulk}')",
        audit="sender.create",
    ),
    Step(
        route="/senders/{sender_id:int}/edit",
        at="/senders",
        way=("news@example.org", "Change"),
        fields={"daily_limit": "700", "lanes": "bulk auth", "notes": "for the newsletter"},
        shows="news@example.org is changed.",
        holds="EXISTS (SELECT FROM sender_accounts WHERE daily_limit = 700 AND lanes = '{bulk,auth}')",
        audit="sender.change",
    ),
    Step(
        route="/senders/{sender_id:int}/test",
        at="/senders",
        way=("news@example.org",),
        shows="The account works: the mail was accepted.",
        reason="The trial is not stored.",
        audit="sender.test",
    ),
    Step(
        route="/senders/{sender_id:int}/pause",
        at="/senders",
        row="news@example.org",
        shows="news@example.org is paused.",
        holds="EXISTS (SELECT FROM sender_accounts WHERE status = 'paused')",
        audit="sender.pause",
    ),
    Step(
        route="/senders/{sender_id:int}/resume",
        at="/senders",
        row="news@example.org",
        shows="news@example.org sends again.",
        holds="EXISTS (SELECT FROM sender_accounts WHERE status = 'warming_up')",
        audit="sender.resume",
    ),
    Step(
        route="/senders/{sender_id:int}/delete",
        at="/senders",
        way=("news@example.org",),
        shows="The sender account is deleted.",
        holds="NOT EXISTS (SELECT FROM sender_accounts)",
        audit="sender.delete",
    ),
    Step(
        route="/destinations/new",
        at="/destinations",
        way=("Set a limit",),
        fields={"domain": "example.net", "max_connections": "3", "messages_per_second": "0.5"},
        shows="The limit of example.net is set.",
        holds="EXISTS (SELECT FROM destination_domains WHERE domain = 'example.net' AND max_connections = 3)",
        audit="domain.put",
    ),
    Step(
        route="/destinations/delete",
        at="/destinations",
        row="example.net",
        shows="example.net has no limit any more.",
        holds="NOT EXISTS (SELECT FROM destination_domains)",
        audit="domain.delete",
    ),
)
