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

from postroom.cli.output import HELP_OPTIONS, REFUSED, readable_types, report, report_usage

if TYPE_CHECKING:
    from postroom.db.room import Room
    from postroom.delivery.contents import Contents

RUN, MAIL, PEOPLE, FACTS, CARE = "Run", "Mail", "People", "Facts", "Look after"


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """One word after `postroom`: where it is implemented, and what it is for."""

    name: str
    module: str  # below `postroom`; its function or group has the name of the command, with underscores
    panel: str
    about: str
    passes_arguments: bool = False

    def load(self) -> Any:
        return getattr(import_module(f"postroom.{self.module}"), self.name.replace("-", "_"))


COMMANDS = (
    CommandEntry("up", "cli.up", RUN, "Run database, API and workers by one command."),
    CommandEntry("demo", "cli.demo.command", RUN, "Play a story on the running system."),
    CommandEntry("sign-in-link", "cli.sign_in_link", RUN, "Print a link that signs in to the dashboard once."),
    CommandEntry("serve", "cli.serve", RUN, "Serve the HTTP API."),
    CommandEntry("work", "cli.work", RUN, "Render and deliver queued mail."),
    CommandEntry("migrate", "cli.migrate", RUN, "Bring the room's schema up to this version."),
    CommandEntry("schema", "cli.database", CARE, "Print the room as one file of SQL."),
    CommandEntry("send", "mail.send_cli", MAIL, "Send one mail and print its id."),
    CommandEntry("top", "cli.top", CARE, "Show the room live: lanes, rates, workers, senders, problems."),
    CommandEntry("doctor", "cli.doctor", CARE, "Check the installation and advise on problems."),
    CommandEntry("backup", "backup.cli", CARE, "Back up the room to a file and verify it."),
    CommandEntry("restore", "backup.cli", CARE, "Restore a backup as a room."),
    CommandEntry("erase", "erasure.cli", CARE, "Erase a person everywhere, by address."),
    CommandEntry("db-url", "cli.database", CARE, "Print a URL of the database, for psql and other programs."),
    CommandEntry("psql", "cli.database", CARE, "Open psql in the room.", passes_arguments=True),
)
GROUPS = (
    CommandEntry("deliveries", "delivery.cli", MAIL, "Deliveries: list, show, cancel, retry, resend."),
    CommandEntry("dead-letters", "delivery.dead_letter_cli", MAIL, "Dead letters: list, redrive."),
    CommandEntry("mass-actions", "delivery.mass.cli", MAIL, "Cancel, retry or resend all deliveries of a filter."),
    CommandEntry("templates", "mail.cli", MAIL, "The template catalog, and previews of it."),
    CommandEntry("inbox", "inbox.cli", MAIL, "Mail that was captured instead of sent."),
    CommandEntry("intake", "cli.intake", RUN, "Consume commands from a Redis or NATS stream."),
    CommandEntry("malformed", "intake.cli", MAIL, "Malformed commands: list, resubmit, dismiss."),
    CommandEntry("senders", "senders.cli", MAIL, "Sender accounts: quota, pace, health, credentials."),
    CommandEntry("campaigns", "campaigns.cli", MAIL, "Campaigns: upload, preview, start, pause, report."),
    CommandEntry("clicks", "tracking.cli", MAIL, "Clicks: by link of a campaign, and by person."),
    CommandEntry("suppressions", "feedback.cli", MAIL, "Suppressed addresses and their reasons."),
    CommandEntry("feedback", "feedback.cli", MAIL, "Bounces and complaints: read, list, listen."),
    CommandEntry("stats", "stats.cli", FACTS, "Statistics of sent, opened, clicked and bounced mail."),
    CommandEntry("accounts", "accounts.cli", PEOPLE, "Accounts: sign up, suspend, reissue."),
    CommandEntry("tokens", "accounts.cli", PEOPLE, "Collect tokens for mail or a pipe."),
    CommandEntry("users", "schedule.cli", PEOPLE, "People who get greetings at their local time."),
    CommandEntry("schedule", "schedule.event_cli", PEOPLE, "Scheduled events: list, move, cancel."),
    CommandEntry("events", "events.cli", FACTS, "Append, read and follow facts."),
    CommandEntry("outbox", "outbox.cli", FACTS, "Publishers: lag, pause, resume, reset, skip; topics and rules."),
    CommandEntry("webhooks", "outbox.webhooks.cli", FACTS, "Endpoints that get events: register, rotate, replay."),
    CommandEntry("archive", "archive.cli", CARE, "Old months as Parquet: run, list, verify, restore, query."),
    CommandEntry("audit", "events.cli", CARE, "Manual actions: who did what to which object, and when."),
    CommandEntry("rooms", "rooms.cli", CARE, "Rooms on all servers: list, create, migrate, move, drop."),
    CommandEntry("secrets", "cli.sealed_secrets", CARE, "Sealed secrets: rotate after a change of the secret key."),
    CommandEntry("keys", "http.cli", CARE, "API keys: create, list, revoke."),
    CommandEntry("operators", "http.cli", CARE, "People of the dashboard and their roles."),
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
    from postroom.campaigns.contents import contents_of

    return contents_of(room.pool)


def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
) -> None:
    """Options before the command."""
