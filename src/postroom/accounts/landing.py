"""The pages that links in account mail open: one button each.

Opening a link changes nothing, because scanners, previews and prefetching browsers open links too; only the button
acts.
"""

from html import escape
from http import HTTPStatus
from typing import Annotated

import msgspec

from postroom.accounts import service
from postroom.accounts.errors import GuessedTooOften, TokenExpired, TokenNotFound, TokenUsed
from postroom.accounts.model import AccountStatus, Action
from postroom.accounts.signature import PATHS, verify
from postroom.runtime.endpoint import Answer, Call, Endpoint
from postroom.runtime.public_page import PAGE_HEADERS, public_page

MEDIA_TYPE = "text/html; charset=utf-8"


class LandingQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The signed secret. Other parameters, which mail programs add, are ignored."""

    token: Annotated[str, msgspec.Meta(max_length=200, description="The signed secret from the mail.")] = ""


class LandingTexts(msgspec.Struct, frozen=True):
    """The texts of a page in one language."""

    title: str
    text: str
    button: str
    done: tuple[str, str]  # title and text
    expired: tuple[str, str]
    used: tuple[str, str]
    unknown: tuple[str, str]
    suspended: tuple[str, str]


_ENGLISH = (
    ("This link has expired", "Ask for a new one where you signed up."),
    ("This link has been used", "There is nothing left to do here."),
    ("This link does not work", "Copy it from the mail again, or enter the code from the mail instead."),
    ("Your account is suspended", "Your link was right. Ask those who run the service what you can do."),
)
"""The texts that both pages share, in the order of the fields."""

_FRENCH = (
    ("Ce lien a expiré", "Demandez-en un nouveau là où vous vous êtes inscrit."),
    ("Ce lien a déjà servi", "Il ne reste rien à faire ici."),
    ("Ce lien ne fonctionne pas", "Copiez-le de nouveau depuis le message, ou saisissez le code du message."),
    ("Votre compte est suspendu", "Votre lien était bon. Demandez à ceux qui gèrent le service quoi faire."),
)

WORDS: dict[tuple[Action, str], LandingTexts] = {
    (Action.ACTIVATION, "en"): LandingTexts(
        "Activate your account",
        "Confirm that this address is yours.",
        "Activate my account",
        ("Your account is active", "You can close this page and sign in."),
        *_ENGLISH,
    ),
    (Action.ACTIVATION, "fr"): LandingTexts(
        "Activez votre compte",
        "Confirmez que cette adresse est bien la vôtre.",
        "Activer mon compte",
        ("Votre compte est actif", "Vous pouvez fermer cette page et vous connecter."),
        *_FRENCH,
    ),
    (Action.PASSWORD_RECOVERY, "en"): LandingTexts(
        "Recover your account",
        "Confirm that you asked for a new password.",
        "It was me",
        ("Thank you", "Go back to where you asked for a new password and choose one."),
        *_ENGLISH,
    ),
    (Action.PASSWORD_RECOVERY, "fr"): LandingTexts(
        "Récupérez votre compte",
        "Confirmez que vous avez demandé un nouveau mot de passe.",
        "C’était moi",
        ("Merci", "Retournez là où vous avez demandé un nouveau mot de passe et choisissez-le."),
        *_FRENCH,
    ),
}


async def show_activation(call: Call) -> Answer:
    return _show(call, Action.ACTIVATION)


async def show_recovery(call: Call) -> Answer:
    return _show(call, Action.PASSWORD_RECOVERY)


async def confirm_activation(call: Call) -> Answer:
    return await _confirm(call, Action.ACTIVATION)


async def confirm_recovery(call: Call) -> Answer:
    return await _confirm(call, Action.PASSWORD_RECOVERY)


def _show(call: Call, action: Action) -> Answer:
    """Show the button without a query: the signature alone proves that the link is ours."""
    lang = _language(call)
    words = WORDS[action, lang]
    signed: str = call.query.token
    key = call.room.settings.secret_key
    if key is None or verify(key, action, signed) is None:
        return _page(lang, *words.unknown, status=HTTPStatus.NOT_FOUND)
    # Relative, because a reverse proxy may add a path prefix.
    button = f'<button type="submit">{escape(words.button)}</button>'
    form = f'<form method="post" action="{escape(f"?token={signed}")}">\n{button}\n</form>\n'
    return _page(lang, words.title, words.text, form=form)


async def _confirm(call: Call, action: Action) -> Answer:
    lang = _language(call)
    words = WORDS[action, lang]
    try:
        used = await service.consume_secret(
            call.room.pool, call.query.token, key=call.room.settings.secret_key, action=action
        )
    except TokenUsed:
        return _page(lang, *words.used, status=HTTPStatus.GONE)
    except (TokenExpired, GuessedTooOften):
        return _page(lang, *words.expired, status=HTTPStatus.GONE)
    except TokenNotFound:
        return _page(lang, *words.unknown, status=HTTPStatus.NOT_FOUND)
    is_suspended = used.account.status is AccountStatus.SUSPENDED
    return _page(lang, *(words.suspended if is_suspended else words.done))


def _page(lang: str, title: str, text: str, *, form: str = "", status: HTTPStatus = HTTPStatus.OK) -> Answer:
    return Answer(public_page(lang, title, text, more=form), int(status), MEDIA_TYPE, PAGE_HEADERS)


def _language(call: Call) -> str:
    """`fr` if French comes first in Accept-Language, otherwise `en`."""
    preferred = call.headers.get("accept-language", "").lower().lstrip()
    return "fr" if preferred.startswith("fr") else "en"


ENDPOINTS = [
    Endpoint(
        method=method,
        path=path,
        handler=handler,
        summary=summary,
        scope=None,
        tag="accounts",
        query=LandingQuery,
        answers=dict.fromkeys(statuses),
        media_type=MEDIA_TYPE,
        is_page=True,
    )
    for method, path, handler, summary, statuses in (
        ("GET", PATHS[Action.ACTIVATION], show_activation, "The page behind an activation link.", (200, 404)),
        ("POST", PATHS[Action.ACTIVATION], confirm_activation, "Activate the account of a link.", (200, 404, 410)),
        ("GET", PATHS[Action.PASSWORD_RECOVERY], show_recovery, "The page behind a recovery link.", (200, 404)),
        ("POST", PATHS[Action.PASSWORD_RECOVERY], confirm_recovery, "Confirm a recovery link.", (200, 404, 410)),
    )
]
