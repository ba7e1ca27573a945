"""feedback: what comes back, and why an address gets nothing.

NAME     feedback: bounces, complaints, unsubscribes of providers, and suppression
OWNS     `suppressions` (an address in lower case, a scope `all` or `bulk`, a reason, how long), its history
         `suppression_changes`, every report in `bounces`, the ladder of soft bounces in `soft_bounces`,
         what nobody could read in `unread_feedback`, when administrators were told in `complaint_notices`, and the
         tokens of webhooks that were used in `used_feedback_tokens`
COMES IN   in the SMTP session (`record.settle`, called by delivery); to the bounce address (`listener`); by IMAP
         (`imap`); from files (`cli`); from providers (`provider_api`)
STATES   soft bounce: held for 24 h, three times, then suppressed; hard bounce, complaint: suppressed for good;
         severity only rises, a success clears what was soft, a person may undo anything and leaves a trace
CALLED BY  delivery: when a request is accepted, and again right before sending; http, cli, the loop of `postroom work`
HOSTILE INPUTS  every message and every webhook. What carries no proof (`verp`, `attribution`, `providers`) is kept and
         suppresses nobody; a block on us (`classify`) suppresses nobody either
FAILURES   a report that cannot be read is kept in `unread_feedback`; a database that is away makes servers try again
"""
