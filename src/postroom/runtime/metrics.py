"""All Prometheus metrics of the product.

| metric                               | meaning                                                              |
|--------------------------------------|----------------------------------------------------------------------|
| postroom_deliveries_accepted_total   | requests by lane and acceptance (accepted, replayed, conflict)        |
| postroom_attempts_total              | finished attempts by lane, transport and outcome                      |
| postroom_attempt_seconds             | duration of an attempt                                                |
| postroom_claims_lost_total           | results rejected because another worker had taken over                |
| postroom_deliveries_recovered_total  | deliveries taken over from dead workers, by ambiguity                 |
| postroom_renders_total               | templates rendered, by result                                         |
| postroom_queue_waiting               | deliveries waiting by lane, counted up to a bound                     |
| postroom_queue_oldest_seconds        | waiting time of the oldest due delivery of a lane                     |
| postroom_http_requests_total         | HTTP requests by route, method and status                             |
| postroom_http_request_seconds        | duration of a request, by route                                       |
| postroom_replica_reads_total         | listings and exports read from the replica, or from the primary instead |
| postroom_replica_lag_seconds         | time that the replica is behind; absent if it is unknown              |
| postroom_loop_failures_total         | unexpected errors of background loops, each retried after a pause     |
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

REGISTRY = CollectorRegistry()

ACCEPTED = Counter(
    "postroom_deliveries_accepted",
    "Requests: accepted, replayed or conflict",
    ["lane", "acceptance"],
    registry=REGISTRY,
)
ATTEMPTS = Counter(
    "postroom_attempts",
    "Finished attempts: sent, deferred, failed, ambiguous, suppressed, cancelled",
    ["lane", "transport", "outcome"],
    registry=REGISTRY,
)
ATTEMPT_SECONDS = Histogram(
    "postroom_attempt_seconds",
    "Duration of an attempt",
    ["transport"],
    registry=REGISTRY,
    buckets=(0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300),
)
CLAIMS_LOST = Counter(
    "postroom_claims_lost", "Results rejected because another worker had taken over", registry=REGISTRY
)
RECOVERED = Counter(
    "postroom_deliveries_recovered",
    "Deliveries taken over from dead workers; `ambiguous` is yes or no",
    ["ambiguous"],
    registry=REGISTRY,
)
RENDERS = Counter("postroom_renders", "Templates rendered, by result", ["result"], registry=REGISTRY)
QUEUE_WAITING = Gauge(
    "postroom_queue_waiting", "Deliveries waiting, counted up to 10,000 per lane", ["lane"], registry=REGISTRY
)
QUEUE_OLDEST_SECONDS = Gauge(
    "postroom_queue_oldest_seconds", "Waiting time of the oldest due delivery", ["lane"], registry=REGISTRY
)
HTTP_REQUESTS = Counter("postroom_http_requests", "HTTP requests", ["route", "method", "status"], registry=REGISTRY)
HTTP_SECONDS = Histogram("postroom_http_request_seconds", "Duration of a request", ["route"], registry=REGISTRY)
REPLICA_READS = Counter(
    "postroom_replica_reads",
    "Listings, statistics and exports, by the server that was read: replica or primary",
    ["server"],
    registry=REGISTRY,
)
REPLICA_LAG = Gauge(
    "postroom_replica_lag_seconds", "Time that the replica is behind the primary", ["database"], registry=REGISTRY
)
LOOP_FAILURES = Counter(
    "postroom_loop_failures",
    "Unexpected errors of background loops; each loop retries after a pause",
    ["loop"],
    registry=REGISTRY,
)
