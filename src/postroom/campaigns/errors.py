"""The errors of campaigns; `postroom.errors` draws the whole tree."""

from postroom.errors import ConflictError, NotFoundError


class CampaignFrozen(ConflictError):
    """The campaign has started; its content can no longer be changed."""

    sqlstate = "PR070"


class CampaignWrongStatus(ConflictError):
    """The status of the campaign does not allow this action."""

    def __init__(self, action: str, status: str) -> None:
        super().__init__(f"A campaign that is {status} cannot be {action}.")
        self.action = action
        self.status = status


class CampaignWouldFail(ConflictError):
    """Many mails of the campaign would fail. Correct the letter, or start it with `accepts_failures`."""


class CampaignNotFound(NotFoundError):
    """The campaign does not exist."""


class CampaignRecipientNotFound(NotFoundError):
    """The campaign has no such recipient."""
