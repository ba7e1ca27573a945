"""Errors of delivery; `postroom.errors` shows the whole tree."""

from postroom.errors import ConflictError, NotFoundError


class BodyGone(ConflictError):
    """The delivery's content has been deleted."""

    def __init__(self, action: str) -> None:
        kept = "Content is kept for POSTROOM_PAYLOAD_RETENTION, in the lane auth only until the delivery ends"
        super().__init__(f"The content of this delivery has been deleted, so it cannot be {action}. {kept}.")
        self.action = action


class CampaignCancelled(ConflictError):
    """The delivery belongs to a cancelled campaign and is not sent again."""

    def __init__(self, delivery_id: int, campaign_id: int, action: str) -> None:
        super().__init__(
            f"Delivery {delivery_id} cannot be {action}: it belongs to campaign {campaign_id}, which was cancelled."
        )
        self.delivery_id = delivery_id
        self.campaign_id = campaign_id


class ClaimLost(ConflictError):
    """Another worker holds the claim on this delivery; nothing was changed."""


class DeliveryExpired(ConflictError):
    """The delivery has expired and is not sent again."""

    def __init__(self, delivery_id: int, action: str) -> None:
        super().__init__(f"Delivery {delivery_id} cannot be {action}: its expires_at has passed.")
        self.delivery_id = delivery_id


class WrongState(ConflictError):
    """The delivery is in a state that does not allow this."""

    def __init__(self, action: str, state: str) -> None:
        super().__init__(f"A delivery that is {state} cannot be {action}.")
        self.action = action
        self.state = state


class DeadLetterNotFound(NotFoundError):
    """There is no such dead letter."""

    @classmethod
    def of(cls, *delivery_ids: int, kind: str = "dead letter") -> "DeadLetterNotFound":
        return cls(f"There is no {kind} with the id {', '.join(map(str, delivery_ids))}.")


class MassActionNotFound(NotFoundError):
    """There is no such mass action."""

    @classmethod
    def of(cls, action_id: int) -> "MassActionNotFound":
        return cls(f"There is no mass action with the id {action_id}.")


class DeliveryNotFound(NotFoundError):
    """There is no such delivery."""

    @classmethod
    def of(cls, delivery_id: int) -> "DeliveryNotFound":
        return cls(f"There is no delivery with the id {delivery_id}.")
