"""CloudEvents 1.0 in JSON, structured mode, for subscribers that already read this envelope.

`id` is the message id, the same as `webhook-id`. `source` is `<public URL>/<source of the id>`: the room; without a
public URL it is a path. `subject` is the first tag. CloudEvents attributes are strings without control characters or
32-bit integers: so `position` is a string, and `tags` are written like a query string, `wallet=1&month=2026-11`.
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
    """Encode a message as a CloudEvent; attributes that the event does not have are omitted."""
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
