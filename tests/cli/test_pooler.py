"""Behind a real PgBouncer: what works, and what the doctor says about a wrong set-up."""

import pytest
from tests.support.command_line import PATIENT, answer, outcome, postroom
from tests.support.pgbouncer import NEEDS_PGBOUNCER, pgbouncer

from postroom.cli import pooler_checks
from postroom.cli.pooler_checks import Pooling, find_pooling
from postroom.db.pool import Pool
from postroom.runtime.finding import Finding, Severity
from postroom.settings import Settings

pytestmark = NEEDS_PGBOUNCER
SETTINGS_OF_POSTROOM = (
    "search_path,application_name,timezone,jit,enable_seqscan,idle_in_transaction_session_timeout,"
    "tcp_keepalives_idle,tcp_keepalives_interval,tcp_keepalives_count,tcp_user_timeout"
)


@pytest.fixture
async def prepared(pool: Pool) -> None:
    """The database gives every session the room's search path and UTC, as ALTER ROLE would."""
    name = await pool.fetchval("SELECT current_database()")
    await pool.execute(f'ALTER DATABASE "{name}" SET search_path = postroom')
    await pool.execute(f"ALTER DATABASE \"{name}\" SET timezone = 'UTC'")


async def _examine(url: str, direct_url: str | None) -> Finding:
    settings = Settings(database_url=url, database_direct_url=direct_url)
    return await pooler_checks.examine(settings, direct_url or url)


@pytest.mark.usefixtures("prepared")
def test_commands_and_doctor_work_behind_pgbouncer(database_url: str) -> None:
    """With both URLs and the settings of the role, mail is accepted, delivered and reported as healthy."""
    with pgbouncer(database_url) as pooled:
        settings = {"POSTROOM_DATABASE_URL": pooled, "POSTROOM_DATABASE_DIRECT_URL": database_url}
        mail = ("send", "--to", "a@b.example", "--subject", "x", "--text", "y")
        assert postroom(*mail, settings=settings, command=PATIENT).returncode == 0
        assert postroom("work", "--until-empty", settings=settings, command=PATIENT).returncode == 0
        report = answer(postroom("doctor", "--json", settings=settings, command=PATIENT))
    found = {check["check"]: check for check in report["checks"]}
    assert (found["pooler"]["verdict"], found["pooler"]["found"]) == (
        "ok",
        "transaction mode; LISTEN goes around it",
    )


def test_a_missing_alter_role_is_one_sentence(database_url: str) -> None:
    """The room's tables are not on the search path of the pooled sessions: no traceback, and the way out is named."""
    # The room is not named like the role: PostgreSQL looks there by default.
    with pgbouncer(database_url) as pooled:
        settings = {"POSTROOM_DATABASE_URL": pooled, "POSTROOM_DATABASE_DIRECT_URL": database_url}
        settings["POSTROOM_SCHEMA"] = "annex"
        assert postroom("migrate", settings=settings, command=PATIENT).returncode == 0
        done = postroom("deliveries", "list", settings=settings, command=PATIENT)
        doctor = postroom("doctor", settings=settings, command=PATIENT)
    assert done.returncode == 1
    assert done.stderr.startswith("postroom: The search path of role 'postroom' is postroom, not 'annex'.")
    assert 'ALTER ROLE "postroom" SET search_path = "annex"' in done.stderr
    assert (doctor.returncode, doctor.stderr) == (1, "")
    assert "fail  pooler" in doctor.stdout


@pytest.mark.parametrize("zone", ["Etc/UTC", "UTC", "Zulu"])
async def test_every_name_of_utc_is_utc(pool: Pool, database_url: str, prepared: None, zone: str) -> None:
    """Debian's PostgreSQL has the time zone Etc/UTC unless it is set otherwise."""
    await pool.execute(f"ALTER DATABASE \"{database_url.rpartition('/')[2]}\" SET timezone = '{zone}'")
    with pgbouncer(database_url) as pooled:
        settings = {"POSTROOM_DATABASE_URL": pooled, "POSTROOM_DATABASE_DIRECT_URL": database_url}
        done, _, errors = await outcome("deliveries", "list", settings=settings, command=PATIENT)
    assert (done, errors) == (0, "")


async def test_another_time_zone_is_refused_with_the_whole_remedy(
    pool: Pool, database_url: str, prepared: None
) -> None:
    """ALTER ROLE alone is not enough: the pooler's open connections keep the old zone."""
    await pool.execute(f"ALTER DATABASE \"{database_url.rpartition('/')[2]}\" SET timezone = 'Europe/Berlin'")
    with pgbouncer(database_url) as pooled:
        settings = {"POSTROOM_DATABASE_URL": pooled, "POSTROOM_DATABASE_DIRECT_URL": database_url}
        done, _, errors = await outcome("deliveries", "list", settings=settings, command=PATIENT)
    assert done == 1
    assert "have the time zone Europe/Berlin, not UTC" in errors
    assert "ALTER ROLE \"postroom\" SET timezone = 'UTC'. Connections that the pooler has open" in errors
    assert "RECONNECT" in errors


def test_a_pooler_as_the_only_url_is_refused_with_advice(database_url: str) -> None:
    """PgBouncer refuses the settings of our sessions; the error says which variable is missing."""
    with pgbouncer(database_url) as pooled:
        done = postroom("deliveries", "list", settings={"POSTROOM_DATABASE_URL": pooled}, command=PATIENT)
    assert (done.returncode, "set POSTROOM_DATABASE_DIRECT_URL" in done.stderr) == (1, True)
    assert len(done.stderr.splitlines()) == 1


async def test_the_doctor_finds_listen_through_a_transaction_pooler(database_url: str, prepared: None) -> None:
    """Where PgBouncer swallows our settings everything seems to work, but notifications are lost."""
    with pgbouncer(database_url, ignore=SETTINGS_OF_POSTROOM) as pooled:
        only = await _examine(pooled, None)
        both = await _examine(pooled, pooled)
    assert (only.verdict, "POSTROOM_DATABASE_URL leads to a pooler" in only.found) == (Severity.FAIL, True)
    assert (both.verdict, "POSTROOM_DATABASE_DIRECT_URL leads" in both.found) == (Severity.FAIL, True)


async def test_pooling_is_recognised(database_url: str) -> None:
    """No pooler, one in session mode, one in transaction mode."""
    assert await find_pooling(database_url, "postroom") is Pooling.NONE
    with pgbouncer(database_url, mode="session") as pooled:
        assert await find_pooling(pooled, "postroom") is Pooling.SESSION
    with pgbouncer(database_url, mode="transaction") as pooled:
        assert await find_pooling(pooled, "postroom") is Pooling.TRANSACTION
