"""The texts and buttons of unsubscribe and preference pages: English, and German for visitors who prefer it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from postroom.tracking.model import UnsubscribeReason

Text = tuple[str, str]
"""A title and a sentence; `{address}` is replaced by the recipient's address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTexts:
    """The texts of the pages in one language."""

    ask: Text
    done: Text
    thanks: Text
    subscribed: Text
    unsubscribed: Text
    closed: Text
    unknown: Text
    trouble: Text
    unsubscribe: str
    resubscribe: str
    preferences: str
    why: str
    reasons: Mapping[UnsubscribeReason, str]


WORDS: Mapping[str, PageTexts] = {
    "en": PageTexts(
        ask=(
            "Unsubscribe",
            "{address} will get no more mailings from us. Mail about your own account and your orders still arrives.",
        ),
        done=(
            "You are unsubscribed",
            "{address} gets no more mailings from us. Mail about your own account and your orders still arrives.",
        ),
        thanks=("Thank you", "Your answer was stored. {address} gets no more mailings from us."),
        subscribed=("Your mail preferences", "{address} gets our mailings."),
        unsubscribed=("Your mail preferences", "{address} gets no mailings from us."),
        closed=("Your mail preferences", "{address} gets no mail from us, and only we can change that. Please ask us."),
        unknown=("This link does not work", "Open it from the mail again; the URL may be incomplete."),
        trouble=(
            "Please try again",
            "The database is not available right now, and your change may not have been saved.",
        ),
        unsubscribe="Unsubscribe",
        resubscribe="Subscribe again",
        preferences="Your mail preferences",
        why="Why are you unsubscribing? An answer is optional.",
        reasons={
            UnsubscribeReason.TOO_OFTEN: "Too many mailings",
            UnsubscribeReason.NOT_RELEVANT: "They are not relevant to me",
            UnsubscribeReason.NEVER_SUBSCRIBED: "I never subscribed",
            UnsubscribeReason.OTHER: "Another reason",
        },
    ),
    "de": PageTexts(
        ask=(
            "Abmelden",
            "{address} erhält dann keine Rundschreiben mehr. Post zu Ihrem Konto und Ihren Bestellungen kommt weiter.",
        ),
        done=(
            "Sie sind abgemeldet",
            "{address} erhält keine Rundschreiben mehr. Post zu Ihrem Konto und Ihren Bestellungen kommt weiter.",
        ),
        thanks=("Danke", "Ihre Antwort ist gespeichert. {address} erhält keine Rundschreiben mehr."),
        subscribed=("Ihre Einstellungen", "{address} erhält unsere Rundschreiben."),
        unsubscribed=("Ihre Einstellungen", "{address} erhält keine Rundschreiben von uns."),
        closed=(
            "Ihre Einstellungen",
            "{address} erhält keine Post von uns. Das können nur wir ändern: fragen Sie uns.",
        ),
        unknown=(
            "Dieser Link funktioniert nicht",
            "Öffnen Sie ihn noch einmal aus der E-Mail: vielleicht fehlt ein Stück.",
        ),
        trouble=(
            "Bitte noch einmal",
            "Unsere Daten sind gerade nicht erreichbar; vielleicht wurde nichts geändert. Das dauert nicht lange.",
        ),
        unsubscribe="Abmelden",
        resubscribe="Wieder anmelden",
        preferences="Ihre Einstellungen",
        why="Warum melden Sie sich ab? Die Antwort ist freiwillig.",
        reasons={
            UnsubscribeReason.TOO_OFTEN: "Zu viele Rundschreiben",
            UnsubscribeReason.NOT_RELEVANT: "Sie betreffen mich nicht",
            UnsubscribeReason.NEVER_SUBSCRIBED: "Ich habe mich nie angemeldet",
            UnsubscribeReason.OTHER: "Ein anderer Grund",
        },
    ),
}


def choose_language(accept_language: str) -> str:
    """The supported language that the visitor prefers; English by default."""
    best, chosen = 0.0, "en"
    for entry in accept_language.lower().split(","):
        tag, _, parameter = entry.partition(";")
        language = tag.strip().partition("-")[0]
        weight = _weight(parameter)
        if language in WORDS and weight > best:
            best, chosen = weight, language
    return chosen


def _weight(parameter: str) -> float:
    name, _, value = parameter.strip().partition("=")
    try:
        return float(value) if name == "q" else 1.0
    except ValueError:
        return 0.0


def button(name: str, value: str, label: str) -> str:
    """A form with one button that posts to the page's own URL."""
    shown = f'<button type="submit" name="{name}" value="{value}">{escape(label)}</button>'
    return f'<form method="post">\n{shown}\n</form>\n'


def question(text: str, answers: Sequence[tuple[str, str, str]]) -> str:
    """A sentence, and one button (name, value, label) per answer."""
    buttons = "".join(button(name, value, label) for name, value, label in answers)
    return f'<section class="why">\n<p>{escape(text)}</p>\n{buttons}</section>\n'


def link(target: str, label: str) -> str:
    return f'<p><a href="{escape(target)}">{escape(label)}</a></p>\n'
