"""The actions of a person on the pages of System, and all ways in and out."""

from tests.support.dashboard_actions import PERSON, Step, Walker

_ALICE = "EXISTS (SELECT FROM operators WHERE email = 'alice@example.org' AND {})"


async def _take_key(walker: Walker) -> None:
    walker.values["key"] = walker.office.key


async def _sign_out_by_force(walker: Walker) -> None:
    await walker.page.context.clear_cookies()


async def _take_code(walker: Walker) -> None:
    code = "SELECT variables->>'code' FROM delivery_payloads ORDER BY delivery_id DESC LIMIT 1"
    walker.values["code"] = await walker.office.pool.fetchval(code)


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
        route="/sign-out",
        at="/",
        shows="Sign in with the key",
        holds="EXISTS (SELECT FROM ended_sessions)",
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
        shows="Audit log",
        holds=f"EXISTS (SELECT FROM operators WHERE email = '{PERSON}' AND last_sign_in_at IS NOT NULL)",
        audit="dashboard.sign_in",
    ),
)
