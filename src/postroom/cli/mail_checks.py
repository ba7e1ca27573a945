"""The doctor's checks of mail on its way: the ways out, the queue, dead letters, sender accounts."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from postroom.db.pool import Session
from postroom.db.queries import load
from postroom.delivery.store import count_dead_letters
from postroom.delivery.ways_out.model import WayOut
from postroom.delivery.ways_out.store import list_ways_out, measure_oldest
from postroom.delivery.ways_out.watch import SILENT
from postroom.runtime.finding import Finding, fail, ok, rough, warn
from postroom.settings import Settings

FAILING_WARNS = timedelta(seconds=10)  # a relay that restarts is not an outage
LANE_LATE = timedelta(minutes=5)  # a worker that keeps up is late by seconds
STUCK_AFTER = timedelta(minutes=1)  # the feeder settles mail of campaigns within a second
STUCK_LOOKED_AT = 1000  # mail that nothing takes stays at the beginning of its order, so few rows find it
COUNTED = 10_000  # bounds the counts, so that doctor stays quick in a crisis

_LATE = {
    "worker": "start a worker with `postroom work` or `postroom up`",
    "turn": "start more workers",
    "reply": "the relay takes long to reply: look at `postroom deliveries list --status sending`",
    "quota": "see the row about senders",
    "sender": "see the row about senders",
}
"""The reasons for which due mail is late, and what to do; other mail waits on purpose, or has a row of its own."""

_QUERIES = load("postroom.cli", "doctor.sql")


async def examine_ways_out(session: Session) -> Finding:
    """Find ways out at which every attempt ends before a mail is offered."""
    now = datetime.now(UTC)
    ways_out = await list_ways_out(session, patience=SILENT)
    failing = [(each, now - each.failing_since) for each in ways_out if each.failing_since is not None]
    lasting = [(each, age) for each, age in failing if age >= FAILING_WARNS]
    if not lasting:
        return ok("attempts", "every relay and sender account answers" if ways_out else "no relay or account was used")
    shown = "; ".join(_describe_failure(each, age) for each, age in lasting[:3])
    more = f"; and {len(lasting) - 3} more" if len(lasting) > 3 else ""  # noqa: PLR2004 - as many as are shown
    judge = fail if any(each.is_relay for each, _age in lasting) else warn
    refused = any(each.logins_refused for each, _age in lasting)
    advice = "correct the user name or the password" if refused else "check the server, its port and the firewall"
    return judge("attempts", shown + more, f"{advice}; waiting mail leaves as soon as the server answers")


def _describe_failure(way_out: WayOut, age: timedelta) -> str:
    attempts = "the last attempt" if way_out.failures == 1 else f"all of the last {way_out.failures} attempts"
    return f"{way_out.name}: {attempts} ended at {way_out.stage}, for {rough(age)}: {way_out.detail}"


async def examine_queue(session: Session) -> Finding:
    """Find mail that is late, with the reason why it waits."""
    now = datetime.now(UTC)
    late: defaultdict[str, list[str]] = defaultdict(list)
    for mail in await measure_oldest(session):
        if mail.waits_for in _LATE and now - mail.since > LANE_LATE:
            late[mail.waits_for].append(f"{mail.lane} {rough(now - mail.since)} late, waits for {mail.waits_for}")
    if not late:
        return ok("queue", f"nothing due for more than {rough(LANE_LATE)}")
    shown = ", ".join(words for lanes in late.values() for words in lanes)
    advice = "; ".join(advice for reason, advice in _LATE.items() if reason in late)
    return warn("queue", shown, f"{advice}; see `postroom deliveries list --status waiting`")


async def examine_waiting(session: Session, *, bound: int = STUCK_LOOKED_AT) -> Finding:
    """Find waiting mail that nothing will take, among so many deliveries and campaigns at each end."""
    row = await _QUERIES["count_stuck"].one(session, bound=bound, patience=STUCK_AFTER)
    found, advice = [], []
    if row["missing"] or row["orphans"]:
        found.append(
            f"{row['missing']} waiting deliveries are not in the queue, {row['orphans']} rows of it do not wait"
        )
        advice.append("start a worker: it repairs the queue, a thousand deliveries every ten seconds")
    if row["stray_campaigns"]:
        found.append(f"mail of campaigns {_numbers(row['stray_campaigns'])} contradicts their status")
        advice.append("start a worker: it cancels, holds or releases that mail")
    if row["cut_campaigns"]:
        found.append(f"campaigns {_numbers(row['cut_campaigns'])} were completed before all their people were queued")
        advice.append("upload the people with state `waiting` into a new campaign")
    if not found:
        return ok("waiting mail", "all of it will be taken")
    return warn("waiting mail", "; ".join(found), "; ".join(advice))


def _numbers(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids))


async def examine_dead_letters(session: Session) -> Finding:
    """Count the mail that was given up and waits for a person."""
    counts = await count_dead_letters(session, count_limit=COUNTED)
    if not counts:
        return ok("dead letters", "none")
    total = sum(counts.values())
    shown = ", ".join(f"{count} {reason}" for reason, count in counts.items())
    many = " or more" if total == COUNTED else ""
    advice = "look at `postroom dead-letters list`, then redrive, settle or cancel them"
    return warn("dead letters", f"{total}{many} wait for a person: {shown}", advice)


async def examine_senders(session: Session, settings: Settings) -> Finding:
    """Find accounts that need a person, and lanes whose accounts can send nothing now."""
    row = await _QUERIES["count_senders"].one(session)
    if not row["accounts"]:
        if settings.transport == "senders":
            return fail("senders", "no accounts, so no mail can leave", "add one with `postroom senders add`")
        return ok("senders", "no accounts; the transport handles all mail")
    short = await _QUERIES["list_short_lanes"].many(session, bound=COUNTED) if settings.uses_senders else []
    waiting = ", ".join(f"{each['mails']} of lane {each['lane']}" for each in short if each["mails"])
    if waiting and any(each["reason"] == "quota" for each in short):
        found = f"no account has quota left; until 00:00 UTC wait {waiting}"
        return warn(
            "senders", found, "raise a limit with `postroom senders update ID --daily-limit`, or add an account"
        )
    if row["stopped"]:
        found = f"{row['stopped']}; {waiting} wait" if waiting else row["stopped"]
        return warn("senders", found, "fix the account, then run `postroom senders resume <id>`")
    if not settings.uses_senders:
        advice = "to send through them, set POSTROOM_TRANSPORT to senders, or to smtp with POSTROOM_SMTP_RELAY"
        return warn(
            "senders", f"{row['accounts']} accounts, not used by POSTROOM_TRANSPORT={settings.transport}", advice
        )
    return ok("senders", f"{row['sending']} of {row['accounts']} accounts send")
