"""Sign-in codes: mailed to an operator, short-lived, usable once, by the browser that requested them.

A request does the same work and gives the same answer whether or not the address belongs to an operator: for an unknown
one, the delivery is accepted and rolled back. Codes and addresses are stored as keyed hashes.
"""

import hmac
import secrets
from datetime import UTC, datetime, timedelta
from functools import partial

from postroom.dashboard import store
from postroom.dashboard.errors import CodesTooOften
from postroom.db.pool import Session
from postroom.db.room import Room
from postroom.delivery.check import SIGN_IN_SOURCE, check_request
from postroom.delivery.model import DeliveryRequest, Lane
from postroom.delivery.service import accept, count_accepted
from postroom.http import operators
from postroom.http.model import Operator
from postroom.post.address import Address
from postroom.runtime.peers import LOOPBACK, is_within, network_of

LIFETIME = timedelta(minutes=10)  # time for a slow mail server
ATTEMPTS = 5  # per code
MAILS_PER_ADDRESS = 5  # per hour: at most 25 guesses of 8 digits; counted apart for a network known to the operator
MAILS_PER_CLIENT = 20  # per hour: allows an office behind one address
TEMPLATE = "operator-sign-in"

_DIGITS = 8  # with few attempts per code a guess is hopeless


class SignInCodes:
    """Mails codes to the operators of a room and checks them."""

    def __init__(self, room: Room, secret: bytes) -> None:
        self._room = room
        self._key = hmac.digest(secret, b"postroom sign-in code\0" + room.name.encode(), "sha256")

    def are_offered(self, client: str) -> bool:
        """False if the settings switch codes off.

        Captured mail reaches no mailbox: a code is offered on loopback only, to the developer who reads the inbox.
        """
        settings = self._room.settings
        return settings.sign_in_codes and (settings.transport != "capture" or is_within(client, LOOPBACK))

    async def request(self, email: str, *, client: str) -> str:
        """Mail a code to the operator with this address, and return the nonce that redeems it.

        Raises `BadInput` for an invalid address and `CodesTooOften`. Too many codes for one address are not mailed.
        """
        address = operators.check_email(email)
        nonce, code = secrets.token_urlsafe(16), f"{secrets.randbelow(10**_DIGITS):0{_DIGITS}}"
        address_hash, network = self._hash("address", address), network_of(client)
        async with self._room.pool.acquire() as connection:
            limits = partial(_is_within_limits, connection, address, address_hash, network)
            await limits()  # before the lock, which floods must not occupy
            async with connection.transaction():
                await store.lock_sign_in_codes(connection)
                if not await limits():
                    return nonce
                found = await operators.find_addressee(connection, address)
                await store.insert_sign_in_code(
                    connection,
                    nonce_hash=self._hash("nonce", nonce),
                    lifetime=LIFETIME,
                    operator_id=None if found is None else found.id,
                    address_hash=address_hash,
                    client=network,
                    code_hash=self._hash("code", nonce, code),
                )
                await self._mail(connection, address, code, is_sent=found is not None)
        return nonce

    async def redeem(self, nonce: str, code: str) -> Operator | None:
        """The operator whose code this is; None for a wrong, used or expired code. Each call counts as an attempt."""
        nonce_hash = self._hash("nonce", nonce)
        digits = "".join(each for each in code if not each.isspace())
        async with self._room.pool.acquire() as connection, connection.transaction():
            tried = await store.try_sign_in_code(connection, nonce_hash=nonce_hash, most_attempts=ATTEMPTS)
            # Compared in every case, so that the time does not depend on the reason.
            expected = self._hash("none", nonce) if tried is None else tried.code_hash
            is_right = hmac.compare_digest(expected, self._hash("code", nonce, digits))
            if tried is None or tried.operator_id is None or not is_right:
                return None
            await store.use_sign_in_code(connection, nonce_hash=nonce_hash)
            return await operators.record_sign_in(connection, tried.operator_id)

    async def _mail(self, connection: Session, address: str, code: str, *, is_sent: bool) -> None:
        settings = self._room.settings
        request = DeliveryRequest(
            to=(Address(address),),
            template=TEMPLATE,
            locale=settings.default_locale,
            variables={
                "code": f"{code[:4]} {code[4:]}",
                "minutes": int(LIFETIME.total_seconds() / 60),
                "url": settings.base_url,
            },
            lane=Lane.AUTH,
            source=SIGN_IN_SOURCE,
            expires_at=datetime.now(UTC) + LIFETIME,
        )
        savepoint = connection.transaction()
        await savepoint.start()
        accepted = await accept(connection, check_request(request))
        if not is_sent:
            await savepoint.rollback()
            return
        await savepoint.commit()
        count_accepted(request, accepted)

    def _hash(self, purpose: str, *parts: str) -> bytes:
        return hmac.digest(self._key, "\0".join((purpose, *parts)).encode("utf-8", "replace"), "sha256")


async def _is_within_limits(connection: Session, email: str, address_hash: bytes, client: str) -> bool:
    """Whether the address may get another mail. Raises `CodesTooOften` for a client with too many requests.

    Requests from elsewhere do not count in a network from which the operator has signed in: strangers who request codes
    for the address lock no operator out there.
    """
    requested = await store.count_sign_in_codes(connection, email=email, address_hash=address_hash, client=client)
    if requested.by_client >= MAILS_PER_CLIENT:
        raise CodesTooOften
    counted = requested.by_address_and_client if requested.is_known_place else requested.by_address
    return counted < MAILS_PER_ADDRESS
