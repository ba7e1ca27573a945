"""The errors of campaigns; the whole tree is drawn in `postroom.errors`."""

from postroom.errors import ConflictError, NotFoundError


class CampaignFrozen(ConflictError):
    """The campaign has started; its content can no longer be changed."""

    code = "campaign_frozen"
    sqlstate = "PR070"


class CampaignWrongStatus(ConflictError):
    """The campaign has a status that does not allow this."""

    code = "campaign_wrong_status"

    def __init__(self, action: str, status: str) -> None:
        super().__init__(f"A campaign that is {status} cannot be {action}.")
        self.action = action
        self.status = status


class CampaignNotFound(NotFoundError):
    """There is no such campaign."""

    code = "campaign_not_found"


class CampaignRecipientNotFound(NotFoundError):
    """There is no such recipient in this campaign."""

    code = "campaign_recipient_not_found"
