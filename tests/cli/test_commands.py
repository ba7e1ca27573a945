"""The commands, each run for real against a database of its own."""

import json
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.support.builders import a_mail, accepted
from tests.support.command_line import PATIENT, answer, environment, postroom
from tests.support.templates import write_templates

from postroom.db.room import Room

SEND = ("send", "--to", "ann@example.org", "--subject", "Hello", "--text", "It works.")
WELCOME = '{"name": "Ada", "product": "Quill", "url": "https://quill.example/start"}'


@pytest.fixture
def settings(database_url: str) -> dict[str, str]:
    return {"POSTROOM_DATABASE_URL": database_url, "POSTROOM_POLL_INTERVAL": "50ms", "POSTROOM_LEASE": "1h"}


def test_help_lists_every_command_without_loading_them() -> None:
    """`--help` stays quick because it imports neither driver, web server nor template engine."""
    command = [sys.executable, "-X", "importtime", "-m", "postroom.cli", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=True)
    for word in ("up", "serve", "work", "migrate", "send", "doctor", "deliveries", "dead-letters", "keys", "inbox"):
        assert f" {word} " in done.stdout
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "typer" in imported
    assert imported.isdisjoint({"asyncpg", "starlette", "uvicorn", "minijinja", "structlog", "msgspec", "aiohttp"})


@pytest.mark.parametrize("shell, words", [("complete_bash", "COMP_WORDS"), ("complete_fish", "_TYPER_COMPLETE_ARGS")])
def test_completion_knows_the_commands_of_a_group(shell: str, words: str) -> None:
    """The shell's words name the group whose module is loaded; the other groups are completed by name only."""
    asked = {"_POSTROOM_COMPLETE": shell, "_TYPER_COMPLETE_FISH_ACTION": "get-args", "COMP_CWORD": "2"}
    done = postroom(settings={**asked, words: "postroom senders pau"})
    assert done.stdout.split()[0] == "pause"


@pytest.mark.parametrize(
    "arguments", [("nonsense",), ("send",), ("deliveries", "show", "many"), ("work", "--processes", "0")]
)
def test_wrong_usage_ends_with_2(arguments: tuple[str, ...]) -> None:
    """Usage errors exit with 2, rejected requests with 1."""
    assert postroom(*arguments).returncode == 2


def test_every_command_and_group_loads() -> None:
    """The table of commands names modules and attributes that exist: each can print its help."""
    from postroom.cli import COMMANDS, GROUPS, build

    for entry in (*COMMANDS, *GROUPS):
        assert entry.load() is not None, entry.name
        assert build([entry.name]) is not None


async def test_a_listing_searches_on_until_it_finds_a_delivery(room: Room) -> None:
    """A page that examined its 5,000 deliveries and found none is not shown."""
    await room.pool.execute(
        "INSERT INTO deliveries (next_attempt_at, ladder, source, recipient_email)"
        " SELECT now(), 'generic', 'shop', CASE n WHEN 1 THEN 'ada' ELSE 'bob' END || '@example.org'"
        " FROM generate_series(1, 10001) AS n"
    )
    command = ("deliveries", "list", "--contains", "ada@", "--json")
    found = answer(postroom(*command, settings={"POSTROOM_DATABASE_URL": room.url}))
    assert ([item["id"] for item in found["items"]], found["next_cursor"]) == ([1], None)


async def test_a_listing_is_filtered_by_its_options(room: Room) -> None:
    """Each option alone selects the delivery that has its value."""
    wanted = a_mail(
        "ann@shop.example",
        idempotency_key="order-7",
        tags={"kind": "receipt"},
        headers={"Message-ID": "<own@shop.example>"},
    )
    [delivery_id, _other] = await accepted(room.pool, wanted, a_mail("bob@example.org"))
    for option, value in (
        ("--key", "order-7"),
        ("--message-id", "own@shop.example"),
        ("--message-id", "<own@shop.example>"),
        ("--tag", "kind=receipt"),
        ("--domain", "Shop.example"),
    ):
        command = ("deliveries", "list", option, value, "--json")
        found = answer(postroom(*command, settings={"POSTROOM_DATABASE_URL": room.url}))
        assert (option, [item["id"] for item in found["items"]]) == (option, [delivery_id])


@pytest.mark.parametrize(
    "option, value",
    [
        ("--status", "lost"),
        ("--lane", "fast"),
        ("--tag", "receipt"),
        ("--sender", "x"),
        ("--since", "x"),
        ("--before", "x"),
    ],
)
def test_a_bad_filter_of_a_listing_is_named(option: str, value: str) -> None:
    """One sentence with the option, before a database is needed."""
    done = postroom("deliveries", "list", option, value, settings={})
    assert done.returncode != 0
    assert done.stderr.startswith((f"postroom: {option}: ", f"postroom: {option.lstrip('-')}: "))


@pytest.mark.parametrize(
    "command, option",
    [("audit list", "--since"), ("audit list", "--before"), ("stats show", "--from"), ("stats show", "--to")],
)
def test_a_bad_time_is_one_sentence_with_its_option(command: str, option: str) -> None:
    """Every command that takes a time names the option."""
    done = postroom(*command.split(), option, "x", settings={})
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert done.stderr.startswith(f"postroom: {option}: must be a time such as ")


def test_a_bad_setting_is_one_sentence_with_its_name() -> None:
    """A bad value stops the start with the variable's name, without a trace."""
    done = postroom("deliveries", "list", settings={"POSTROOM_POOL_SIZE": "many"})
    assert done.returncode == 1
    assert done.stderr == "postroom: POSTROOM_POOL_SIZE: must be a whole number above zero\n"


def test_an_unreachable_database_is_one_sentence() -> None:
    """No database, no trace: one sentence, exit 1."""
    url = "postgresql://nobody@127.0.0.1:1/nothing"
    done = postroom("deliveries", "list", settings={"POSTROOM_DATABASE_URL": url})
    assert done.returncode == 1
    assert done.stderr.startswith("postroom: The database at 127.0.0.1:1/nothing cannot be reached")
    assert len(done.stderr.splitlines()) == 1


def test_send_prints_the_id_and_the_listing_has_it(settings: dict[str, str]) -> None:
    """A mail accepted by `send` is committed: the next process shows it with the API's field names."""
    sent = postroom(*SEND, "--cc", "Bob <bob@example.org>", "--tag", "kind=test", settings=settings)
    assert sent.returncode == 0, sent.stderr
    [item] = answer(postroom("deliveries", "list", "--json", settings=settings))["items"]
    assert (item["id"], item["status"], item["source"]) == (int(sent.stdout), "queued", "cli")
    shown = answer(postroom("deliveries", "show", sent.stdout.strip(), "--json", settings=settings))
    assert shown["tags"] == {"kind": "test"}
    recipients = {(r["kind"], r["address"], r["name"]) for r in shown["recipients"]}
    assert recipients == {("to", "ann@example.org", None), ("cc", "bob@example.org", "Bob")}


def test_a_delivery_names_the_version_of_its_template(settings: dict[str, str]) -> None:
    """With it, `templates show` prints the files that the mail is rendered from."""
    sent = postroom(
        "send", "--to", "ann@example.org", "--template", "welcome", "--vars-json", WELCOME, settings=settings
    )
    assert sent.returncode == 0, sent.stderr
    shown = answer(postroom("deliveries", "show", sent.stdout.strip(), "--json", settings=settings))
    version = str(shown["template_version"])
    files = answer(postroom("templates", "show", "welcome", "--version", version, "--json", settings=settings))
    assert "en/subject" in files["files"]
    lines = postroom("deliveries", "show", sent.stdout.strip(), settings=settings).stdout.splitlines()
    assert ["template", "version", version] in [line.split() for line in lines]


def test_send_reads_the_text_from_standard_input(settings: dict[str, str], tmp_path: Path) -> None:
    """`--text -` takes what is piped in, and `--attach` takes files."""
    note = tmp_path / "note.txt"
    note.write_text("attached")
    command = ("send", "--to", "ann@example.org", "--subject", "Hello", "--text", "-", "--attach", str(note))
    limits = ("--max-retries", "2", "--give-up-after", "1h")
    sent = postroom(*command, *limits, stdin="from a pipe", settings=settings)
    assert sent.returncode == 0, sent.stderr
    shown = answer(postroom("deliveries", "show", sent.stdout.strip(), "--json", settings=settings))
    assert (shown["text"], shown["max_retries"], shown["give_up_after"]) == ("from a pipe", 2, 3600)
    assert [(a["filename"], a["content_type"]) for a in shown["attachments"]] == [("note.txt", "text/plain")]


def test_send_with_a_key_is_accepted_once(settings: dict[str, str]) -> None:
    """The same key and mail give the same id; the same key with another mail is refused."""
    first = answer(postroom(*SEND, "--key", "k1", "--json", settings=settings))
    again = answer(postroom(*SEND, "--key", "k1", "--json", settings=settings))
    assert (again["id"], first["replayed"], again["replayed"]) == (first["id"], False, True)
    other = postroom(*SEND[:-1], "Something else.", "--key", "k1", settings=settings)
    assert other.returncode == 1
    assert "was already used with a different request: delivery " in other.stderr


def test_send_names_every_wrong_field(settings: dict[str, str]) -> None:
    """Bad input is refused with the fields' names and nothing is stored."""
    done = postroom("send", "--to", "nobody", "--subject", "x", "--locale", "!", "--text", "y", settings=settings)
    assert done.returncode == 1
    assert "to[0]: " in done.stderr
    assert "locale: " in done.stderr
    assert answer(postroom("deliveries", "list", "--json", settings=settings))["items"] == []


def test_send_at_takes_a_time_or_a_delay(settings: dict[str, str]) -> None:
    """`--at +1h` waits an hour; a time without a zone is wrong usage."""
    before = datetime.now(UTC)
    sent = postroom(*SEND, "--at", "+1h", settings=settings)
    after = datetime.now(UTC)
    [item] = answer(postroom("deliveries", "list", "--json", settings=settings))["items"]
    due = datetime.fromisoformat(item["next_attempt_at"])
    assert sent.returncode == 0
    assert before <= due - timedelta(hours=1) <= after
    assert postroom(*SEND, "--at", "2030-01-31T09:00:00", settings=settings).returncode == 2


async def test_cancel_is_audited_under_the_name_of_the_user(settings: dict[str, str], room: Room) -> None:
    """An operator's act is written down with who it was; a second cancel is refused."""
    sent = postroom(*SEND, "--at", "+1h", settings=settings).stdout.strip()
    assert postroom("deliveries", "cancel", sent, settings=settings).returncode == 0
    async with room.pool.acquire() as connection:
        row = await connection.fetchrow("SELECT actor, action, subject FROM audit_log")
    assert row["actor"].startswith("cli:")
    assert (row["action"], row["subject"]) == ("delivery.cancel", f"delivery:{sent}")
    again = postroom("deliveries", "cancel", sent, settings=settings)
    assert (again.returncode, again.stderr) == (1, "postroom: A delivery that is cancelled cannot be cancelled.\n")


def test_an_unknown_delivery_is_refused(settings: dict[str, str]) -> None:
    """An unknown id is one sentence and exit 1; an id beyond the database's numbers is wrong usage."""
    done = postroom("deliveries", "show", "42", settings=settings)
    assert (done.returncode, done.stderr) == (1, "postroom: There is no delivery with the id 42.\n")
    assert postroom("deliveries", "show", str(2**63), settings=settings).returncode == 2


def test_work_until_empty_delivers_and_ends(settings: dict[str, str]) -> None:
    """`work --until-empty` renders and delivers what is due, leaves what is not, and exits 0."""
    sent = postroom(*SEND, settings=settings).stdout.strip()
    variables = '{"name": "Ann", "product": "Postroom", "url": "https://example.org"}'
    templated = ("send", "--to", "bob@example.org", "--template", "welcome", "--vars-json", variables)
    assert postroom(*templated, settings=settings).returncode == 0
    later = postroom(*SEND, "--at", "+1h", settings=settings).stdout.strip()
    assert postroom("work", "--until-empty", settings=settings).returncode == 0
    items = answer(postroom("deliveries", "list", "--json", settings=settings))["items"]
    assert {str(item["id"]): item["status"] for item in items}[later] == "queued"
    assert [item["status"] for item in items if str(item["id"]) != later] == ["sent", "sent"]
    attempts = answer(postroom("deliveries", "attempts", sent, "--json", settings=settings))["items"]
    assert [(attempt["outcome"], attempt["transport"]) for attempt in attempts] == [("sent", "capture")]


def test_the_inbox_lists_shows_and_forgets(settings: dict[str, str]) -> None:
    """Captured mail can be found by recipient, read, taken as bytes, and cleared."""
    postroom(*SEND, settings=settings)
    postroom("work", "--until-empty", settings=settings)
    [item] = answer(postroom("inbox", "list", "--to", "ANN@example.org", "--json", settings=settings))["items"]
    assert (item["to"], item["subject"]) == (["ann@example.org"], "Hello")
    shown = answer(postroom("inbox", "show", str(item["id"]), "--json", settings=settings))
    assert (shown["text"].strip(), shown["headers"]["Subject"]) == ("It works.", "Hello")
    assert "Subject: Hello" in postroom("inbox", "raw", str(item["id"]), settings=settings).stdout
    assert postroom("inbox", "clear", settings=settings).stdout == "1 cleared\n"
    assert answer(postroom("inbox", "list", "--json", settings=settings))["items"] == []


def test_control_characters_of_mail_do_not_reach_the_terminal(settings: dict[str, str]) -> None:
    """A stranger's text cannot repaint an operator's screen."""
    sent = postroom(*SEND[:-1], "\x1b[2Jgone", settings=settings).stdout.strip()
    shown = postroom("deliveries", "show", sent, "--body", settings=settings)
    assert "\x1b" not in shown.stdout
    assert "[2Jgone" in shown.stdout


def test_resend_makes_a_new_delivery(settings: dict[str, str]) -> None:
    """The clone has its own id and says whose it is."""
    sent = postroom(*SEND, settings=settings).stdout.strip()
    postroom("work", "--until-empty", settings=settings)
    clone = answer(postroom("deliveries", "resend", sent, "--json", settings=settings))
    assert clone["resend_of"] == int(sent)
    assert clone["id"] != int(sent)


def test_dead_letters_are_listed_counted_and_redriven(settings: dict[str, str]) -> None:
    """An ambiguous bulk mail is held; a dry run counts it; settling says that it had arrived."""
    for _ in range(2):
        command = ("send", "--to", "ambiguous@example.org", "--lane", "bulk", "--subject", "x", "--text", "y")
        assert postroom(*command, settings=settings).returncode == 0
    postroom("work", "--until-empty", settings=settings)
    items = answer(postroom("dead-letters", "list", "--reason", "ambiguous", "--json", settings=settings))["items"]
    assert len(items) == 2
    assert postroom("dead-letters", "redrive", settings=settings).returncode == 2
    dry = answer(postroom("dead-letters", "redrive", "--dry-run", "--json", settings=settings))
    assert (dry["changed"], dry["skipped"], dry["is_complete"]) == (2, {}, True)
    assert postroom("dead-letters", "redrive", "--reason", "boredom", settings=settings).returncode == 2
    first, second = (str(item["delivery_id"]) for item in items)
    assert postroom("dead-letters", "settle", first, settings=settings).returncode == 0
    assert postroom("dead-letters", "redrive", second, settings=settings).stdout == "1 returned to the queue\n"
    assert answer(postroom("dead-letters", "list", "--json", settings=settings))["items"] == []
    unknown = postroom("dead-letters", "redrive", "999999", settings=settings)
    assert (unknown.returncode, "There is no dead letter with the id 999999." in unknown.stderr) == (1, True)


def test_keys_are_shown_once_and_can_be_revoked(settings: dict[str, str]) -> None:
    """A key is printed by its creation and never listed; an unknown scope is refused."""
    made = answer(postroom("keys", "create", "shop", "--scope", "deliveries:write", "--json", settings=settings))
    listed = postroom("keys", "list", "--json", settings=settings)
    assert made["key"].startswith("pr_")
    assert made["key"] not in listed.stdout
    assert postroom("keys", "revoke", str(made["id"]), settings=settings).returncode == 0
    [key] = answer(postroom("keys", "list", "--json", settings=settings))["items"]
    assert key["revoked_at"] is not None
    assert postroom("keys", "create", "shop", "--scope", "everything", settings=settings).returncode == 1


HELLO = {"hello/en/subject": "Hello {{ name }}", "hello/en/text": "Dear {{ name }}"}


def test_templates_are_checked_and_previewed_without_a_database(tmp_path: Path) -> None:
    """Files need no database; a variable that is missing is named, and so is a sample that fails."""
    write_templates(tmp_path, {**HELLO, "hello/_samples/ann.json": '{"name": "Ann"}'})
    settings = {"POSTROOM_TEMPLATE_DIR": str(tmp_path)}
    done = postroom("templates", "preview", "hello", "--var", "name=Ann", settings=settings)
    assert done.stdout == "Subject: Hello Ann\n\nDear Ann\n"
    missing = postroom("templates", "preview", "hello", settings=settings)
    assert missing.returncode == 1
    assert "name" in missing.stderr
    assert postroom("templates", "check", settings=settings).stdout.startswith("8 templates parse; 17 samples render.")
    write_templates(tmp_path, {"hello/_samples/ann.json": "{}"})
    failed = postroom("templates", "check", settings=settings)
    assert (failed.returncode, "the sample 'ann' fails in en" in failed.stderr) == (1, True)


def test_templates_are_published_listed_and_compared(tmp_path: Path, settings: dict[str, str]) -> None:
    """Each edit that is published is a version; old ones can be shown and rendered."""
    write_templates(tmp_path, HELLO)
    settings = {**settings, "POSTROOM_TEMPLATE_DIR": str(tmp_path)}
    first = answer(postroom("templates", "publish", "--json", settings=settings))["templates"]["hello"]
    write_templates(tmp_path, {"hello/en/text": "Hi {{ name }}"})
    second = answer(postroom("templates", "publish", "--json", settings=settings))["templates"]["hello"]
    assert "already" in postroom("templates", "publish", settings=settings).stdout
    listed = answer(postroom("templates", "list", "--json", settings=settings))["items"]
    assert {item["id"]: item["version_id"] for item in listed}["hello"] == second
    found = answer(postroom("templates", "versions", "hello", "--json", settings=settings))["items"]
    assert [version["id"] for version in found] == [second, first]
    assert (
        "-Dear {{ name }}\n+Hi {{ name }}"
        in postroom("templates", "diff", "hello", str(second), settings=settings).stdout
    )
    assert "Dear" in postroom("templates", "show", "hello", "--version", str(first), settings=settings).stdout
    old = postroom("templates", "preview", "hello", "--version", str(first), "--var", "name=Ann", settings=settings)
    assert old.stdout == "Subject: Hello Ann\n\nDear Ann\n"


def test_migrate_says_what_it_would_do_and_does_it(settings: dict[str, str]) -> None:
    """A dry run changes nothing; a run brings the room up; a second one has nothing to do."""
    second = {**settings, "POSTROOM_SCHEMA": "second"}
    dry = answer(postroom("migrate", "--dry-run", "--json", settings=second))
    refused = postroom("deliveries", "list", settings=second)
    assert refused.returncode == 1
    assert "postroom migrate" in refused.stderr
    summary = postroom("migrate", "--dry-run", settings=second).stdout
    assert re.fullmatch(r"Room 'second': would apply \d+ migrations, \d+ functions\.\n", summary)
    listed = postroom("migrate", "--dry-run", "--verbose", settings=second).stdout.splitlines()
    assert listed == [*(f"would apply {name}" for name in dry["files"]), summary.rstrip()]
    assert answer(postroom("migrate", "--json", settings=second))["files"] == dry["files"] != []
    assert postroom("migrate", settings=second).stdout == "The room 'second' is up to date.\n"


def test_migrate_backs_up_a_room_with_data_first(settings: dict[str, str], tmp_path: Path) -> None:
    """Only if tables change, and not with --no-backup; the command says where the backup is."""
    chosen = {**settings, "POSTROOM_BACKUP_URL": str(tmp_path / "backups")}
    answer(postroom("send", "--to", "ann@example.org", "--subject", "s", "--text", "t", "--json", settings=chosen))
    undo = "DROP TABLE ended_sessions, sign_in_codes; DELETE FROM migrations WHERE name LIKE '%_dashboard.sql'"
    for options, backups in (((), 1), (("--no-backup",), 1)):
        assert postroom("psql", "-c", undo, settings=chosen, command=PATIENT).returncode == 0
        assert len(answer(postroom("migrate", "--json", *options, settings=chosen))["files"]) == 1
        assert len(list((tmp_path / "backups").rglob("*.backup"))) == backups
    assert answer(postroom("migrate", "--json", settings=chosen))["backup"] is None


def test_psql_leads_into_the_room(settings: dict[str, str]) -> None:
    """It finds the tables without naming the schema."""
    query = ("psql", "-Atc", "SELECT current_schema(), count(*) FROM deliveries")
    done = postroom(*query, settings=settings, command=PATIENT)
    assert done.stdout == "postroom|0\n", done.stderr


def test_db_url_has_the_room_on_its_search_path_only_on_request(settings: dict[str, str]) -> None:
    """An application that gets the plain URL creates its own tables outside the room."""
    assert postroom("db-url", settings=settings).stdout == settings["POSTROOM_DATABASE_URL"] + "\n"
    assert "options=-csearch_path%3Dpostroom" in postroom("db-url", "--room", settings=settings).stdout


def test_commands_create_no_database(tmp_path: Path) -> None:
    """In a folder without a room, a command says so, ends with 1 and leaves no file behind."""
    for command in (("deliveries", "list"), ("keys", "list"), ("psql", "-c", "SELECT 1")):
        done = postroom(*command, settings={"POSTROOM_DATA_DIR": str(tmp_path / "data")})
        assert done.returncode == 1
        assert done.stderr == (
            "postroom: There is no room. Run `postroom up` to create one, or set POSTROOM_DATABASE_URL.\n"
        )
        assert list(tmp_path.iterdir()) == []


def test_a_reader_that_goes_away_is_no_failure_of_ours(settings: dict[str, str]) -> None:
    """`postroom … | head -0` ends without a trace."""
    process = subprocess.Popen(
        [sys.executable, "-m", "postroom.cli", "templates", "list", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(**settings),
        text=True,
    )
    assert process.stdout is not None
    process.stdout.close()
    _, said = process.communicate()
    assert "Traceback" not in said


async def test_deliveries_of_a_campaign_are_listed(room: Room, settings: dict[str, str]) -> None:
    """`--campaign` takes an id of ours, or the name that custom data give."""
    await room.pool.execute(
        "INSERT INTO deliveries (lane, next_attempt_at, ladder, source, recipient_email, campaign_id, custom_data)"
        " VALUES ('bulk', now(), 'generic', 'test', 'ada@example.org', 7, NULL),"
        " ('bulk', now(), 'generic', 'test', 'ada@example.org', NULL, '{\"campaign\": \"spring\"}')"
    )
    for asked, found in (("7", [7]), ("8", []), ("spring", [None])):
        page = answer(postroom("deliveries", "list", "--campaign", asked, "--json", settings=settings))
        assert [item["campaign_id"] for item in page["items"]] == found


def test_a_refusal_is_json_where_the_answer_would_be(settings: dict[str, str]) -> None:
    """With --json a program reads the code on standard error; nothing is on standard output."""
    done = postroom("deliveries", "show", "42", "--json", settings=settings)
    assert (done.returncode, done.stdout) == (1, "")
    refusal = json.loads(done.stderr)
    assert (refusal["code"], refusal["errors"]) == ("delivery_not_found", [])
