"""limits: the most mail that an API key and the room may send, and from which domains.

NAME       limits, rate, daily quota, From domains and expiry of keys and of the room
OWNS       room_limits, allowances
STATES     none: a limit is set or not. The limits of a key are columns of `api_keys`
FILES      model      limits, and how mails are counted
           limiter    the limits of a client: looked up, cached, checked
           allowance  counts that several processes share
CALLED BY  delivery: clients (`AcceptCombiner`), workers (`RoomHold`) and SQL `send` (functions/check_room_limits.sql);
           http and the dashboard (`service`), the command line (`postroom rooms limit`)
CALLS      events' `mark_room`: the room is marked while it has limits, and SQL `send` reads only the mark
COUNTING   each recipient in To, Cc and Bcc is one mail. A minute is a minute of the clock, a day a UTC day. A request
           that was known by its idempotency key is not counted again; a retry of a delivery is not counted again.
WHERE      the limits of a key apply when mail is accepted over HTTP, SMTP and the drop-ins. The limits of the room
           apply there too. From domains and expiry of the room also apply to SQL `send`. Rate and quota of the room
           apply once more when workers send, to the mail of every source: mail beyond them stays queued until the next
           minute or the next UTC day.
PROMISES   a daily quota is never exceeded, with any number of processes; in each minute of the clock at most the rate
           is accepted, so that at most twice the rate is in any sixty seconds. A request fits as a whole or is
           rejected.
           Without limits, accepting costs one lookup in memory per request.
FAILURES   RateExceeded and QuotaExceeded (429 with Retry-After, SMTP 450 4.7.1), FromNotAllowed and RoomClosed (403,
           SMTP 550 5.7.1), KeyExpired (401, SMTP 535 5.7.8); BadInput for a request larger than a limit

BUGS       A change of limits takes effect in other processes within five seconds. A process that is killed loses the
           mails that it had taken and not spent: at most a second's worth. At the limit, a process can reject a mail
           while another holds unspent ones, for a second at most.
"""
