"""Sender accounts for tests: rows, recording transports, and a worker that uses them."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.support.builders import DELIVERED, LEASE, Recording, a_worker, with_recipients
from tests.support.builders import claimed as claimed_plainly

from postroom.db.pool import Pool, Session
from postroom.delivery import store
from postroom.delivery.model import Lane, Outgoing
from postroom.delivery.worker import Worker, WorkerOptions
from postroom.post.reply import Reply
from postroom.runtime.clock import Clock, database_time
from postroom.senders import store as senders
from postroom.senders.accounts_in_use import AccountsInUse
from postroom.senders.credentials import Credentials
from postroom.senders.model import AuthType, SenderAccount, SenderId, SenderStatus
from postroom.senders.seal import LocalSealer
from postroom.transports.base import Transport

KEY = bytes(range(32))
SEALER = LocalSealer.from_keys(KEY)

_COLUMNS: dict[str, Any] = {
    "auth_type": "smtp",
    "smtp_host": "127.0.0.1",
    "smtp_port": 25,
    "smtp_use_tls": False,
    "send_delay_ms": 0,
}


ACCOUNT = SenderAccount(
    id=SenderId(1),
    email="news@shop.example",
    display_name="The Shop",
    auth_type=AuthType.SMTP,
    status=SenderStatus.ACTIVE,
    status_reason=None,
    paused_by=None,
    resume_status=None,
    gmail_subject_email=None,
    smtp_host="mail.shop.example",
    smtp_port=587,
    smtp_username=None,
    smtp_use_tls=True,
    ses_region=None,
    daily_limit=2000,
    batch_size=50,
    send_delay_ms=100,
    lanes=("bulk",),
    daily_sent=0,
    daily_bounces=0,
    daily_errors=0,
    consecutive_errors=0,
    last_reset_at=datetime(2030, 1, 1, tzinfo=UTC),
    warmup_stage=0,
    warmup_current_limit=None,
    warmup_days=0,
    warmup_limits=(50,),
    warmup_days_per_stage=7,
    paused_until=None,
    last_used_at=None,
    created_at=datetime(2030, 1, 1, tzinfo=UTC),
    updated_at=datetime(2030, 1, 1, tzinfo=UTC),
    notes=None,
)


async def an_account(pool: Pool, email: str = "one@example.org", **columns: Any) -> SenderId:
    """Insert an SMTP account without a delay; `given` replaces columns."""
    given = {"email": email, **_COLUMNS, **columns}
    names = ", ".join(given)
    marks = ", ".join(f"${n}" for n in range(1, len(given) + 1))
    async with pool.acquire() as connection:
        made = await connection.fetchval(
            f"INSERT INTO sender_accounts ({names}) VALUES ({marks}) RETURNING id", *given.values()
        )
    return SenderId(made)


async def account_of(pool: Pool, account_id: int) -> SenderAccount:
    async with pool.acquire() as connection:
        found = await senders.find_sender(connection, id=account_id)
    assert found is not None
    return found.account


async def roll_days(connection: Session, now: datetime) -> int:
    """Start the day of every account, as the first claim of a day does; returns their number."""
    return int(await connection.fetchval("SELECT roll_sender_days($1)", now))


async def set_account(pool: Pool, account_id: int, **columns: Any) -> None:
    """Update columns by SQL, as an operator in psql would."""
    sets = ", ".join(f"{name} = ${n}" for n, name in enumerate(columns, 2))
    async with pool.acquire() as connection:
        await connection.execute(f"UPDATE sender_accounts SET {sets} WHERE id = $1", account_id, *columns.values())


class Stamps:
    """The monotonic clock for `PacedStarts`; `last` is its last reading, the start of a mail that starts.

    A test that reads the clock itself may have been stopped in between.
    """

    last = 0.0

    def __call__(self) -> float:
        self.last = time.monotonic()
        return self.last


class Ways:
    """A transport factory that records the mail of each account and returns the given replies."""

    def __init__(self, **answers: Reply | list[Reply]) -> None:
        """Replies are keyed by the local part of the address."""
        self._answers = answers
        self.by_email: dict[str, Recording] = {}

    def __call__(self, account: SenderAccount, _credentials: Credentials) -> Transport:
        answers = self._answers.get(account.email.partition("@")[0], DELIVERED)
        if account.email not in self.by_email:
            self.by_email[account.email] = Recording(*(answers if isinstance(answers, list) else [answers]))
        return self.by_email[account.email]

    def sent(self, email: str) -> int:
        return len(self.by_email[email].envelopes) if email in self.by_email else 0


def a_desk(pool: Pool, ways: Any, *, clock: Clock = database_time) -> AccountsInUse:
    return AccountsInUse(pool, SEALER, ways, clock=clock)


def a_sending_worker(pool: Pool, desk: AccountsInUse, *, relay: Recording | None = None, **seams: Any) -> Worker:
    """A worker with accounts; other mail goes to `relay`."""
    way = relay or Recording()
    seams.setdefault("options", WorkerOptions(lease=LEASE, poll_interval=timedelta(milliseconds=20)))
    return a_worker(pool, way, senders=desk, **seams)


async def claimed(
    pool: Pool, lane: Lane = Lane.TRANSACTIONAL, *, now: datetime | None = None, limit: int = 500
) -> list[Outgoing]:
    """Claim as a worker with accounts does."""
    async with pool.acquire() as connection:
        batch = await store.claim_due(
            connection, lane=lane, batch_limit=limit, worker_id=1, lease=LEASE, now=now, use_senders=True
        )
    return await with_recipients(pool, batch, now=now)


__all__ = [
    "KEY",
    "SEALER",
    "Stamps",
    "Ways",
    "a_desk",
    "a_sending_worker",
    "account_of",
    "an_account",
    "claimed",
    "claimed_plainly",
    "roll_days",
    "set_account",
]
