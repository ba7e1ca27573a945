"""`postroom intake`: a process that only brings commands in."""

import asyncio

import pytest
from tests.support.command_line import postroom, running
from tests.support.intake import accepting, flat, keys_of, raw
from tests.support.patience import PATIENCE_S
from tests.support.streams import nats_server, valkey

from postroom.db.pool import Pool


async def stopped(arguments: list[str], settings: dict[str, str], accepted: asyncio.Event) -> int:
    """Run the command until something was accepted, then stop it; its exit code."""
    with running(*arguments, settings=settings) as consumers:
        async with asyncio.timeout(PATIENCE_S):
            await accepted.wait()
        return await asyncio.to_thread(consumers.stop)


async def test_commands_of_redis_become_deliveries_until_sigterm(database_url: str, pool: Pool) -> None:
    """Entries of the stream are committed and acknowledged; SIGTERM ends the process with exit 0."""
    import redis.asyncio

    async with valkey() as broker, accepting(database_url) as accepted:
        settings = {"POSTROOM_DATABASE_URL": database_url, "POSTROOM_REDIS_URL": broker.url}
        async with redis.asyncio.Redis.from_url(broker.url, protocol=2, socket_timeout=PATIENCE_S) as client:
            await client.xadd("mail:delivery_commands", flat(idempotency_key="a"))
            assert await stopped(["intake", "redis", "--consumers", "2"], settings, accepted) == 0
            assert (await client.xpending("mail:delivery_commands", "postroom"))["pending"] == 0
            assert await client.xinfo_consumers("mail:delivery_commands", "postroom") == []  # both said good-bye
    assert await keys_of(pool) == ["a"]


async def test_commands_of_nats_become_deliveries_until_sigterm(database_url: str, pool: Pool) -> None:
    """The same from JetStream."""
    async with nats_server() as broker, accepting(database_url) as accepted:
        import nats
        from nats.js import api

        client = await nats.connect(broker.url)
        stream = client.jetstream(timeout=PATIENCE_S)
        await stream.add_stream(api.StreamConfig(name="commands", subjects=["mail.delivery_commands"]))
        await stream.publish("mail.delivery_commands", raw(idempotency_key="a"))
        settings = {"POSTROOM_DATABASE_URL": database_url, "POSTROOM_NATS_URL": broker.url}
        assert await stopped(["intake", "nats"], settings, accepted) == 0
        async with asyncio.timeout(PATIENCE_S):  # the server has the acknowledgement, and may still be about to note it
            while (await stream.consumer_info("commands", "postroom")).num_ack_pending:
                pass
        await client.close()
    assert await keys_of(pool) == ["a"]


@pytest.mark.parametrize("kind, variable", [("redis", "POSTROOM_REDIS_URL"), ("nats", "POSTROOM_NATS_URL")])
def test_a_stream_without_an_address_is_refused_by_name(kind: str, variable: str, database_url: str) -> None:
    """Exit 1 and the variable that is missing, instead of a process that waits for nothing."""
    done = postroom("intake", kind, settings={"POSTROOM_DATABASE_URL": database_url})
    assert done.returncode == 1
    assert variable in done.stderr
