"""Notices to operators by mail: a sign-in from a new place, and changes of how they sign in."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from enum import StrEnum

import structlog

from postroom.db.pool import Session
from postroom.delivery.check import SIGN_IN_SOURCE, check_request
from postroom.delivery.model import DeliveryRequest, Lane
from postroom.delivery.service import accept, count_accepted
from postroom.errors import PostroomError
from postroom.http.model import Operator
from postroom.http.sessions import browser_of
from postroom.post.address import Address
from postroom.settings import Settings

TEMPLATE = "operator-notice"

_log = structlog.get_logger()


class OperatorNotice(StrEnum):
    """The reason of a notice; the template has a sentence for each."""

    SIGN_IN = "sign_in"
    SECOND_FACTOR_SET = "second_factor_set"
    SECOND_FACTOR_REMOVED = "second_factor_removed"
    RECOVERY_CODES = "recovery_codes"
    RECOVERY_CODE_USED = "recovery_code_used"


Notify = Callable[[Session, Operator, OperatorNotice], Awaitable[None]]
"""Mails a notice in the transaction of the connection."""


def notifier(settings: Settings, *, client: str, agent: str) -> Notify:
    """Mails notices about a request of this client. The command line has the client `command line`."""

    async def notify(connection: Session, operator: Operator, notice: OperatorNotice) -> None:
        variables = {
            "event": notice.value,
            "at": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
            "client": client or "this machine",
            "browser": browser_of(agent),
            "url": settings.base_url,
        }
        request = DeliveryRequest(
            to=(Address(operator.email),),
            template=TEMPLATE,
            locale=settings.default_locale,
            variables=variables,
            lane=Lane.AUTH,
            source=SIGN_IN_SOURCE,
        )
        await _accept(connection, operator, request)

    return notify


async def _accept(connection: Session, operator: Operator, request: DeliveryRequest) -> None:
    """Accept a notice; one that cannot be accepted, for example for a limit, stops no sign-in."""
    try:
        async with connection.transaction():
            accepted = await accept(connection, check_request(request))
    except PostroomError as error:
        _log.warning("operator_notice_not_accepted", operator=operator.id, error=error.code)
    else:
        count_accepted(request, accepted)
