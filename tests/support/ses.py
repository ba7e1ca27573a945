"""AWS's own client library pointed at a served room."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import boto3
from botocore.config import Config
from tests.support.http import served

from postroom.db.room import Room
from postroom.delivery import service as deliveries
from postroom.delivery.model import Delivery
from postroom.dropins.ses.credentials import SesKey, derive_credentials
from postroom.http import service as keys
from postroom.http.asgi import HttpApplication, build_app
from postroom.http.model import ApiKey
from postroom.runtime.aws import AwsCredentials

SECRET_KEY = b"installation-key-for-tests-only!"
SIMPLE = {"Subject": {"Data": "Hello"}, "Body": {"Text": {"Data": "Hello, Ada."}}}
TO = {"ToAddresses": ["ada@example.org"]}


KEY_999_999 = SesKey(999_999, datetime(2029, 1, 1, tzinfo=UTC), "nobody", ("*",))


def pair_of(key: ApiKey | SesKey) -> AwsCredentials:
    return derive_credentials(key, room="postroom", secret_key=SECRET_KEY)


def app_of(room: Room) -> HttpApplication:
    return build_app(room)


def client_to(url: str, pair: AwsCredentials, *, attempts: int = 1) -> Any:
    return boto3.client(
        "sesv2",
        region_name="eu-central-1",
        endpoint_url=url,
        aws_access_key_id=pair.access_key_id,
        aws_secret_access_key=pair.secret_access_key,
        config=Config(retries={"total_max_attempts": attempts, "mode": "standard"}),
    )


@dataclass(frozen=True, slots=True)
class Shop:
    """The library, pointed at a served room."""

    room: Room
    url: str
    row: ApiKey
    client: Any

    async def send(self, client: Any = None, **request: Any) -> str:
        answer = await asyncio.to_thread((client or self.client).send_email, **request)
        return str(answer["MessageId"])

    async def sent(self, **request: Any) -> Delivery:
        return await deliveries.get_delivery(self.room.pool, int(await self.send(**request)))


@contextlib.asynccontextmanager
async def opened(room: Room, *scopes: str) -> AsyncIterator[Shop]:
    sealed = replace(room, settings=replace(room.settings, secret_key=SECRET_KEY))
    _key, row = await keys.create_key(room.pool, "shop", scopes=scopes or ("deliveries:write",), actor="tests")
    async with served(app_of(sealed)) as url:
        client = client_to(url, pair_of(row))
        yield Shop(sealed, url, row, client)
        client.close()
