"""`postroom sign-in-link`: a link to the dashboard that signs in once."""

from typing import TYPE_CHECKING, Annotated

import typer

from postroom.runtime.terminal import actor, in_room, say

if TYPE_CHECKING:
    from postroom.db.room import Room


def sign_in_link(
    *,
    operator: Annotated[
        str | None, typer.Option(help="Address of the operator to sign in as; default: the API key named admin.")
    ] = None,
) -> None:
    """Print a link that signs in to the dashboard once, within ten minutes, in a browser on this machine."""
    from postroom.dashboard.links import make_link
    from postroom.http.operators import find_by_email
    from postroom.http.service import get_admin_key

    async def command(room: "Room") -> str:
        owner = await (find_by_email(room.pool, operator) if operator else get_admin_key(room.pool))
        return await make_link(room, owner, url=_url(*room.settings.http_addr), actor=actor())

    say(in_room(command))


def _url(host: str, port: int) -> str:
    """The URL by which a browser on this machine reaches the HTTP server."""
    from postroom.errors import SettingInvalid
    from postroom.runtime.peers import LOOPBACK, is_within, local_url

    if host not in ("localhost", "0.0.0.0", "::") and not is_within(host, LOOPBACK):  # noqa: S104 - compared, not bound
        raise SettingInvalid("POSTROOM_HTTP_ADDR", f"{host} is not on loopback, where sign-in links work")
    return local_url(host, port)
