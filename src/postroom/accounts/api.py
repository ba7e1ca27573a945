"""Accounts and tokens over HTTP.

Three scopes, so that the key of a public sign-up form cannot read accounts: `accounts:write` covers sign-up and tokens
and never reveals whether an address has an account; `accounts:read` lists and reads; `accounts:operate` suspends.
"""

from functools import partial
from typing import Annotated, Literal

import msgspec

from postroom.accounts import landing, service
from postroom.accounts.model import Account, AccountStatus, Action, Consumed
from postroom.errors import BadInput
from postroom.runtime.endpoint import Answer, Call, Endpoint
from postroom.runtime.page import Page, PageQuery
from postroom.runtime.record import Shape
from postroom.runtime.service_endpoint import serve

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


_endpoint = partial(Endpoint, tag="accounts")
_serve = partial(serve, tag="accounts")
_request = partial(_serve, scope=WRITE, body=EmailBody, answers={202: Requested}, shape=lambda _requested: Requested())

ENDPOINTS = [
    _endpoint(
        "POST", "/v1/accounts", sign_up,
        "Sign up and queue the activation mail. The response is the same for a registered address.", scope=WRITE,
        body=SignUpBody, answers={201: SignedUp}, problems=(409,),
    ),
    _serve(
        "GET", "/v1/accounts", service.list_accounts, "List accounts, newest first.", scope=READ, query=AccountQuery,
        from_replica=True, answers={200: Page[Account]},
    ),
    _serve(
        "GET", "/v1/accounts/{account_id:int}", service.get_account, "Read an account.", scope=READ,
        answers={200: Account},
    ),
    _serve(
        "POST", "/v1/accounts/{account_id:int}/suspend", service.suspend, "Suspend an account.", scope=OPERATE,
        answers={200: Account}, name="suspend_account",
    ),
    _serve(
        "POST", "/v1/accounts/{account_id:int}/unsuspend", service.unsuspend,
        "Unsuspend an account: active if it was ever activated, otherwise provisioned.", scope=OPERATE,
        answers={200: Account}, name="unsuspend_account",
    ),
    _serve(
        "POST", "/v1/accounts/{account_id:int}/activation", service.reissue_activation,
        "Send a new activation mail to a provisioned account.", scope=OPERATE, answers={202: Account}, problems=(409,),
    ),
    _request(
        "POST", "/v1/activations", service.request_token,
        "Request a new activation mail. The response is the same whether or not the address has an account.",
        name="request_activation", given={"action": lambda _call: Action.ACTIVATION},
    ),
    _request(
        "POST", "/v1/password-recoveries", service.request_token,
        "Request a recovery mail. The response is the same whether or not the address has an account.",
        name="request_recovery", given={"action": lambda _call: Action.PASSWORD_RECOVERY},
    ),
    _endpoint(
        "POST", "/v1/tokens/consume", consume_token,
        "Consume a token, by the secret from its link or by address, code and action.", scope=WRITE, body=ConsumeBody,
        answers={200: Consumed}, problems=(404, 410, 429),
    ),
    *landing.ENDPOINTS,
]  # fmt: skip
