"""Accounts and their tokens: search, state and history. A secret or a code is never shown."""

from datetime import UTC, datetime

from postroom.accounts import service
from postroom.accounts.model import Account, AccountFilter, AccountStatus, KeptToken
from postroom.dashboard.listing import Filter, FormField, ListColumn, PageAction, columns, options_of
from postroom.dashboard.page import PageRequest, form, listing_page, page
from postroom.errors import BadInput, PostroomError
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
    ListColumn("state", "State", "state", value=lambda token: token.state(datetime.now(UTC))),
    *columns(KeptToken, "created_at", "expires_at", "consumed_at", "wrong_guesses"),
)


async def list_page(request: PageRequest) -> Answer:
    asked = {name: request.asked(name) for name in ("email", "login", "status")}
    return request.listing(
        "Accounts",
        _ACCOUNT,
        await _found(request, asked["email"], asked["login"], asked["status"]),
        lead="People who signed up to your application, and what became of it.",
        empty="No account exists yet.",
        filters=[
            Filter("email", "Address", asked["email"], placeholder="ada@example.org"),
            Filter("login", "Login", asked["login"], placeholder="ada"),
            Filter("status", "Status", asked["status"], options_of(AccountStatus)),
        ],
        actions=[PageAction(label="New account", path="/accounts/new", scope=OPERATE, is_link=True, is_main=True)],
    )


async def _found(request: PageRequest, email: str | None, login: str | None, status: str | None) -> Found[Account]:
    if login is not None:
        account = await service.find_by_login(request.pool, login)
        return ([] if account is None else [account]), None
    chosen = AccountFilter(email=email, status=_status(status))
    return await service.list_accounts(request.pool, chosen, cursor=request.asked("cursor"))


def _status(written: str | None) -> AccountStatus | None:
    try:
        return AccountStatus(written) if written else None
    except ValueError:
        raise BadInput.of("status", f"must be one of {', '.join(AccountStatus)}") from None


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
    path = account_page(account.id)
    if account.status is AccountStatus.SUSPENDED:
        question = "It becomes active if it ever was, otherwise it waits for its activation."
        return [PageAction(label="Unsuspend", path=f"{path}/unsuspend", scope=OPERATE, question=question)]
    question = "The application treats it as suspended until a person unsuspends it."
    suspend = PageAction(label="Suspend", path=f"{path}/suspend", scope=OPERATE, question=question)
    if account.status is not AccountStatus.PROVISIONED:
        return [suspend]
    question = f"A new activation mail goes to {account.email}."
    return [PageAction(label="Mail it again", path=f"{path}/reissue", scope=OPERATE, question=question), suspend]


async def suspend_page(request: PageRequest) -> Answer:
    account = await service.suspend(request.pool, request.id("account_id"), actor=request.actor)
    return request.done(account_page(account.id), "The account is suspended.")


async def unsuspend_page(request: PageRequest) -> Answer:
    account = await service.unsuspend(request.pool, request.id("account_id"), actor=request.actor)
    return request.done(account_page(account.id), f"The account is {account.status}.")


async def reissue_page(request: PageRequest) -> Answer:
    account = await service.reissue_activation(request.pool, request.id("account_id"), actor=request.actor)
    return request.done(account_page(account.id), "A new activation mail is queued.")


async def new_page(request: PageRequest) -> Answer:
    return _form(request)


def _form(request: PageRequest, problem: str | None = None) -> Answer:
    return request.form_page(
        "New account",
        (
            FormField("email", "Address", "email", is_required=True),
            FormField("login", "Login", is_required=True),
            FormField("locale", "Language of its mail", hint="Such as fr or pt-BR. Empty: the default"),
        ),
        to="/accounts/new",
        button="Create the account",
        lead="It gets an activation mail.",
        back="/accounts",
        problem=problem,
    )


async def create_page(request: PageRequest) -> Answer:
    email, login, locale = (request.form.get(name, "").strip() for name in ("email", "login", "locale"))
    try:
        made = await service.create_account(request.pool, email, login, actor=request.actor, locale=locale or None)
    except PostroomError as error:
        return _form(request, str(error))
    return request.done(account_page(made.id), "The account is created, and its activation mail is queued.")


_ONE = "/accounts/{account_id:int}"
PAGES = (
    listing_page("/accounts", list_page, scope=READ),
    page("/accounts/new", new_page, scope=OPERATE),
    form("/accounts/new", create_page, scope=OPERATE),
    page(_ONE, show_page, scope=READ),
    form(f"{_ONE}/suspend", suspend_page, scope=OPERATE),
    form(f"{_ONE}/unsuspend", unsuspend_page, scope=OPERATE),
    form(f"{_ONE}/reissue", reissue_page, scope=OPERATE),
)
