"""Destinations: limits per domain, and pauses that a domain asked for."""

from postroom.dashboard.listing import FormField, ListColumn, PageAction, columns
from postroom.dashboard.page import PageRequest
from postroom.dashboard.senders import MANAGE
from postroom.errors import BadInput
from postroom.runtime.endpoint import Answer
from postroom.senders import service
from postroom.senders.model import DestinationLimits

_DESTINATION = (
    ListColumn("state", "State", "state", value=lambda limits: "paused" if limits.paused_until else "active"),
    *columns(
        DestinationLimits,
        "domain",
        "max_connections",
        "messages_per_second",
        "paused_until",
        "backoff_level",
        "updated_at",
    ),
)

_LIMITS = (
    FormField("domain", "Domain", is_required=True),
    FormField("max_connections", "Connections of each process", "number", hint="Empty: no limit"),
    FormField("messages_per_second", "Mails per second", "number", hint="Empty: no limit"),
)


async def list_page(request: PageRequest) -> Answer:
    found = await service.list_domains(request.pool, cursor=request.asked("cursor"))
    return request.listing(
        "Destinations",
        _DESTINATION,
        found,
        lead="Domains with limits, and those that asked for a pause. A domain without a row has no limit.",
        empty="No domain has a limit or a pause.",
        actions=[PageAction(label="Set a limit", path="/destinations/new", scope=MANAGE, is_link=True, is_main=True)],
        row_actions=_actions,
    )


def _actions(limits: DestinationLimits) -> list[PageAction]:
    question = f"Mail to {limits.domain} is no longer limited, and a pause ends."
    return [
        PageAction(
            label="Remove",
            path="/destinations/delete",
            scope=MANAGE,
            question=question,
            fields={"domain": limits.domain},
        )
    ]


async def new_page(request: PageRequest) -> Answer:
    return _form(request)


def _form(request: PageRequest, problem: str | None = None) -> Answer:
    return request.form_page(
        "Limit a destination",
        _LIMITS,
        to="/destinations/new",
        button="Set the limit",
        lead="The limit holds for all mail to the domain.",
        back="/destinations",
        problem=problem,
    )


async def put_page(request: PageRequest) -> Answer:
    try:
        connections = _number(request, "max_connections")
        limits = await service.put_domain(
            request.pool,
            request.form.get("domain", "").strip(),
            max_connections=None if connections is None else int(connections),
            messages_per_second=_number(request, "messages_per_second"),
            actor=request.actor,
        )
    except BadInput as error:
        return _form(request, error.message)
    return request.done("/destinations", f"The limit of {limits.domain} is set.")


def _number(request: PageRequest, name: str) -> float | None:
    """A positive number of the form; None for an empty field."""
    written = request.form.get(name, "").strip()
    try:
        number = float(written) if written else None
    except ValueError:
        raise BadInput.of(name, "must be a number") from None
    if number is not None and not 0 < number <= 100_000:  # noqa: PLR2004 - the service has narrower limits
        raise BadInput.of(name, "must be above 0 and at most 100,000")
    return number


async def delete_page(request: PageRequest) -> Answer:
    domain = request.form.get("domain", "")
    await service.delete_domain(request.pool, domain, actor=request.actor)
    return request.done("/destinations", f"{domain} has no limit any more.")
