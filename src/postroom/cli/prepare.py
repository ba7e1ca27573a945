"""Check templates, sender, keys and the transport before anything listens or works.

A worker would find the same, but later: after a port is open, or in a child that is started again and again.
"""

from postroom.app import make_composer, open_routes
from postroom.db.room import Room
from postroom.errors import SettingInvalid
from postroom.mail.publishing import publish_files
from postroom.post.address import parse_address
from postroom.runtime.terminal import actor


async def prepare(room: Room) -> None:
    """Try everything that a worker needs, without connecting anywhere, and publish the templates."""
    settings = room.settings
    await publish_files(room, actor=actor())
    make_composer(settings)
    if settings.admin_email is not None:
        try:
            parse_address(settings.admin_email)
        except ValueError as error:
            raise SettingInvalid("POSTROOM_ADMIN_EMAIL", str(error)) from error
    async with open_routes(room):
        pass
