"""feedback: bounces, complaints, unsubscribes, and the suppressions they cause.

NAME     feedback: bounces, complaints, unsubscribes of providers, and suppression
OWNS     `suppressions` (an address in lower case, a scope `all` or `bulk`, a reason, an end), its history
         `suppression_changes`, every report in `bounces`, the count of soft bounces in `soft_bounces`,
         messages that are not reports in `unread_feedback`, and used tokens of webhooks in `used_feedback_tokens`;
         `bounced_addresses` and `unsubscribed_addresses`, the rows of the views bounce_list and unsubscribe_list, which
         follow the suppressions and change them when an application writes them
COMES IN   in the SMTP session (`record_refusals`, called by delivery); to the bounce address (`listener`); by IMAP
         (`imap`); from files (`cli`); from providers (`provider_api`)
STATES   soft bounce: bulk mail is held for 24 h, three times, then all mail is suppressed; hard bounce, complaint:
         suppressed permanently; a rejection without a reason: nothing. A report by mail about one of several
         recipients holds until a second delivery says the same. Severity only rises, an accepted mail resets the
         count of soft bounces after a week, and an operator may lift any suppression, which the history records
CALLED BY  delivery and campaigns: `suppressed_until`, when a request is accepted and again right before sending;
         tracking: `merge_suppressions`, `lift_suppressions`; http, cli, the loop of `postroom work`
CALLS    senders (`count_returned`), stats (`add_stats`), events (`append_facts`, `mark_room`)
HOSTILE INPUTS  every message and every webhook. Reports are read in child processes (`reading`) with limits on
         bytes, boundaries, memory and time. An unverified report (`attribution`, `providers`) is stored and
         suppresses no address; permanent suppression needs evidence about the mailbox (`postroom.post.meaning`)
FAILURES   an unreadable report is stored in `unread_feedback`; without a database the listener replies 451, and
         servers retry
"""
