"""All endpoints of the API, by tag.

Generated from the table of endpoints by `./dev docs`: do not edit.
"""

from postroom.client.api.accounts import AccountsApi
from postroom.client.api.archive import ArchiveApi
from postroom.client.api.audit import AuditApi
from postroom.client.api.campaigns import CampaignsApi
from postroom.client.api.dead_letters import DeadLettersApi
from postroom.client.api.deliveries import DeliveriesApi
from postroom.client.api.events import EventsApi
from postroom.client.api.health import HealthApi
from postroom.client.api.inbox import InboxApi
from postroom.client.api.keys import KeysApi
from postroom.client.api.malformed_commands import MalformedCommandsApi
from postroom.client.api.mass_actions import MassActionsApi
from postroom.client.api.operators import OperatorsApi
from postroom.client.api.outbox import OutboxApi
from postroom.client.api.senders import SendersApi
from postroom.client.api.stats import StatsApi
from postroom.client.api.suppressions import SuppressionsApi
from postroom.client.api.templates import TemplatesApi
from postroom.client.api.users import UsersApi
from postroom.client.api.webhooks import WebhooksApi
from postroom.client.calls import Kind, Resource
from postroom.client.session import Session


class Api(Resource[Kind]):
    """The whole API: an attribute per tag."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.deliveries: DeliveriesApi[Kind] = DeliveriesApi(session)
        self.dead_letters: DeadLettersApi[Kind] = DeadLettersApi(session)
        self.mass_actions: MassActionsApi[Kind] = MassActionsApi(session)
        self.malformed_commands: MalformedCommandsApi[Kind] = MalformedCommandsApi(session)
        self.accounts: AccountsApi[Kind] = AccountsApi(session)
        self.users: UsersApi[Kind] = UsersApi(session)
        self.events: EventsApi[Kind] = EventsApi(session)
        self.audit: AuditApi[Kind] = AuditApi(session)
        self.outbox: OutboxApi[Kind] = OutboxApi(session)
        self.webhooks: WebhooksApi[Kind] = WebhooksApi(session)
        self.senders: SendersApi[Kind] = SendersApi(session)
        self.campaigns: CampaignsApi[Kind] = CampaignsApi(session)
        self.suppressions: SuppressionsApi[Kind] = SuppressionsApi(session)
        self.stats: StatsApi[Kind] = StatsApi(session)
        self.archive: ArchiveApi[Kind] = ArchiveApi(session)
        self.templates: TemplatesApi[Kind] = TemplatesApi(session)
        self.inbox: InboxApi[Kind] = InboxApi(session)
        self.keys: KeysApi[Kind] = KeysApi(session)
        self.operators: OperatorsApi[Kind] = OperatorsApi(session)
        self.health: HealthApi[Kind] = HealthApi(session)
