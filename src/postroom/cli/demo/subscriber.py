"""The subscriber scene: a webhook receiver on loopback that fails first and then recovers."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from postroom.cli.demo.story import Story
from postroom.cli.up import with_loopback_webhooks
from postroom.events import Event, EventStore
from postroom.outbox.model import Topic
from postroom.outbox.topics import save_topic
from postroom.outbox.webhooks import service as webhooks
from postroom.outbox.webhooks.model import EndpointStatus, WebhookEndpoint
from postroom.outbox.webhooks.publisher import PUBLISHER
from postroom.runtime.secrets import SecretBox
from postroom.transports.webhook.signing import read_secret, sign

TOPIC = "demo-parcels"
_DESCRIPTION = "the subscriber of postroom demo"


@dataclass(slots=True)
class Subscriber:
    """Answers 503 to the first request of each event and 204 afterwards; counts what it got."""

    key: bytes = b""
    answers: Counter[int] = field(default_factory=Counter)
    tries: Counter[str] = field(default_factory=Counter)
    forged: int = 0

    async def receive(self, request: web.Request) -> web.Response:
        body, name = await request.read(), request.headers["webhook-id"]
        expected = sign([self.key], message_id=name, timestamp=int(request.headers["webhook-timestamp"]), body=body)
        self.forged += expected not in request.headers["webhook-signature"].split()
        self.tries[name] += 1
        status = 503 if self.tries[name] == 1 else 204
        self.answers[status] += 1
        return web.Response(status=status)


async def play_subscriber(story: Story) -> str:
    """Events reach a subscriber through the outbox, although its first answers are errors."""
    settings = with_loopback_webhooks(story.room.settings)
    if not (settings.webhook_allow_loopback or settings.webhook_allow_private):
        return "left out: workers post no webhooks to loopback here (POSTROOM_WEBHOOK_ALLOW_LOOPBACK)"
    subscriber = Subscriber()
    async with _listening(subscriber) as url:
        endpoint = await _subscribe(story, subscriber, url)
        try:
            events = [
                Event.of("ParcelShipped", {"parcel": number}, parcel=f"{story.run}-{number}")
                for number in range(1, story.size.orders + 1)
            ]
            await EventStore(story.pool).append(events)
            await story.until(lambda: _accepted(subscriber, len(events)), "The recovery of the subscriber")
        finally:
            reason = "the demo has ended"
            await webhooks.set_status(
                story.pool, endpoint.id, EndpointStatus.DISABLED, reason=reason, actor=story.actor
            )
    story.links.append(("Webhook subscriber", f"/webhooks/{endpoint.id}"))
    return (
        f"{len(events)} events: {subscriber.answers[503]} answered with 503 and retried, "
        f"{subscriber.answers[204]} accepted, {subscriber.forged} without a valid signature"
    )


async def _accepted(subscriber: Subscriber, count: int) -> bool | None:
    return True if subscriber.answers[204] >= count else None


@asynccontextmanager
async def _listening(subscriber: Subscriber) -> AsyncIterator[str]:
    """The URL of the subscriber while it listens on a free port of loopback."""
    application = web.Application()
    application.router.add_post("/parcels", subscriber.receive)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}/parcels"
    finally:
        await runner.cleanup()


async def _subscribe(story: Story, subscriber: Subscriber, url: str) -> WebhookEndpoint:
    """The endpoint of the demo, registered by the first run and changed by later ones."""
    pool, settings, actor = story.pool, story.room.settings, story.actor
    box = SecretBox(settings.sealing_keys)
    await save_topic(pool, Topic(name=TOPIC, types=("ParcelShipped",)), publishers=[PUBLISHER], actor=actor)
    found, _cursor = await webhooks.list_endpoints(pool, limit=1000)
    known = next((each for each in found if each.description == _DESCRIPTION), None)
    if known is None:
        endpoint, secret = await webhooks.register(
            pool, box, url=url, topics=[TOPIC], description=_DESCRIPTION, actor=actor
        )
    else:
        await webhooks.change(pool, known.id, url=url, actor=actor)
        endpoint, secret = await webhooks.rotate(pool, box, known.id, actor=actor)
        await webhooks.set_status(pool, known.id, EndpointStatus.ENABLED, actor=actor)
    subscriber.key = read_secret(secret)
    return endpoint
