"""The actions on one delivery, and the sentences that explain them."""

from postroom.dashboard.edit import is_editable
from postroom.dashboard.listing import PageAction
from postroom.dashboard.page import OPERATE, actions
from postroom.delivery import service
from postroom.delivery.model import ENDED, WAITING, DeadLetter, Delivery, DeliveryState

AMBIGUOUS = "ambiguous"

_ABOUT = "delivery {delivery_id}"
_ONE = "/deliveries/{delivery_id:int}"
_NOW = PageAction("Try now", f"{_ONE}/retry", OPERATE, service.retry, "The delivery is due now.", is_main=True)
_AGAIN = PageAction(
    "Try again", f"{_ONE}/retry", OPERATE, about=_ABOUT, button="Try again",
    question="It goes back to the queue with a new budget of attempts, and is due at once.",
)  # fmt: skip
_TWICE = PageAction(
    "Try again", f"{_ONE}/retry", OPERATE, about=_ABOUT, button="Send it again",
    question="It goes back to the queue and is sent again. If it had arrived, the person gets it twice.",
)  # fmt: skip
_SETTLE = PageAction(
    "Mark as sent", "/dead-letters/{delivery_id:int}/settle", OPERATE, service.settle, "The delivery counts as sent.",
    about=_ABOUT, to="/deliveries/{delivery_id}",
    question="It counts as sent and is not sent again. Choose this if you know that it arrived, for example from the "
    "log of the other side.",
)  # fmt: skip
_CANCEL = PageAction(
    "Cancel", f"{_ONE}/cancel", OPERATE, service.cancel, "The delivery is cancelled.",
    about=_ABOUT, button="Cancel the delivery",
    question="It will not be sent. A cancelled delivery cannot be reactivated, but it can be resent as a new one.",
)  # fmt: skip
_RESEND = PageAction(
    "Resend", f"{_ONE}/resend", OPERATE, service.resend, "This is a new delivery of the same message.",
    to="/deliveries/{0}", about=_ABOUT, button="Send it again",
    question="A new delivery of the same message to all its recipients; this one stays as it is.",
)  # fmt: skip
_EDIT = PageAction(
    "Edit and send", f"{_ONE}/edit", "deliveries:write", is_link=True,
    question="A form with this message. You change the address or the text, and it is sent as a new delivery.",
)  # fmt: skip


def actions_of(delivery: Delivery) -> list[PageAction]:
    """The actions that the state allows; the statements behind them check it again."""
    offered: list[PageAction] = []
    if delivery.state is DeliveryState.DEAD_LETTER:
        offered += _dead_actions(delivery.reason)
    if delivery.state in WAITING:
        offered += [_NOW, _CANCEL]
    if delivery.state in ENDED and delivery.has_body:
        offered.append(_RESEND)
    if is_editable(delivery):
        offered.append(_EDIT)
    return [each.at(delivery.id, delivery_id=delivery.id) for each in offered]


def letter_actions(letter: DeadLetter) -> list[PageAction]:
    """The actions on a row of the dead letters."""
    return [each.at(letter.delivery_id, delivery_id=letter.delivery_id) for each in _dead_actions(letter.reason)]


def _dead_actions(reason: str | None) -> list[PageAction]:
    return [_TWICE, _SETTLE] if reason == AMBIGUOUS else [_AGAIN]


PAGES = actions(_NOW, _SETTLE, _CANCEL, _RESEND)
