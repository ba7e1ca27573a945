"""Commands for sender accounts. Secrets come from a prompt or a file, never from arguments."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from postroom.db.room import Room
from postroom.runtime.setting import parse_address
from postroom.runtime.terminal import (
    LARGEST_ID,
    AsJson,
    Cursor,
    Limit,
    actor,
    existing,
    in_room,
    print_json,
    print_page,
    print_record,
    print_table,
    say,
)
from postroom.senders import service
from postroom.senders.check import SenderRequest
from postroom.senders.model import LANES, AuthType, SenderAccount
from postroom.senders.tools import tools_of
from postroom.settings import read_settings

senders = typer.Typer()
domains = typer.Typer(no_args_is_help=True, help="Limits of destinations.")
senders.add_typer(domains, name="domains")

_LISTED = (
    "id", "status", "email", "auth_type", "daily_sent", "daily_limit", "warmup_stage", "lanes", "paused_until",
    "status_reason",
)  # fmt: skip
_DOMAINS = ("domain", "max_connections", "messages_per_second", "backoff_level", "paused_until")

Id = Annotated[int, typer.Argument(min=1, max=LARGEST_ID, help="Id of the account.")]
Lanes = Annotated[
    list[str] | None, typer.Option("--lane", help="Lane of the account; repeatable. Default: all, with --warmup bulk.")
]
Secret = Annotated[
    Path | None,
    typer.Option(help="File with the secret (-: standard input): password, key file, or SES id:secret."),
]
Host = Annotated[str | None, typer.Option(help="host:port of the SMTP server.")]
Warmup = Annotated[bool | None, typer.Option("--warmup/--no-warmup", help="Raise the daily limit in stages.")]
DailyLimit = Annotated[int | None, typer.Option(help="Maximum mails per UTC day.")]
BatchSize = Annotated[int | None, typer.Option(help="Maximum mails per claim.")]
SendDelay = Annotated[int | None, typer.Option(help="Delay between two starts, in milliseconds.")]
Username = Annotated[str | None, typer.Option(help="User name at the SMTP server.")]
DisplayName = Annotated[str | None, typer.Option(help="Display name beside the address.")]


@senders.command()
def add(  # noqa: PLR0913 - every option of a mailbox
    email: Annotated[str, typer.Argument(help="The mailbox.")],
    *,
    auth_type: Annotated[str, typer.Option("--type", help="smtp, gmail or ses.")] = "smtp",
    name: DisplayName = None,
    host: Host = None,
    username: Username = None,
    tls: Annotated[
        bool,
        typer.Option(
            "--tls/--no-tls",
            help="STARTTLS, or TLS from the start at port 465; `--no-tls` for a relay on this machine.",
        ),
    ] = True,
    subject: Annotated[str | None, typer.Option(help="Gmail: mailbox to send as.")] = None,
    region: Annotated[str | None, typer.Option(help="SES: AWS region.")] = None,
    secret_file: Secret = None,
    daily_limit: DailyLimit = None,
    batch_size: BatchSize = None,
    send_delay_ms: SendDelay = None,
    lane: Lanes = None,
    warmup: Warmup = None,
    as_json: AsJson = False,
) -> None:
    """Add an account and print it. Without --secret-file, prompt for the password of a login."""
    given = _given(
        display_name=name, smtp_username=username, gmail_subject_email=subject, ses_region=region,
        daily_limit=daily_limit, batch_size=batch_size, send_delay_ms=send_delay_ms, lanes=_tuple(lane), warmup=warmup,
        **_host(host), **_secret(auth_type, secret_file, ask=username is not None),
    )  # fmt: skip
    request = SenderRequest(email=email, auth_type=_type(auth_type), smtp_use_tls=tls, **given)
    made = in_room(lambda room: service.create_sender(room.pool, tools_of(room), request, actor=actor()))
    print_record(made, as_json=as_json)
    if not as_json:
        say(f"\n{_outlook(made)}")
    settings = read_settings()
    if not settings.uses_senders:
        sys.stderr.write(
            f"postroom: POSTROOM_TRANSPORT={settings.transport} uses no accounts. To send through this one, "
            f"set POSTROOM_TRANSPORT=senders for the workers.\n"
        )


def _outlook(account: SenderAccount) -> str:
    """Which mail leaves through an account from now on, and how much a day."""
    lanes = " and ".join(account.lanes)
    quota = (
        f"{account.limit:,} mails a day"
        if account.warmup_stage == 0
        else (f"{account.limit:,} mails a day at first, {account.warmup_limits[-1]:,} after its warm-up")
    )
    rest = "" if set(account.lanes) == set(LANES) else " Mail of other lanes leaves as before."
    return f"All mail of lane {lanes} now leaves through the accounts of that lane; this one sends {quota}.{rest}"


@senders.command()
def update(  # noqa: PLR0913 - every option of a mailbox
    sender_id: Id,
    *,
    name: DisplayName = None,
    host: Host = None,
    username: Username = None,
    secret_file: Secret = None,
    daily_limit: DailyLimit = None,
    batch_size: BatchSize = None,
    send_delay_ms: SendDelay = None,
    lane: Lanes = None,
    warmup: Warmup = None,
    as_json: AsJson = False,
) -> None:
    """Change the given fields and print the account."""

    async def changed(room: Room) -> SenderAccount:
        kind = (await service.get_sender(room.pool, sender_id)).auth_type
        changes = _given(
            display_name=name, smtp_username=username, daily_limit=daily_limit, batch_size=batch_size,
            send_delay_ms=send_delay_ms, lanes=_tuple(lane), warmup=warmup, **_host(host),
            **_secret(kind.value, secret_file, ask=False),
        )  # fmt: skip
        return await service.change_sender(room.pool, tools_of(room), sender_id, changes, actor=actor())

    print_record(in_room(changed), as_json=as_json)


@senders.command("list")
def list_(*, limit: Limit = 50, cursor: Cursor = None, as_json: AsJson = False) -> None:
    """List accounts."""
    found = in_room(lambda room: service.list_senders(room.pool, cursor=cursor, limit=limit))
    print_page(*found, columns=_LISTED, as_json=as_json)


@senders.command()
def show(sender_id: Id, *, as_json: AsJson = False) -> None:
    """Show an account, without its secret."""
    print_record(in_room(lambda room: service.get_sender(room.pool, sender_id)), as_json=as_json)


@senders.command()
def pause(
    sender_id: Id, *, reason: Annotated[str | None, typer.Option(help="Reason, shown to people.")] = None
) -> None:
    """Stop sending through an account until it is resumed."""
    say(in_room(lambda room: service.pause_sender(room.pool, sender_id, reason=reason, actor=actor())).status.value)


@senders.command()
def resume(sender_id: Id) -> None:
    """Resume an account and clear its error record."""
    say(in_room(lambda room: service.resume_sender(room.pool, sender_id, actor=actor())).status.value)


@senders.command()
def remove(sender_id: Id) -> None:
    """Remove an account and its secret."""
    in_room(lambda room: service.delete_sender(room.pool, sender_id, actor=actor()))
    say("removed")


@senders.command("test")
def try_out(sender_id: Id, *, as_json: AsJson = False) -> None:
    """Send a test mail from an account to itself and print each step. Exit 1 if it was not accepted."""
    trial = in_room(lambda room: service.try_sender(room.pool, tools_of(room), sender_id, actor=actor()))
    if as_json:
        print_json(trial)
    else:
        print_table(("step", "ok", "detail"), ((s.name, "yes" if s.ok else "no", s.detail) for s in trial.steps))
    if not trial.ok:
        raise typer.Exit(1)


@senders.command("rotate-key", hidden=True, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def rotate_key() -> None:
    """Name the command that replaced this one: other secrets than those of senders are sealed too."""
    raise typer.BadParameter(
        "rotate-key was replaced: put the old key into POSTROOM_OLD_SECRET_KEYS and run `postroom secrets rotate`"
    )


@domains.command("list")
def list_domains(*, limit: Limit = 50, cursor: Cursor = None, as_json: AsJson = False) -> None:
    """List destinations with limits or an active pause."""
    found = in_room(lambda room: service.list_domains(room.pool, cursor=cursor, limit=limit))
    print_page(*found, columns=_DOMAINS, as_json=as_json)


@domains.command("set")
def set_domain(
    domain: Annotated[str, typer.Argument(help="Recipient domain, such as gmail.com.")],
    *,
    connections: Annotated[int | None, typer.Option(min=1, help="Maximum connections per process.")] = None,
    rate: Annotated[float | None, typer.Option(min=0.001, help="Maximum mails per second.")] = None,
    as_json: AsJson = False,
) -> None:
    """Set the limits of a destination."""
    shape = in_room(
        lambda room: service.put_domain(
            room.pool, domain, max_connections=connections, messages_per_second=rate, actor=actor()
        )
    )
    print_record(shape, columns=_DOMAINS, as_json=as_json)


@domains.command("remove")
def remove_domain(domain: Annotated[str, typer.Argument(help="Recipient domain, such as gmail.com.")]) -> None:
    """Remove the limits of a destination."""
    in_room(lambda room: service.delete_domain(room.pool, domain, actor=actor()))
    say("removed")


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _tuple(values: list[str] | None) -> tuple[str, ...] | None:
    return tuple(values) if values else None


def _type(value: str) -> Any:
    try:
        return AuthType(value)
    except ValueError:
        raise typer.BadParameter("--type must be smtp, gmail or ses") from None


def _host(host: str | None) -> dict[str, Any]:
    if host is None:
        return {}
    try:
        name, port = parse_address(host)
    except ValueError as error:
        raise typer.BadParameter(f"--host {error}") from error
    return {"smtp_host": name, "smtp_port": port}


def _secret(kind: str, file: Path | None, *, ask: bool) -> dict[str, str]:
    """Read the secret from a file, standard input or a prompt."""
    if file is None:
        return {"smtp_password": _ask_password()} if ask and kind == "smtp" else {}
    text = _read(file)
    if kind == "ses":
        key_id, _, key = text.partition(":")
        return {"ses_access_key_id": key_id, "ses_secret_access_key": key}
    return {"gmail_credentials" if kind == "gmail" else "smtp_password": text}


def _ask_password() -> str:
    if not sys.stdin.isatty():
        raise typer.BadParameter("No terminal to ask for the password; use --secret-file")
    password: str = typer.prompt("Password", hide_input=True)
    return password


def _read(file: Path) -> str:
    existing(file)
    try:
        return (typer.get_text_stream("stdin").read() if str(file) == "-" else file.read_text()).strip()
    except OSError as error:
        raise typer.BadParameter(f"{file}: {error.strerror}") from error
