"""The settings of delivery, read from the environment by `postroom.settings`."""

from dataclasses import dataclass
from datetime import timedelta

from postroom.runtime.setting import kept_for, one_of, parse_duration, positive, setting

FACTS = (
    "DeliveryAccepted",
    "DeliverySent",
    "DeliveryDeferred",
    "DeliveryFailed",
    "DeliveryDeadLettered",
    "DeliverySuppressed",
    "DeliveryCancelled",
    "DeliveryRedriven",
    "RecipientUnsubscribed",
    "RecipientBounced",
    "RecipientComplained",
    "RecipientSuppressed",
    "SuppressionLifted",
)


def _facts(value: str) -> tuple[str, ...]:
    names = {"all": FACTS, "none": ()}.get(value, tuple(name.strip() for name in value.split(",")))
    unknown = [name for name in names if name not in FACTS]
    if unknown:
        raise ValueError(f"must be all, none, or some of {', '.join(FACTS)}")
    return names


RESULTS_TIME = timedelta(seconds=3)  # ten times what a loaded database needs for the results of a claim


@dataclass(frozen=True, kw_only=True)
class DeliverySettings:
    worker_batch: int = setting(positive, 500, "most deliveries in one claim")
    worker_chunk: int = setting(
        positive, 100, "mails started at the same time in each lane; a crash makes at most twice as many ambiguous"
    )
    worker_mb: int = setting(positive, 32, "most megabytes of mail content in one claim of a lane")
    lease: timedelta = setting(parse_duration, timedelta(seconds=30), "lease of a claim; workers renew it")
    poll_interval: timedelta = setting(
        parse_duration, timedelta(milliseconds=500), "interval at which an idle worker polls, besides notifications"
    )
    shutdown_grace: timedelta = setting(
        parse_duration,
        timedelta(seconds=25),
        "time after SIGTERM in which a process finishes its work and ends; then a thread ends it",
    )
    ambiguous_auth: str = setting(
        one_of("resend", "hold"), "resend", "policy for an ambiguous mail in lane auth: `resend` or `hold`"
    )
    ambiguous_transactional: str = setting(
        one_of("resend", "hold"), "resend", "policy for an ambiguous mail in lane transactional: `resend` or `hold`"
    )
    ambiguous_bulk: str = setting(
        one_of("resend", "hold"), "hold", "policy for an ambiguous mail in lane bulk: `resend` or `hold`"
    )
    idempotency_ttl: timedelta = setting(parse_duration, timedelta(days=7), "retention of idempotency keys")
    delivery_retention: timedelta = setting(
        kept_for, timedelta(days=7), "retention of finished deliveries, and at least as long as their idempotency keys"
    )
    dead_letter_retention: timedelta = setting(
        kept_for, timedelta(days=30), "retention of dead letters; at least as long as finished deliveries"
    )
    payload_retention: timedelta = setting(
        kept_for, timedelta(days=3), "retention of the content of finished deliveries"
    )
    cleanup_interval: timedelta = setting(parse_duration, timedelta(minutes=5), "interval at which retention runs")
    fact_retention: timedelta = setting(
        kept_for,
        timedelta(days=90),
        "retention of facts of feedback and unsubscriptions in the event store; facts about deliveries are kept as "
        "long as their months, see POSTROOM_ARCHIVE_AFTER",
    )
    facts: tuple[str, ...] | None = setting(
        _facts,
        None,
        "delivery facts that `migrate` and `up` enable in the event store: all, none, or names; absent: unchanged",
    )

    @property
    def work_grace(self) -> timedelta:
        """The part of the grace time for work in flight; in the rest, results are written and connections closed."""
        return self.shutdown_grace - min(RESULTS_TIME, self.shutdown_grace / 3)

    @property
    def held_lanes(self) -> tuple[str, ...]:
        """Lanes in which an ambiguous mail is held for an operator instead of being sent again."""
        policies = {
            "auth": self.ambiguous_auth,
            "transactional": self.ambiguous_transactional,
            "bulk": self.ambiguous_bulk,
        }
        return tuple(lane for lane, policy in policies.items() if policy == "hold")
