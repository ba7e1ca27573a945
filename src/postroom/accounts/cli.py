"""Accounts and tokens at the command line."""

import sys
from enum import StrEnum
from typing import Annotated

import typer

from postroom.accounts import service
from postroom.accounts.letter import AccountMailOptions
from postroom.accounts.model import AccountFilter, AccountStatus
from postroom.accounts.pipe import FORMATS, Pipe
from postroom.accounts.worker import Deliver, HandOn, Ready, make_collector, run_collector
from postroom.db.room import Room
from postroom.errors import OutputLost
from postroom.runtime.terminal import (
    LARGEST_ID,
    AsJson,
    Cursor,
    Limit,
    actor,
    in_room,
    print_page,
    print_record,
    stop_signal,
)

accounts = typer.Typer()
tokens = typer.Typer()

Id = Annotated[int, typer.Argument(min=0, max=LARGEST_ID, help="Account id.")]

_LISTED = ("id", "email", "login", "status", "created_at", "activated_at", "suspended_at")


class Format(StrEnum):
    """Output of `tokens collect`: lines for another program, or mail."""

    CSV = "csv"
    JSONL = "jsonl"
    DELIVER = "deliver"


@accounts.command()
def create(
    email: Annotated[str, typer.Argument(help="Email address, such as a@example.org.")],
    login: Annotated[str, typer.Argument(help="Login of the account.")],
    *,
    locale: Annotated[str | None, typer.Option(help="Language of the mail, such as fr or pt-BR.")] = None,
    as_json: AsJson = False,
) -> None:
    """Create an account and queue its activation mail."""
    made = in_room(lambda room: service.create_account(room.pool, email, login, actor=actor(), locale=locale))
    print_record(made, as_json=as_json)


@accounts.command("list")
def list_(
    *,
    status: Annotated[AccountStatus | None, typer.Option(help="Only accounts with this status.")] = None,
    email: Annotated[str | None, typer.Option(help="Only the account with this address; case is ignored.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """List accounts, newest first."""
    chosen = AccountFilter(status=status, email=email)
    found = in_room(lambda room: service.list_accounts(room.pool, chosen, cursor=cursor, limit=limit))
    print_page(*found, columns=_LISTED, as_json=as_json)


@accounts.command()
def show(account_id: Id, *, as_json: AsJson = False) -> None:
    """Show one account."""
    print_record(in_room(lambda room: service.get_account(room.pool, account_id)), as_json=as_json)


@accounts.command()
def suspend(account_id: Id, *, as_json: AsJson = False) -> None:
    """Suspend an account."""
    print_record(in_room(lambda room: service.suspend(room.pool, account_id, actor=actor())), as_json=as_json)


@accounts.command()
def unsuspend(account_id: Id, *, as_json: AsJson = False) -> None:
    """Unsuspend an account: active if it was ever activated, otherwise provisioned."""
    print_record(in_room(lambda room: service.unsuspend(room.pool, account_id, actor=actor())), as_json=as_json)


@accounts.command()
def reissue(account_id: Id, *, as_json: AsJson = False) -> None:
    """Send a new activation mail to a provisioned account."""
    print_record(
        in_room(lambda room: service.reissue_activation(room.pool, account_id, actor=actor())), as_json=as_json
    )


@tokens.command()
def collect(
    *,
    form: Annotated[
        Format, typer.Option("--format", help="Print each batch as a line, or queue it as mail.")
    ] = Format.DELIVER,
    until_empty: Annotated[bool, typer.Option("--until-empty", help="Exit when no token is left.")] = False,
) -> None:
    """Collect new tokens and mail or print them, until SIGTERM or Ctrl-C.

    A line is written before its batch is committed: after a crash a reader may get it twice, but never misses one. All
    collectors share one cursor: set POSTROOM_ACCOUNT_MAIL=off for the workers, otherwise they mail tokens too.
    """
    in_room(lambda room: _collect(room, form, until_empty=until_empty))


async def _collect(room: Room, form: Format, *, until_empty: bool) -> None:
    hand_on, ready = _hand_on(room, form)
    try:
        if until_empty:
            await make_collector(room, hand_on, ready=ready).run_until_empty()
            return
        await run_collector(room, stop=stop_signal(), hand_on=hand_on, ready=ready)
    except* OutputLost as lost:
        _exit_quietly_on_broken_pipe(lost)
        raise


def _hand_on(room: Room, form: Format) -> tuple[HandOn, Ready | None]:
    letterhead = AccountMailOptions.of(room.settings)
    if form is Format.DELIVER:
        return Deliver(letterhead, idempotency_ttl=room.settings.idempotency_ttl), None
    pipe = Pipe(sys.stdout.fileno(), letterhead, form=FORMATS[form], batch_limit=room.settings.batch_limit)
    return pipe, pipe.ready


def _exit_quietly_on_broken_pipe(lost: ExceptionGroup[OutputLost]) -> None:
    """A closed pipe is not an error: the command exits without a message, as `| head` expects."""
    for error in lost.exceptions:
        if isinstance(error.__cause__, BrokenPipeError):
            raise error.__cause__
