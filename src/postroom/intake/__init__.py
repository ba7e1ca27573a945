"""intake: mail from other programs.

NAME     intake, input from programs that do not call our API: streams of commands and SMTP submission.
         The compatible APIs of other products are in `postroom.dropins`
OWNS     the table `malformed_commands`
STATES   a command is accepted (it is a delivery from then on), replayed (it already was), or malformed: recorded with
         its bytes and the reason, counted, reported to the administrator once (`notice`), listed, and then corrected
         and resubmitted, or dismissed. A malformed command never blocks the ones behind it.
CALLED BY  `redis` and `nats` sources through `worker.CommandConsumer`, within `postroom work` or alone in
         `postroom intake`; mail programs through `smtp`; operators through `api` and `cli`
ROOMS    a worker of many rooms reads a stream per room while the room is awake, and watches those of sleeping rooms
         (`redis.RedisWatch`, `nats.NatsWatch`)
CALLS    `runtime.smtp_server`, the SMTP server that feedback's bounce address uses too;
         delivery's service, to accept; events, for the audit of operator actions
HOSTILE INPUTS  every byte of a command, of a submitted message and of a request; user names and passwords of SMTP
LIMITS   one statement carries at most 8 MB of commands, or one command. A message may have 60 MIME boundaries, 256 kB
         of headers, and 4 million lines times boundaries; from 4 kB on a child process with limits parses it
         (`parsing`). SMTP holds 500 connections, POSTROOM_CONNECTIONS_PER_PEER from one address; a client has 60 s
         to authenticate.
FAILURES   database unreachable: nothing is acknowledged, streams are read again, SMTP answers 451. Stream
         unreachable: retried with a back-off of up to some seconds. A consumer killed at any point: another consumer
         gets its entries and recognises committed ones by their idempotency key.
"""
