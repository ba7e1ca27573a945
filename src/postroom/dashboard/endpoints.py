"""All pages of the dashboard, one row each, and the site that serves them."""

import asyncio
from contextlib import suppress
from http import HTTPStatus

from postroom.dashboard import (
    accounts,
    audit,
    campaign_actions,
    campaign_form,
    campaigns,
    deliveries,
    delivery_actions,
    destinations,
    edit,
    erasures,
    events,
    inbox,
    keys,
    links,
    mail_templates,
    malformed,
    mass_actions,
    operators,
    outbox,
    overview,
    own_account,
    people,
    preferences,
    schedule,
    senders,
    sign_in,
    statistics,
    suppressions,
    system,
    topics,
    webhooks,
)
from postroom.dashboard.codes import SignInCodes
from postroom.dashboard.entry import PATH as SECOND_FACTOR
from postroom.dashboard.entry import PendingSignIns, redeem_second_factor, show_second_factor
from postroom.dashboard.live import LiveFeeds
from postroom.dashboard.oidc import CALLBACK, oidc_provider
from postroom.dashboard.page import admit, form, listing_page, page, public
from postroom.dashboard.problem_pages import refuse
from postroom.dashboard.service import Examine, FigureReader
from postroom.dashboard.session import Sessions
from postroom.dashboard.site import Dashboard
from postroom.dashboard.views import STATIC_TYPES, PageTemplates, read_static
from postroom.db.replica import Replica
from postroom.db.room import Room
from postroom.errors import PostroomError
from postroom.http.asgi import is_https
from postroom.http.auth import Authenticator
from postroom.rooms.service import Discover
from postroom.runtime.endpoint import Answer, Call, ProtocolError, Site
from postroom.runtime.peers import WrongKeyCounter
from postroom.runtime.secrets import SecretBox

_UNCHANGING = "public, max-age=31536000, immutable"  # the address of a file holds a hash of its content


async def show_static(call: Call) -> Answer:
    name: str = call.path["name"]
    content = call.tool(Dashboard).static.get(name)
    if content is None:
        raise ProtocolError(HTTPStatus.NOT_FOUND, "There is nothing at this path.")
    return Answer(content, media_type=STATIC_TYPES[name], headers={"cache-control": _UNCHANGING})


ENDPOINTS = (
    public("GET", "/sign-in", sign_in.show_sign_in),
    public("POST", "/sign-in", sign_in.sign_in),
    public("POST", "/sign-in/code", sign_in.request_code),
    public("GET", "/sign-in/code", sign_in.show_code),
    public("POST", "/sign-in/redeem", sign_in.redeem_code),
    public("GET", links.PATH, links.use_link),
    public("GET", "/sign-in/oidc", sign_in.begin_oidc),
    public("GET", CALLBACK, sign_in.finish_oidc),
    public("GET", SECOND_FACTOR, show_second_factor),
    public("POST", SECOND_FACTOR, redeem_second_factor),
    form("/sign-out", sign_in.sign_out),
    public("GET", "/static/{name}", show_static),
    page("/preferences", preferences.show_page),
    form("/preferences", preferences.save_page),
    *own_account.PAGES,
    page("/", overview.show_overview),
    page("/live", overview.show_live, keeps_session=False),
    listing_page("/statistics", statistics.show_page, scope=statistics.READ),
    listing_page("/statistics.csv", statistics.csv_page, scope=statistics.READ),
    *deliveries.PAGES,
    *delivery_actions.PAGES,
    *edit.PAGES,
    *mass_actions.PAGES,
    *campaigns.PAGES,
    *campaign_actions.PAGES,
    *campaign_form.PAGES,
    *mail_templates.PAGES,
    *inbox.PAGES,
    *senders.PAGES,
    *destinations.PAGES,
    *suppressions.PAGES,
    *accounts.PAGES,
    *people.PAGES,
    *schedule.PAGES,
    *events.PAGES,
    *topics.PAGES,
    *outbox.PAGES,
    *webhooks.PAGES,
    *malformed.PAGES,
    *audit.PAGES,
    *erasures.PAGES,
    *keys.PAGES,
    *operators.PAGES,
    *system.PAGES,
)


def build_dashboard(  # noqa: PLR0913 - the parts of a process that pages use
    room: Room,
    *,
    secret: bytes,
    stop: asyncio.Event | None = None,
    auth: Authenticator | None = None,
    examine: Examine | None = None,
    examine_live: Examine | None = None,
    replica: Replica | None = None,
    discover: Discover | None = None,
) -> Site:
    """The dashboard of a room. `secret` signs its sessions; `stop` ends the live streams when the process does.

    `examine` runs the doctor's checks, `examine_live` those of real mail. The overview's history is read from the
    `replica`. `discover` finds the rooms of all servers, for the dashboard of a person who may see them.
    """
    static = read_static()
    dashboard = Dashboard(
        room=room,
        views=PageTemplates(room.name, static, url_path=room.settings.url_path),
        sessions=Sessions(secret, room.name),
        auth=auth or Authenticator(room.pool),
        guesses=WrongKeyCounter(),
        figures=FigureReader(room.pool, examine=examine, examine_live=examine_live, replica=replica),
        static=static,
        is_secure=is_https(room.settings),
        box=SecretBox(room.settings.sealing_keys or [secret]),
        oidc=oidc_provider(room.settings, secret, room=room.name),
        discover=discover,
    )
    codes, sign_in_links = SignInCodes(room, secret), links.SignInLinks(secret, room.name)
    tools = (dashboard, codes, sign_in_links, PendingSignIns(secret, room.name), LiveFeeds(stop or asyncio.Event()))
    return Site(ENDPOINTS, tools=tools, refuse_unknown=refuse, recognise=recognise)


async def recognise(call: Call) -> None:
    """Look for the viewer of an unknown path, so that the refusal keeps the navigation."""
    with suppress(ProtocolError, PostroomError):  # not signed in, or a program
        await admit(call)
