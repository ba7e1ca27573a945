"""Accounts and their tokens: search, state and history. A secret or a code is never shown."""

from datetime import UTC, datetime

from postroom.accounts import service
from postroom.accounts.model import Account, AccountFilter, AccountStatus, KeptToken
from postroom.dashboard.listing import Filter, FormField, ListColumn, PageAction, columns, filters
from postroom.dashboard.page import PageRequest, actions, form_pages, listing, page
from postroom.db.pool import Pool
from postroom.runtime.endpoint import Answer
from postroom.runtime.page import Found

READ, OPERATE = "accounts:read", "accounts:operate"


def account_page(account_id: int) -> str:
    return f"/accounts/{account_id}"


_ACCOUNT = (
    ListColumn("email", "Address", link=lambda account: account_page(account.id)),
    *columns(Account, "status", "login", "created_at", "activated_at", activated_at={"is_minor": True}),
)

_FACTS = columns(
    Account, "login", "locale", "created_at", "activated_at", "suspended_at", "unsuspended_at", "status_changed_at"
)

_TOKEN = (
    ListColumn("action", "For", "words"),
    ListColumn("state", "Status", "state", value=lambda token: token.state(datetime.now(UTC))),
    *columns(KeptToken, "created_at", "expires_at", "consumed_at", "wrong_guesses"),
)


_ONE = "/accounts/{account_id:int}"
_SUSPEND = PageAction(
    "Suspend", f"{_ONE}/suspend", OPERATE, service.suspend, "The account is suspended.",
    question="The application treats it as suspended until a person unsuspends it.",
)  # fmt: skip
_UNSUSPEND = PageAction(
    "Unsuspend", f"{_ONE}/unsuspend", OPERATE, service.unsuspend, "The account is {0.status}.",
    question="It becomes active if it ever was, otherwise it waits for its activation.",
)  # fmt: skip
_REISSUE = PageAction(
    "Mail it again", f"{_ONE}/reissue", OPERATE, service.reissue_activation, "A new activation mail is queued.",
    question="A new activation mail goes to {email}.",
)  # fmt: skip


async def _find(
    pool: Pool,
    *,
    email: str | None,
    login: str | None,
    status: AccountStatus | None,
    cursor: str | None,
) -> Found[Account]:
    if login is not None:
        account = await service.find_by_login(pool, login)
        return ([] if account is None else [account]), None
    return await service.list_accounts(pool, AccountFilter(email=email, status=status), cursor=cursor)


async def show_page(request: PageRequest) -> Answer:
    account = await service.get_account(request.pool, request.id("account_id"))
    return request.page(
        "account.html",
        account=account,
        facts=_FACTS,
        actions=_actions(account),
        tokens=await service.list_tokens(request.pool, account.id),
        token_columns=_TOKEN,
    )


def _actions(account: Account) -> list[PageAction]:
    if account.status is AccountStatus.SUSPENDED:
        return [_UNSUSPEND.at(account.id)]
    suspend = _SUSPEND.at(account.id)
    if account.status is not AccountStatus.PROVISIONED:
        return [suspend]
    return [_REISSUE.at(account.id, email=account.email), suspend]


async def new_page(request: PageRequest) -> Answer:
    return request.form_page(
        "New account",
        (
            FormField("email", "Address", "email", is_required=True),
            FormField("login", "Login", is_required=True),
            FormField("locale", "Language of its mail", hint="Such as fr or pt-BR. Empty: the default"),
        ),
        button="Create the account",
        lead="It gets an activation mail.",
        back="/accounts",
    )


async def create_page(request: PageRequest) -> Answer:
    email, login, locale = (request.form.get(name, "").strip() for name in ("email", "login", "locale"))
    made = await service.create_account(request.pool, email, login, actor=request.actor, locale=locale or None)
    return request.done(account_page(made.id), "The account is created, and its activation mail is queued.")


PAGES = (
    listing(
        "/accounts",
        "Accounts",
        _ACCOUNT,
        _find,
        scope=READ,
        from_replica=True,
        lead="People who signed up to your application, and what became of it.",
        empty="No account exists yet.",
        filters=filters(
            _find,
            Filter("email", "Address", placeholder="ada@example.org"),
            Filter("login", "Login", placeholder="ada"),
            Filter("status", "Status"),
        ),
        actions=[PageAction("New account", "/accounts/new", OPERATE, is_link=True, is_main=True)],
    ),
    *form_pages("/accounts/new", new_page, create_page, scope=OPERATE),
    page(_ONE, show_page, scope=READ),
    *actions(_SUSPEND, _UNSUSPEND, _REISSUE),
)
