"""Destinations: limits per domain, and pauses that a domain asked for."""

from postroom.dashboard.listing import FormField, ListColumn, PageAction, columns
from postroom.dashboard.page import PageRequest, form, form_pages, listing
from postroom.dashboard.senders import MANAGE, READ
from postroom.errors import BadInput
from postroom.runtime.endpoint import Answer
from postroom.senders import service
from postroom.senders.model import DestinationLimits

_DESTINATION = (
    ListColumn("domain", "Domain"),
    ListColumn("state", "Status", "state", value=lambda limits: "paused" if limits.paused_until else "active"),
    *columns(
        DestinationLimits,
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


_REMOVE = PageAction(
    "Remove", "/destinations/delete", MANAGE,
    question="Mail to {domain} is no longer limited, and a pause ends.",
)  # fmt: skip


def _actions(limits: DestinationLimits) -> list[PageAction]:
    return [_REMOVE.at(domain=limits.domain, fields={"domain": limits.domain})]


async def new_page(request: PageRequest) -> Answer:
    return request.form_page(
        "Limit a destination",
        _LIMITS,
        button="Set the limit",
        lead="The limit holds for all mail to the domain.",
        back="/destinations",
    )


async def put_page(request: PageRequest) -> Answer:
    connections = _number(request, "max_connections")
    limits = await service.put_domain(
        request.pool,
        request.form.get("domain", "").strip(),
        max_connections=None if connections is None else int(connections),
        messages_per_second=_number(request, "messages_per_second"),
        actor=request.actor,
    )
    return request.done("/destinations", f"The limit of {limits.domain} is set.")


def _number(request: PageRequest, name: str) -> float | None:
    """A positive number of the form; None for an empty field."""
    written = request.form.get(name, "").strip()
    with BadInput.naming(name, "must be a number"):
        number = float(written) if written else None
    if number is not None and not 0 < number <= 100_000:  # noqa: PLR2004 - the service has narrower limits
        raise BadInput.of(name, "must be above 0 and at most 100,000")
    return number


async def delete_page(request: PageRequest) -> Answer:
    domain = request.form.get("domain", "")
    await service.delete_domain(request.pool, domain, actor=request.actor)
    return request.done("/destinations", f"{domain} has no limit any more.")


PAGES = (
    listing(
        "/destinations",
        "Destinations",
        _DESTINATION,
        service.list_domains,
        scope=READ,
        lead="Domains with limits, and those that asked for a pause. A domain without a row has no limit.",
        empty="No domain has a limit or a pause. Set a limit if a mailbox provider asks for slower mail: waiting mail "
        "to the domain is sent later, and none is lost. A domain whose servers ask for a pause is listed by itself.",
        actions=[PageAction("Set a limit", "/destinations/new", MANAGE, is_link=True, is_main=True)],
        row_actions=_actions,
    ),
    *form_pages("/destinations/new", new_page, put_page, scope=MANAGE),
    form("/destinations/delete", delete_page, scope=MANAGE),
)
