"""The doctor's checks of limits: keys that expire, and the limits of the room."""

from datetime import timedelta

from postroom.db.pool import Session
from postroom.db.queries import load
from postroom.runtime.finding import Finding, ok, rough, warn

EXPIRY_WARNS = timedelta(days=14)  # time to create a key and to change the programs that use the old one
_QUERIES = load("postroom.cli", "doctor.sql")


async def examine_keys(session: Session) -> Finding:
    """Keys that expire soon, or expired within the same time and were not revoked."""
    rows = await _QUERIES["list_expiring_keys"].many(session, patience=EXPIRY_WARNS)
    if not rows:
        return ok("keys", f"none expires within {rough(EXPIRY_WARNS)}")
    shown = "; ".join(
        f"{row['name']} {'expires in' if row['expires_in'] > timedelta() else 'expired before'}"
        f" {rough(abs(row['expires_in']))}"
        for row in rows
    )
    advice = f"create other keys, or extend with `postroom keys change {rows[0]['id']} --expires +90d`"
    return warn("keys", shown, advice)


async def examine_room(session: Session) -> Finding:
    """The limits of the room: whether it is closed, and whether mail waits for its quota."""
    row = await _QUERIES["describe_room_limits"].maybe(session)
    if row is None:
        return ok("room limits", "none")
    if row["is_closed"]:
        return warn("room limits", f"closed since {row['expires_at']:%Y-%m-%d %H:%M} UTC", _set("--expires"))
    quota = row["daily_quota"]
    if quota is not None and row["sent"] >= quota and row["is_waiting"]:
        found = f"{row['sent']} of {quota} mails of today are sent; the others wait until 00:00 UTC"
        return warn("room limits", found, _set("--daily-quota"))
    if quota is not None and row["accepted"] >= quota:
        found = f"{row['accepted']} of {quota} mails of today are accepted; clients get 429 until 00:00 UTC"
        return warn("room limits", found, _set("--daily-quota"))
    sent = f"{row['sent']} mails sent today"
    return ok("room limits", sent if quota is None else f"{sent} of {quota}")


def _set(option: str) -> str:
    return f"change it with `postroom rooms limit NAME {option}`"
