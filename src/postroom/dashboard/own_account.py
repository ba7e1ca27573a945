"""Pages about the viewer: open sessions, and the second factor."""

import base64
from collections.abc import Sequence
from http import HTTPStatus

from postroom.dashboard.entry import notify_of
from postroom.dashboard.listing import ListColumn, PageAction, columns
from postroom.dashboard.page import READ, PageRequest, form, form_pages, page
from postroom.dashboard.preferences import tabs
from postroom.dashboard.service import end_listed_session
from postroom.errors import BadInput, ConfigurationError
from postroom.events.audit import record_audit
from postroom.http import second_factor, totp
from postroom.http.model import OpenSession, Operator
from postroom.http.sessions import list_sessions
from postroom.runtime.endpoint import Answer, ProtocolError
from postroom.runtime.secrets import Sealed

_SESSIONS, _FACTOR = "/sessions", "/second-factor"
_NOT_AN_OPERATOR = "Only operators have a second factor; this session belongs to an API key."

_END = PageAction("End", "/sessions/{nonce}/end", READ)
_END_OTHERS = PageAction(
    "End all other sessions", "/sessions/end-others", READ,
    question="Every other browser that is signed in has to sign in again.",
)  # fmt: skip
_RENEW = PageAction(
    "New recovery codes", "/second-factor/recovery-codes", READ, question="The present recovery codes no longer work.",
)  # fmt: skip
_REMOVE = PageAction(
    "Remove", "/second-factor/remove", READ,
    question="You sign in without a second factor. To use another phone, remove this one and set up the other.",
)  # fmt: skip


# ── sessions ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def sessions_page(request: PageRequest) -> Answer:
    """The open sessions of this operator or API key, each with the way to end it."""
    found = await list_sessions(request.pool, request.principal)
    others = [each for each in found if each.nonce != request.session.nonce]
    return request.listing(
        "Your sessions",
        _session_columns(request),
        (found, None),
        lead="Browsers that are signed in as you. An unknown one is a reason to end it, and to ask an administrator.",
        tabs=tabs(request),
        actions=[_END_OTHERS] if others else [],
        row_actions=lambda each: [_END.at(each.nonce)] if each in others else [],
    )


def _session_columns(request: PageRequest) -> Sequence[ListColumn]:
    return (
        *columns(OpenSession, "browser"),
        ListColumn("this", "Session", value=lambda each: "this one" if each.nonce == request.session.nonce else ""),
        ListColumn("client", "From", "code"),
        ListColumn("method", "By"),
        ListColumn("began_at", "Signed in", "when"),
        ListColumn("seen_at", "Last use", "when", is_minor=True),
    )


async def end_page(request: PageRequest) -> Answer:
    """End one of the viewer's own sessions, in every process."""
    await _end(request, [each for each in await _others(request) if each.nonce == request.id("nonce")])
    return request.done(_SESSIONS, "The session is ended.")


async def end_others_page(request: PageRequest) -> Answer:
    ended = await _end(request, await _others(request))
    return request.done(_SESSIONS, f"{ended} other sessions are ended.")


async def _others(request: PageRequest) -> list[OpenSession]:
    found = await list_sessions(request.pool, request.principal)
    return [each for each in found if each.nonce != request.session.nonce]


async def _end(request: PageRequest, ending: Sequence[OpenSession]) -> int:
    ended = [each for each in ending if await end_listed_session(request.pool, each)]
    if ended:
        after = {"sessions": len(ended)}
        await record_audit(request.pool, request.actor, "dashboard.end_sessions", request.actor, after=after)
    return len(ended)


# ── the second factor ──────────────────────────────────────────────────────────────────────────────────────────────


async def factor_page(request: PageRequest) -> Answer:
    """Set up an authenticator app, or show since when there is one."""
    if not isinstance(request.principal, Operator):
        return request.page("second_factor.html", tabs=tabs(request), operator=None, actions=())
    operator = _operator(request)
    if operator.second_factor_since is not None:
        left = await second_factor.count_recovery_codes(request.pool, operator)
        return request.page("second_factor.html", tabs=tabs(request), left=left, operator=operator, actions=_CHANGES)
    secret = _pending(request) or totp.new_secret()
    return request.page(
        "second_factor.html",
        tabs=tabs(request),
        operator=operator,
        uri=totp.otpauth_uri(secret, account=operator.email, issuer="Postroom"),
        written=totp.written_secret(secret),
        pending=_sealed(request, secret),
        actions=(),
    )


_CHANGES = (_RENEW, _REMOVE)


async def set_up_page(request: PageRequest) -> Answer:
    """Check the first code of the app; the recovery codes are shown this once."""
    request.need_fresh(_FACTOR)
    operator, secret = _operator(request), _pending(request)
    if secret is None:
        raise BadInput.of("code", "belongs to a page that is too old; scan or type the new secret")
    codes = await second_factor.enroll(
        request.pool,
        request.dashboard.box,
        operator,
        secret,
        request.form.get("code", ""),
        notify=notify_of(request.call),
    )
    return _recovery_page(request, codes)


async def renew_page(request: PageRequest) -> Answer:
    request.need_fresh(_FACTOR)
    codes = await second_factor.renew_recovery_codes(request.pool, _operator(request), notify=notify_of(request.call))
    return _recovery_page(request, codes)


async def remove_page(request: PageRequest) -> Answer:
    request.need_fresh(_FACTOR)
    operator = _operator(request)
    await second_factor.remove_second_factor(
        request.pool, operator.id, actor=request.actor, notify=notify_of(request.call)
    )
    return request.done(_FACTOR, "The second factor is removed.")


def _recovery_page(request: PageRequest, codes: Sequence[str]) -> Answer:
    about = "Each works once in place of a code of the app. Keep them where you keep passwords, not on the phone."
    return request.secret_page("Recovery codes", "\n".join(codes), about=about, back=_FACTOR)


def _operator(request: PageRequest) -> Operator:
    if not isinstance(request.principal, Operator):
        raise ProtocolError(HTTPStatus.FORBIDDEN, _NOT_AN_OPERATOR)
    return request.principal


def _purpose(request: PageRequest) -> str:
    return f"new second factor of session {request.session.nonce}"


def _sealed(request: PageRequest, secret: bytes) -> str:
    """The secret of a page that was not confirmed yet: nothing is stored until the app shows the right code."""
    sealed = request.dashboard.box.seal(secret, purpose=_purpose(request))
    return f"{sealed.key_id}:{base64.b64encode(sealed.data).decode()}"


def _pending(request: PageRequest) -> bytes | None:
    key_id, _, data = request.form.get("pending", "").partition(":")
    try:
        return request.dashboard.box.open(
            Sealed(key_id, base64.b64decode(data, validate=True)), purpose=_purpose(request)
        )
    except (ConfigurationError, ValueError):
        return None


PAGES = (
    page(_SESSIONS, sessions_page),
    form("/sessions/end-others", end_others_page),
    form("/sessions/{nonce}/end", end_page),
    *form_pages(_FACTOR, factor_page, set_up_page),
    form("/second-factor/recovery-codes", renew_page),
    form("/second-factor/remove", remove_page),
)
