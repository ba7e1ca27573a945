"""Prometheus metrics of intake."""

from postroom.runtime.metrics import counter, gauge

COMMANDS = counter("postroom_commands", "Commands from streams: accepted, replayed, malformed", ["outcome"])
MALFORMED = counter("postroom_malformed_commands", "Commands recorded as malformed", ["reason"])
MALFORMED_WAITING = gauge(
    "postroom_malformed_commands_waiting", "Malformed commands neither resubmitted nor dismissed, counted up to 10,000"
)
SUBMISSIONS = counter("postroom_smtp_submissions", "Answers to submitted messages, by reply code", ["code"])
