"""The registry of Prometheus metrics, and the metrics that several capabilities use.

Other capabilities declare theirs in their `metrics.py`. `docs/reference/metrics.md` is made from the declarations.
"""

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

REGISTRY = CollectorRegistry()
counter = partial(Counter, registry=REGISTRY)
gauge = partial(Gauge, registry=REGISTRY)
histogram = partial(Histogram, registry=REGISTRY)

ACCEPTED = counter("postroom_deliveries_accepted", "Requests: accepted, replayed or conflict", ["lane", "acceptance"])
ATTEMPTS = counter(
    "postroom_attempts",
    "Finished attempts: sent, deferred, failed, ambiguous, suppressed, cancelled",
    ["lane", "transport", "outcome"],
)
ATTEMPT_SECONDS = histogram(
    "postroom_attempt_seconds",
    "Duration of an attempt",
    ["transport"],
    buckets=(0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300),
)
CLAIMS_LOST = counter("postroom_claims_lost", "Results rejected because another worker had taken over")
RECOVERED = counter(
    "postroom_deliveries_recovered", "Deliveries taken over from dead workers; `ambiguous` is yes or no", ["ambiguous"]
)
RENDERS = counter(
    "postroom_renders",
    "Mail rendered ahead of its time: rendered, failed; `failed` also counts mail that was due at once",
    ["result"],
)
QUEUE_WAITING = gauge("postroom_queue_waiting", "Deliveries waiting, counted up to 10,000 per lane", ["lane"])
QUEUE_OLDEST_SECONDS = gauge("postroom_queue_oldest_seconds", "Waiting time of the oldest due delivery", ["lane"])
HTTP_REQUESTS = counter("postroom_http_requests", "HTTP requests", ["route", "method", "status"])
HTTP_SECONDS = histogram("postroom_http_request_seconds", "Duration of a request", ["route"])
SIGN_INS = counter(
    "postroom_sign_ins",
    "Sign-ins, accepted or refused, by way: key, code, link, oidc and second_factor of the dashboard, smtp; api counts "
    "refused requests only",
    ["way", "result"],
)
REPLICA_READS = counter(
    "postroom_replica_reads",
    "Listings, statistics and exports, by the server that was read: replica or primary",
    ["server"],
)
REPLICA_LAG = gauge("postroom_replica_lag_seconds", "Time that the replica is behind the primary", ["database"])
LOOP_FAILURES = counter(
    "postroom_loop_failures", "Unexpected errors of background loops; each loop retries after a pause", ["loop"]
)
