"""cli: the command line, for people.

NAME     cli, `postroom <command>`; `postroom --help` lists the commands
CALLS    the commands below and those of each capability's `cli.py`, one service call each
FAILURES   one sentence on standard error. Exit 0 done, 1 refused, 2 usage, 130 interrupted

A command's module is imported only when that command is asked for, so that `--help` and a typing mistake answer at
once; the others stand in the list by the name and sentence of the table below.
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.exceptions import TyperException

from postroom.cli.output import REFUSED, report
from postroom.cli.usage import HELP_OPTIONS, readable_types, report_usage

if TYPE_CHECKING:
    from postroom.db.room import Room
    from postroom.delivery.contents import Contents

RUN, MAIL, PEOPLE, FACTS, CARE = "Run", "Mail", "People", "Facts", "Look after"


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """One word after `postroom`: where it is implemented, and what it is for."""

    name: str
    place: str  # module:attribute, a function or a group
    panel: str
    about: str
    passes_arguments: bool = False

    def load(self) -> Any:
        module, _, attribute = self.place.partition(":")
        return getattr(import_module(module), attribute)


COMMANDS = (
    CommandEntry("up", "postroom.cli.up:up", RUN, "Run database, API and workers by one command."),
    CommandEntry("demo", "postroom.cli.demo.command:demo", RUN, "Play a story on the running system."),
    CommandEntry(
        "sign-in-link",
        "postroom.cli.sign_in_link:sign_in_link",
        RUN,
        "Print a link that signs in to the dashboard once.",
    ),
    CommandEntry("serve", "postroom.cli.serve:serve", RUN, "Serve the HTTP API."),
    CommandEntry("work", "postroom.cli.work:work", RUN, "Render and deliver queued mail."),
    CommandEntry("migrate", "postroom.cli.migrate:migrate", RUN, "Bring the room's schema up to this version."),
    CommandEntry("schema", "postroom.cli.schema:schema", CARE, "Print the room as one file of SQL."),
    CommandEntry("send", "postroom.mail.send_cli:send", MAIL, "Send one mail and print its id."),
    CommandEntry("top", "postroom.cli.top:top", CARE, "Show the room live: lanes, rates, workers, senders, problems."),
    CommandEntry("doctor", "postroom.cli.doctor:doctor", CARE, "Check the installation and advise on problems."),
    CommandEntry("backup", "postroom.backup.cli:backup", CARE, "Back up the room to a file and verify it."),
    CommandEntry("restore", "postroom.backup.cli:restore", CARE, "Restore a backup as a room."),
    CommandEntry("erase", "postroom.erasure.cli:erase", CARE, "Erase a person everywhere, by address."),
    CommandEntry(
        "db-url", "postroom.cli.database:db_url", CARE, "Print a URL of the database, for psql and other programs."
    ),
    CommandEntry("psql", "postroom.cli.database:psql", CARE, "Open psql in the room.", passes_arguments=True),
)
GROUPS = (
    CommandEntry(
        "deliveries", "postroom.delivery.cli:deliveries", MAIL, "Deliveries: list, show, cancel, retry, resend."
    ),
    CommandEntry(
        "dead-letters", "postroom.delivery.dead_letter_cli:dead_letters", MAIL, "Dead letters: list, redrive."
    ),
    CommandEntry(
        "mass-actions",
        "postroom.delivery.mass.cli:mass_actions",
        MAIL,
        "Cancel, retry or resend all deliveries of a filter.",
    ),
    CommandEntry("templates", "postroom.mail.cli:templates", MAIL, "The template catalog, and previews of it."),
    CommandEntry("inbox", "postroom.inbox.cli:inbox", MAIL, "Mail that was captured instead of sent."),
    CommandEntry("intake", "postroom.cli.intake:intake", RUN, "Consume commands from a Redis or NATS stream."),
    CommandEntry("malformed", "postroom.intake.cli:malformed", MAIL, "Malformed commands: list, resubmit, dismiss."),
    CommandEntry("senders", "postroom.senders.cli:senders", MAIL, "Sender accounts: quota, pace, health, credentials."),
    CommandEntry(
        "campaigns", "postroom.campaigns.cli:campaigns", MAIL, "Campaigns: upload, preview, start, pause, report."
    ),
    CommandEntry("clicks", "postroom.tracking.cli:clicks", MAIL, "Clicks: by link of a campaign, and by person."),
    CommandEntry("suppressions", "postroom.feedback.cli:suppressions", MAIL, "Suppressed addresses and their reasons."),
    CommandEntry("feedback", "postroom.feedback.cli:feedback", MAIL, "Bounces and complaints: read, list, listen."),
    CommandEntry("stats", "postroom.stats.cli:stats", FACTS, "Statistics of sent, opened, clicked and bounced mail."),
    CommandEntry("accounts", "postroom.accounts.cli:accounts", PEOPLE, "Accounts: sign up, suspend, reissue."),
    CommandEntry("tokens", "postroom.accounts.cli:tokens", PEOPLE, "Collect tokens for mail or a pipe."),
    CommandEntry("users", "postroom.schedule.cli:users", PEOPLE, "People who get greetings at their local time."),
    CommandEntry("schedule", "postroom.schedule.event_cli:schedule", PEOPLE, "Scheduled events: list, move, cancel."),
    CommandEntry("events", "postroom.events.cli:events", FACTS, "Append, read and follow facts."),
    CommandEntry(
        "outbox", "postroom.outbox.cli:outbox", FACTS, "Publishers: lag, pause, resume, reset, skip; topics and rules."
    ),
    CommandEntry(
        "webhooks",
        "postroom.outbox.webhooks.cli:webhooks",
        FACTS,
        "Endpoints that get events: register, rotate, replay.",
    ),
    CommandEntry(
        "archive", "postroom.archive.cli:archive", CARE, "Old months as Parquet: run, list, verify, restore, query."
    ),
    CommandEntry(
        "audit", "postroom.events.audit_cli:audit", CARE, "Manual actions: who did what to which object, and when."
    ),
    CommandEntry("rooms", "postroom.rooms.cli:rooms", CARE, "Rooms on all servers: list, create, migrate, move, drop."),
    CommandEntry("keys", "postroom.http.cli:keys", CARE, "API keys: create, list, revoke."),
    CommandEntry("operators", "postroom.http.operator_cli:operators", CARE, "People of the dashboard and their roles."),
)


def main() -> None:
    """The console script."""
    try:
        command = typer.main.get_command(build(sys.argv[1:]))
        readable_types(command)
        sys.exit(command(prog_name="postroom", standalone_mode=False, obj=_make_contents))
    except TyperException as error:
        sys.exit(report_usage(error))
    except typer.Abort:
        sys.exit(REFUSED)
    except Exception as error:  # noqa: BLE001 - the last place where an error can become a sentence
        sys.exit(report(error))


def build(arguments: Sequence[str]) -> typer.Typer:
    """The application, with only the module of the asked command loaded."""
    asked = next((argument for argument in _completed() or arguments if not argument.startswith("-")), None)
    app = typer.Typer(
        help="Every message an application owes its people, delivered from the PostgreSQL it already runs.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": HELP_OPTIONS},
    )
    app.callback()(_options)
    for entry in COMMANDS:
        function = entry.load() if entry.name == asked else _unloaded
        extra = {"allow_extra_args": True, "ignore_unknown_options": True} if entry.passes_arguments else {}
        app.command(entry.name, short_help=entry.about, rich_help_panel=entry.panel, context_settings=extra)(function)
    for entry in GROUPS:
        group = entry.load() if entry.name == asked else typer.Typer()
        app.add_typer(group, name=entry.name, help=entry.about, rich_help_panel=entry.panel, no_args_is_help=True)
    return app


def _completed() -> list[str]:
    """The words that a shell asks to complete: bash passes COMP_WORDS, the other shells _TYPER_COMPLETE_ARGS."""
    if "_POSTROOM_COMPLETE" not in os.environ:
        return []
    return (os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or "").split()[1:]


def _unloaded() -> None:
    """Stand in the list for a command that was not asked for."""


def _print_version(asked: bool) -> None:  # noqa: FBT001 - called by typer
    if asked:
        from importlib.metadata import version

        sys.stdout.write(f"postroom {version('postroom')}\n")
        raise typer.Exit


def _make_contents(room: "Room") -> "Contents":
    from postroom.mail.contents import contents_of

    return contents_of(room.pool)


def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
) -> None:
    """Options before the command."""
