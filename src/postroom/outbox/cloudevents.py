"""CloudEvents 1.0 in JSON, structured mode: the envelope for whoever would rather not learn ours.

`id` is the message's, so it is `webhook-id` too. `source` is `<public URL>/<source of the id>`: the room, and without a
public URL a path. `subject` is the first tag. Attributes are texts without control characters, and numbers have 32
bits: so `position` is a text, and `tags` are written like a query string, `wallet=1&month=2026-11`.
"""

import re
from urllib.parse import quote, urlencode

import msgspec

from postroom.events.model import split_tag
from postroom.outbox.publisher import Message

CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"

_NONCHARACTERS = "\ufdd0-\ufdef" + "".join(chr(plane << 16 | last) for plane in range(17) for last in (0xFFFE, 0xFFFF))
_FORBIDDEN = re.compile(f"[\x00-\x1f\x7f-\x9f{_NONCHARACTERS}]")


def cloud_event(message: Message, *, base_url: str = "") -> bytes:
    """The whole message in its envelope; what an event does not have is left out."""
    event = message.event
    texts = {
        "type": event.type,
        "subject": event.tags[0] if event.tags else None,
        "position": str(event.position),
        "tags": urlencode([split_tag(tag) for tag in event.tags], quote_via=quote),
        "correlationid": event.correlation_id,
        "causationid": event.causation_id,
    }
    return msgspec.json.encode(
        {
            "specversion": "1.0",
            "id": message.id,
            "source": f"{base_url}/{message.id.rsplit(':', 2)[0]}",
            "time": event.occurred_at,
            **{name: _FORBIDDEN.sub(_escaped, text) for name, text in texts.items() if text},
            "datacontenttype": "application/json",
            "data": event.data,
        }
    )


def _escaped(found: re.Match[str]) -> str:
    return quote(found[0])
