"""The actions of a person on the pages of System and about oneself, and all ways in and out."""

import base64
import time

from tests.support.dashboard_actions import PERSON, Step, Walker

from postroom.http.totp import STEP_S, code_at

_ALICE = "EXISTS (SELECT FROM operators WHERE email = 'alice@example.org' AND {})"


async def _take_key(walker: Walker) -> None:
    walker.values["key"] = walker.office.key


async def _sign_out_by_force(walker: Walker) -> None:
    await walker.page.context.clear_cookies()


async def _take_code(walker: Walker) -> None:
    code = "SELECT variables->>'code' FROM delivery_payloads ORDER BY delivery_id DESC LIMIT 1"
    walker.values["code"] = await walker.office.pool.fetchval(code)


_SESSIONS_OF_ALL = """
    INSERT INTO dashboard_sessions (nonce, expires_at, owner_id, owner_kind, method, client, browser)
    SELECT gen_random_uuid(), now() + interval '1 hour', id, 'operator', 'code', '192.0.2.7', browser
    FROM operators, unnest(ARRAY['Firefox on Linux', 'Safari on iPhone']) AS browser
"""
_FACTOR_OF_OTHERS = """
    UPDATE operators SET second_factor_since = now(), totp_secret = 'x', totp_key_id = 'x'
    WHERE email <> 'ada@example.org' AND second_factor_since IS NULL
"""


async def open_sessions(walker: Walker) -> None:
    """Every role has the same page."""
    await walker.office.pool.execute(_SESSIONS_OF_ALL)


async def _equip_alice(walker: Walker) -> None:
    await walker.office.pool.execute(_FACTOR_OF_OTHERS + " AND email = 'alice@example.org'")


async def _equip_others(walker: Walker) -> None:
    """Every role has the same page."""
    await walker.office.pool.execute(_FACTOR_OF_OTHERS)


async def set_up(walker: Walker) -> None:
    """Type the secret of the page into an app, and its code into the page."""
    walker.values["secret"] = await walker.page.locator("main pre").text_content() or ""
    await _show_code(walker)
    await walker.page.get_by_label("Code").fill(walker.values["code"])
    await walker.page.get_by_role("button", name="Set up").click()


async def _show_code(walker: Walker) -> None:
    """The code that the app shows; the one after it if that was used."""
    last = await walker.office.pool.fetchval("SELECT max(totp_step) FROM operators")
    step = max(int(time.time()) // STEP_S, last + 1)
    walker.values["code"] = code_at(base64.b32decode(walker.values.get("secret", "")), step)


SYSTEM = (
    Step(
        route="/keys/new",
        at="/keys",
        way=("New key",),
        fields={"name": "shop", "scope.deliveries:write": "on", "rate_per_minute": "600"},
        shows="Copy it now",
        holds="EXISTS (SELECT FROM api_keys WHERE name = 'shop' AND rate_per_minute = 600)",
        audit="key.create",
    ),
    Step(
        route="/keys/{key_id:int}",
        at="/keys",
        way=("shop",),
        fields={"daily_quota": "5000", "from_domains": "shop.example"},
        shows="The limits of shop are saved.",
        holds="EXISTS (SELECT FROM api_keys WHERE daily_quota = 5000 AND from_domains = '{shop.example}')",
        audit="key.change",
    ),
    Step(
        route="/keys/{key_id:int}/revoke",
        at="/keys",
        row="shop",
        shows="The key shop is revoked.",
        holds="EXISTS (SELECT FROM api_keys WHERE name = 'shop' AND revoked_at IS NOT NULL)",
        audit="key.revoke",
    ),
    Step(
        route="/operators/new",
        at="/operators",
        way=("Add an operator",),
        fields={"email": "alice@example.org", "role": "support"},
        shows="alice@example.org is an operator with the role support.",
        holds=_ALICE.format("role = 'support'"),
        audit="operator.add",
    ),
    Step(
        route="/operators/{operator_id:int}/role",
        at="/operators",
        way=("Change role",),
        fields={"role": "read-only"},
        shows="alice@example.org has the role read-only.",
        holds=_ALICE.format("role = 'read-only'"),
        audit="operator.role",
    ),
    Step(
        before=_equip_alice,
        route="/operators/{operator_id:int}/remove-second-factor",
        at="/operators",
        row="alice@example.org",
        shows="alice@example.org signs in without a second factor.",
        holds=_ALICE.format("second_factor_since IS NULL"),
        audit="operator.second_factor",
    ),
    Step(
        route="/operators/{operator_id:int}/end-sessions",
        at="/operators",
        row="alice@example.org",
        shows="All sessions of alice@example.org have ended.",
        holds=_ALICE.format("sessions_since > created_at + interval '0.5 seconds'"),
        audit="operator.end_sessions",
    ),
    Step(
        route="/operators/{operator_id:int}/disable",
        at="/operators",
        row="alice@example.org",
        shows="alice@example.org is disabled, and all sessions have ended.",
        holds=_ALICE.format("disabled_at IS NOT NULL"),
        audit="operator.disable",
    ),
    Step(
        route="/operators/{operator_id:int}/enable",
        at="/operators",
        row="alice@example.org",
        shows="alice@example.org can sign in again.",
        holds=_ALICE.format("disabled_at IS NULL"),
        audit="operator.enable",
    ),
    Step(
        route="/operators/{operator_id:int}/remove",
        at="/operators",
        row="alice@example.org",
        shows="alice@example.org is removed, and all sessions have ended.",
        holds="NOT EXISTS (SELECT FROM operators WHERE email = 'alice@example.org')",
        audit="operator.remove",
    ),
    Step(
        route="/preferences",
        at="/preferences",
        fields={"theme": "dark", "rows": "dense", "zone": "Asia/Tokyo"},
        shows="The preferences are saved in this browser.",
        reason="They are a cookie of the browser; the room stores nothing.",
        audit=None,
    ),
    Step(
        before=open_sessions,
        route="/sessions/{nonce}/end",
        at="/sessions",
        row="Firefox on Linux",
        shows="The session is ended.",
        holds="(SELECT count(*) FROM ended_sessions) = 1",
        audit="dashboard.end_sessions",
    ),
    Step(
        route="/sessions/end-others",
        at="/sessions",
        shows="1 other sessions are ended.",
        holds="(SELECT count(*) FROM ended_sessions) = 2",
        audit="dashboard.end_sessions",
    ),
    Step(
        route="/second-factor",
        at="/second-factor",
        act=set_up,
        shows="Copy it now",
        holds=f"EXISTS (SELECT FROM operators WHERE email = '{PERSON}' AND second_factor_since IS NOT NULL)",
        audit="operator.second_factor",
    ),
    Step(
        before=_equip_others,
        route="/second-factor/recovery-codes",
        at="/second-factor",
        shows="Copy it now",
        holds="EXISTS (SELECT FROM audit_log WHERE action = 'operator.recovery_codes')",
        audit="operator.recovery_codes",
    ),
    Step(
        route="/sign-out",
        at="/",
        shows="Sign in with the key",
        holds="(SELECT count(*) FROM ended_sessions) = 3",
        audit="dashboard.sign_out",
    ),
    Step(
        before=_take_key,
        route="/sign-in",
        at="/sign-in?next=/health",
        fields={"key": "{key}"},
        shows="Health",
        reason="A session is a signed cookie.",
        audit="dashboard.sign_in",
        actor="key:1:operator",
    ),
    Step(
        before=_sign_out_by_force,
        route="/sign-in/code",
        at="/sign-in",
        fields={"email": PERSON},
        shows="Enter the code",
        holds="EXISTS (SELECT FROM deliveries WHERE template_id = 'operator-sign-in')",
        reason="No session exists: any stranger can ask for a code. The sign-in with it is audited.",
        audit=None,
    ),
    Step(
        before=_take_code,
        route="/sign-in/redeem",
        at="/sign-in/code?next=/audit",
        fields={"code": "{code}"},
        shows="Second factor",
        holds=f"EXISTS (SELECT FROM operators WHERE email = '{PERSON}' AND last_sign_in_at IS NOT NULL)",
        reason="The sign-in is complete with the second factor.",
        audit=None,
    ),
    Step(
        before=_show_code,
        route="/sign-in/second-factor",
        at="/sign-in/second-factor?next=/audit",
        fields={"code": "{code}"},
        shows="Audit log",
        holds="EXISTS (SELECT FROM dashboard_sessions WHERE method = 'code' AND browser ~ 'Chrome')",
        audit="dashboard.sign_in",
    ),
    Step(
        route="/second-factor/remove",
        at="/second-factor",
        shows="The second factor is removed.",
        holds=f"EXISTS (SELECT FROM operators WHERE email = '{PERSON}' AND second_factor_since IS NULL)",
        audit="operator.second_factor",
    ),
)
