"""feedback: bounces, complaints and unsubscribes that come back, and the suppressions they lead to.

NAME     feedback: bounces, complaints, unsubscribes of providers, and suppression
OWNS     `suppressions` (an address in lower case, a scope `all` or `bulk`, a reason, how long), its history
         `suppression_changes`, every report in `bounces`, the ladder of soft bounces in `soft_bounces`,
         messages that are no reports in `unread_feedback`, and the tokens of webhooks that were used in
         `used_feedback_tokens`
COMES IN   in the SMTP session (`record_refusals`, called by delivery); to the bounce address (`listener`); by IMAP
         (`imap`); from files (`cli`); from providers (`provider_api`)
STATES   soft bounce: bulk mail is held for 24 h, three times, then all mail is suppressed; hard bounce, complaint:
         suppressed for good; a refusal without a reason: nothing. Severity only rises, a success clears what was soft,
         a person may undo anything and leaves a trace
CALLED BY  delivery and campaigns: `suppressed_until`, when a request is accepted and again right before sending;
         tracking: `merge_suppressions`, `lift_suppressions`; http, cli, the loop of `postroom work`
CALLS    senders (`count_returned`), stats (`add_stats`), events (`append_facts`)
HOSTILE INPUTS  every message and every webhook. Reports are read in processes of their own (`reading`), bounded in
         bytes, boundaries, memory and time. A report without proof (`attribution`, `providers`) is kept and
         suppresses nobody; permanent suppression needs evidence about the mailbox (`postroom.post.meaning`)
FAILURES   a report that cannot be read is kept in `unread_feedback`; without a database the listener answers 451, and
         servers try again
"""
