"""Prometheus metrics of intake.

| metric                             | counts                                                                  |
|------------------------------------|-------------------------------------------------------------------------|
| postroom_commands_total            | commands from streams by outcome (accepted, replayed, malformed)         |
| postroom_malformed_commands_total  | commands recorded as malformed, by reason                                |
| postroom_malformed_commands_waiting | malformed commands neither resubmitted nor dismissed, up to 10,000     |
| postroom_smtp_submissions_total    | answers to submitted messages, by reply code                             |
"""

from prometheus_client import Counter, Gauge

from postroom.runtime.metrics import REGISTRY

COMMANDS = Counter(
    "postroom_commands", "Commands from streams: accepted, replayed, malformed", ["outcome"], registry=REGISTRY
)
MALFORMED = Counter("postroom_malformed_commands", "Commands recorded as malformed", ["reason"], registry=REGISTRY)
MALFORMED_WAITING = Gauge(
    "postroom_malformed_commands_waiting",
    "Malformed commands neither resubmitted nor dismissed, counted up to 10,000",
    registry=REGISTRY,
)
SUBMISSIONS = Counter(
    "postroom_smtp_submissions", "Answers to submitted messages, by reply code", ["code"], registry=REGISTRY
)
