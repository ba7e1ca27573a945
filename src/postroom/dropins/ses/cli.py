"""The keys of AWS's clients at the command line."""

from typing import Annotated

import typer

from postroom.db.room import Room
from postroom.dropins.ses.credentials import SesKey
from postroom.dropins.ses.service import show_credentials
from postroom.runtime.aws import AwsCredentials
from postroom.runtime.terminal import AsJson, actor, in_room, print_json, say


def ses_credentials(
    key: Annotated[str, typer.Argument(help="The id of an API key, or its name.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Print the access key and secret with which clients of Amazon SES send as this API key."""

    async def command(room: Room) -> tuple[SesKey, AwsCredentials]:
        return await show_credentials(room, key, actor=actor())

    found, pair = in_room(command)
    if as_json:
        print_json(
            {
                "id": found.id,
                "name": found.name,
                "access_key_id": pair.access_key_id,
                "secret_access_key": pair.secret_access_key,
            }
        )
    else:
        say(f"AWS_ACCESS_KEY_ID={pair.access_key_id}")
        say(f"AWS_SECRET_ACCESS_KEY={pair.secret_access_key}")
