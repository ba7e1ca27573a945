"""Accounts and tokens over HTTP.

Three scopes, so that the key of a public sign-up form cannot read accounts: `accounts:write` covers sign-up and tokens
and never reveals whether an address has an account; `accounts:read` lists and reads; `accounts:operate` suspends.
"""

from typing import Annotated, Literal

import msgspec

from postroom.accounts import landing, service
from postroom.accounts.model import Account, AccountFilter, AccountStatus, Action, Consumed
from postroom.errors import BadInput
from postroom.runtime.endpoint import Answer, Call, Endpoint
from postroom.runtime.page import Page, PageQuery
from postroom.runtime.record import Shape

READ = "accounts:read"
WRITE = "accounts:write"
OPERATE = "accounts:operate"

Email = Annotated[str, msgspec.Meta(min_length=3, max_length=254, pattern=r"^[^\x00]*$")]
Login = Annotated[str, msgspec.Meta(min_length=1, max_length=254, pattern=r"^[^\x00-\x1f\x7f]*$")]
Locale = Annotated[str, msgspec.Meta(max_length=35, description="Language of the mail, such as fr or pt-BR.")]
# min_length and max_length too: `$` also matches before a final line break.
Code = Annotated[str, msgspec.Meta(min_length=5, max_length=5, pattern="^[0-9]{5}$")]
Signed = Annotated[str, msgspec.Meta(max_length=200, description="The secret from the mail's link.")]
ActionName = Literal["activation", "password_recovery"]


class AccountQuery(PageQuery, frozen=True, kw_only=True):
    """Filters and page of a list of accounts."""

    status: AccountStatus | None = None
    email: Email | None = None


class SignUpBody(Shape, frozen=True, kw_only=True):
    """The request of a sign-up."""

    email: Email
    login: Login
    locale: Locale | None = None


class EmailBody(Shape, frozen=True, kw_only=True):
    """The address to send a token to."""

    email: Email


class ConsumeBody(Shape, frozen=True, kw_only=True):
    """A token: by the secret from its link, or by address, code and action."""

    secret: Signed | None = None
    email: Email | None = None
    code: Code | None = None
    action: ActionName | None = None


class SignedUp(msgspec.Struct, frozen=True, kw_only=True):
    """A sign-up that waits for its activation. For a taken address the response is the same, with an unused id."""

    id: int
    email: str
    login: str
    status: Literal["provisioned"] = "provisioned"


class Requested(msgspec.Struct, frozen=True):
    """The request was accepted; a mail is sent only if the address has an account."""

    status: Literal["accepted"] = "accepted"


async def sign_up(call: Call) -> Answer:
    body: SignUpBody = call.body
    made = await service.sign_up(call.room.pool, body.email, body.login, locale=body.locale)
    return Answer(SignedUp(id=made.id, email=service.check_email(body.email), login=body.login), 201)


async def list_accounts(call: Call) -> Answer:
    query: AccountQuery = call.query
    chosen = AccountFilter(status=query.status, email=query.email)
    return Answer(Page(*await service.list_accounts(call.room.pool, chosen, cursor=query.cursor, limit=query.limit)))


async def get_account(call: Call) -> Answer:
    return Answer(await service.get_account(call.room.pool, call.path["account_id"]))


async def suspend_account(call: Call) -> Answer:
    return Answer(await service.suspend(call.room.pool, call.path["account_id"], actor=call.actor))


async def unsuspend_account(call: Call) -> Answer:
    return Answer(await service.unsuspend(call.room.pool, call.path["account_id"], actor=call.actor))


async def reissue_activation(call: Call) -> Answer:
    account = await service.reissue_activation(call.room.pool, call.path["account_id"], actor=call.actor)
    return Answer(account, 202)


async def request_activation(call: Call) -> Answer:
    await service.request_token(call.room.pool, call.body.email, action=Action.ACTIVATION)
    return Answer(Requested(), 202)


async def request_recovery(call: Call) -> Answer:
    await service.request_token(call.room.pool, call.body.email, action=Action.PASSWORD_RECOVERY)
    return Answer(Requested(), 202)


async def consume_token(call: Call) -> Answer:
    body: ConsumeBody = call.body
    pool = call.room.pool
    match body:
        case ConsumeBody(secret=str(signed), email=None, code=None):
            action = Action(body.action) if body.action else None
            used = await service.consume_secret(pool, signed, key=call.room.settings.secret_key, action=action)
        case ConsumeBody(secret=None, email=str(email), code=str(code), action=str(action_name)):
            used = await service.consume_code(pool, email, code=code, action=Action(action_name))
        case _:
            raise BadInput.of("secret", "give either secret, or email, code and action")
    return Answer(used)


ENDPOINTS = [
    Endpoint(
        method="POST",
        path="/v1/accounts",
        handler=sign_up,
        summary="Sign up and queue the activation mail. The response is the same for a registered address.",
        scope=WRITE,
        tag="accounts",
        body=SignUpBody,
        answers={201: SignedUp},
        problems=(409,),
    ),
    Endpoint(
        method="GET",
        path="/v1/accounts",
        handler=list_accounts,
        summary="List accounts, newest first.",
        scope=READ,
        tag="accounts",
        query=AccountQuery,
        answers={200: Page[Account]},
    ),
    Endpoint(
        method="GET",
        path="/v1/accounts/{account_id:int}",
        handler=get_account,
        summary="Read an account.",
        scope=READ,
        tag="accounts",
        answers={200: Account},
    ),
    Endpoint(
        method="POST",
        path="/v1/accounts/{account_id:int}/suspend",
        handler=suspend_account,
        summary="Suspend an account.",
        scope=OPERATE,
        tag="accounts",
        answers={200: Account},
    ),
    Endpoint(
        method="POST",
        path="/v1/accounts/{account_id:int}/unsuspend",
        handler=unsuspend_account,
        summary="Unsuspend an account: active if it was ever activated, otherwise provisioned.",
        scope=OPERATE,
        tag="accounts",
        answers={200: Account},
    ),
    Endpoint(
        method="POST",
        path="/v1/accounts/{account_id:int}/activation",
        handler=reissue_activation,
        summary="Send a new activation mail to a provisioned account.",
        scope=OPERATE,
        tag="accounts",
        answers={202: Account},
        problems=(409,),
    ),
    Endpoint(
        method="POST",
        path="/v1/activations",
        handler=request_activation,
        summary="Request a new activation mail. The response is the same whether or not the address has an account.",
        scope=WRITE,
        tag="accounts",
        body=EmailBody,
        answers={202: Requested},
    ),
    Endpoint(
        method="POST",
        path="/v1/password-recoveries",
        handler=request_recovery,
        summary="Request a recovery mail. The response is the same whether or not the address has an account.",
        scope=WRITE,
        tag="accounts",
        body=EmailBody,
        answers={202: Requested},
    ),
    Endpoint(
        method="POST",
        path="/v1/tokens/consume",
        handler=consume_token,
        summary="Consume a token, by the secret from its link or by address, code and action.",
        scope=WRITE,
        tag="accounts",
        body=ConsumeBody,
        answers={200: Consumed},
        problems=(404, 410, 429),
    ),
    *landing.ENDPOINTS,
]
