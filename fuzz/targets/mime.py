"""Raw mail through the SES interface, signed."""

import base64
from datetime import UTC, datetime
from random import Random
from typing import Any

from fuzz.arena import Arena
from fuzz.mutate import mutate_value
from fuzz.tally import Case
from fuzz.targets.mail import a_mail
from fuzz.wire import as_json, exchange, request
from postroom.runtime.aws import AwsCredentials, sign

_PATH = "/v2/email/outbound-emails"


async def attack(arena: Arena, random: Random, case: Case) -> None:
    """One call of SendEmail."""
    body = as_json(_call(random))
    host = f"127.0.0.1:{arena.http}"
    headers = {"content-type": "application/json"}
    pair = AwsCredentials(arena.access_key_id, arena.secret_access_key)
    url = f"http://{host}{_PATH}"
    signed = sign(
        "POST", url, headers, body, credentials=pair, region="eu-west-1", service="ses", now=datetime.now(UTC)
    )
    raw = request("POST", _PATH, headers={**headers, "host": host, **signed}, body=body)
    status, answer = await exchange(arena.http, raw)
    case.http(status, f"{body[:400]!r} -> {answer[-300:]!r}" if status >= 500 else "")


def _call(random: Random) -> Any:
    raw = {"Raw": {"Data": base64.b64encode(a_mail(random)).decode()}}
    simple = {"Simple": {"Subject": {"Data": "Hi"}, "Body": {"Text": {"Data": "Hello", "Charset": "utf-8"}}}}
    call: Any = {
        "FromEmailAddress": "ann@example.org",
        "Destination": {"ToAddresses": ["bob@example.org"]},
        "Content": raw if random.random() < 0.8 else simple,
        "EmailTags": [{"Name": "a", "Value": "b"}],
    }
    return mutate_value(random, call) if random.random() < 0.3 else call
