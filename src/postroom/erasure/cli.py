"""`postroom erase`: erase a person."""

import sys
from collections.abc import Mapping
from typing import Annotated

import typer

from postroom.archive.cli import Endpoint, options_from
from postroom.erasure.model import Erasure
from postroom.erasure.service import erase as forget
from postroom.erasure.service import preview_erasure
from postroom.runtime.terminal import AsJson, actor, in_room, print_json, say


def erase(
    address: Annotated[str, typer.Argument(help="Address of the person, case-insensitive.")],
    *,
    keep_accounts: Annotated[
        bool, typer.Option("--keep-accounts", help="Leave `accounts` and `users` to the application.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only count the rows that would change; texts and files are not searched.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation on a terminal.")] = False,
    endpoint: Endpoint = None,
    as_json: AsJson = False,
) -> None:
    """Erase a person: bodies, recipients, events, opens, clicks, accounts, and the files of the archive.

    It cannot be undone: on a terminal the command shows how many rows would change and asks first. Exit 1 if files of
    the archive still wait; `postroom work` goes on with them.
    """
    is_asking = is_terminal() and not (yes or as_json)
    if dry_run or is_asking:
        _preview(address, keep_accounts=keep_accounts, as_json=as_json)
    if dry_run:
        return
    if is_asking:
        typer.confirm(f"Erase {address}? This cannot be undone.", abort=True)
    done = in_room(
        lambda room: forget(
            room, options_from(room, endpoint=endpoint), address=address, actor=actor(), keep_accounts=keep_accounts
        )
    )
    if as_json:
        print_json(done)
    else:
        _tell(address, done)
    if not done.is_done:
        raise typer.Exit(1)


def is_terminal() -> bool:
    """True if standard input and output are a terminal."""
    return sys.stdin.isatty()


def _preview(address: str, *, keep_accounts: bool, as_json: bool) -> None:
    counts = in_room(lambda room: preview_erasure(room, address=address, keep_accounts=keep_accounts))
    if as_json:
        print_json({"dry_run": True, "counts": counts})
        return
    _tell_counts(counts)
    if not counts:
        say(f"No table has {address} as a recipient or a person; texts and files of the archive were not searched.")


def _tell(address: str, done: Erasure) -> None:
    _tell_counts(done.counts)
    for reason in done.waits_for:
        say(f"waiting: {reason}")
    if not done.is_done:
        say(f"erasure {done.id} is not done: files of the archive are left, and `postroom work` continues with them")
    elif done.counts:
        say(f"erasure {done.id} is done")
    else:
        say(f"erasure {done.id} is done: nothing was stored about {address}")


def _tell_counts(counts: Mapping[str, int]) -> None:
    for name, amount in sorted(counts.items()):
        say(f"{name}: {amount}")
