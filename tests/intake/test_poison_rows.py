"""An entry of a stream that cannot be read is recorded as malformed: the others of its batch are accepted."""

from tests.intake.test_worker import ListSource
from tests.support.intake import entries, keys_of, malformed_rows, raw

from postroom.db.pool import Pool
from postroom.intake.worker import CommandConsumer

DEEP = b'{"a":' * 1500 + b"1" + b"}" * 1500
POISON = (
    b"",
    b"\xff\xfe\x00",
    b"[" * 100_000,
    DEEP,
    b'{"source": 1e5000}',
    raw(payload_json=DEEP.decode()),
    raw(payload_json='{"to": "ada@example.org", "subject": "a\\u0000b", "text": "x"}'),
    raw(payload_json='{"to": "ada@example.org", "subject": "\\ud800", "text": "x"}'),
    raw({"to": "ada@example.org", "subject": "x", "text": "x", "custom_data": {"n": 10**400}}),
    raw({"to": "ada@example.org", "subject": "x", "text": "x", "send_at": "9999-12-31T23:59:59-14:00"}),
)


async def test_poison_entries_stop_no_other_entry(pool: Pool) -> None:
    """Each poison entry is recorded and acknowledged; the last entry of the batch is accepted."""
    source = ListSource(entries(*POISON, raw(idempotency_key="good")))
    assert await CommandConsumer(pool, source).run_once() == len(POISON) + 1
    assert await keys_of(pool) == ["good"]
    assert len(source.acknowledged) == len(POISON) + 1
    assert len(await malformed_rows(pool)) == len(POISON)
