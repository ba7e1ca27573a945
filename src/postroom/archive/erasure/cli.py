"""`postroom erase`: forgetting a person at the command line."""

from typing import TYPE_CHECKING, Annotated

import typer

from postroom.archive.cli import Endpoint, options_from
from postroom.runtime.terminal import AsJson, actor, in_room, print_json, say

if TYPE_CHECKING:
    from postroom.archive.erasure.model import Erasure


def erase(
    address: Annotated[str, typer.Argument(help="The person's address, in any case.")],
    *,
    keep_accounts: Annotated[
        bool, typer.Option("--keep-accounts", help="Leave `accounts` and `users` to the application.")
    ] = False,
    endpoint: Endpoint = None,
    as_json: AsJson = False,
) -> None:
    """Forget a person: bodies, recipients, events, opens, clicks, accounts, and the files of the archive.

    Exit 1 if files of the archive still wait; `postroom work` goes on with them.
    """
    from postroom.archive.erasure.service import erase as forget

    done = in_room(
        lambda room: forget(
            room, options_from(room, endpoint=endpoint), address=address, actor=actor(), keep_accounts=keep_accounts
        )
    )
    if as_json:
        print_json(done)
    else:
        _tell(done)
    if not done.is_done:
        raise typer.Exit(1)


def _tell(done: "Erasure") -> None:
    for name, amount in sorted(done.counts.items()):
        say(f"{name}: {amount}")
    for reason in done.waits_for:
        say(f"waiting: {reason}")
    say(
        f"erasure {done.id} is done"
        if done.is_done
        else f"erasure {done.id} is not done: it waits for the archive, and `postroom work` goes on with it"
    )
