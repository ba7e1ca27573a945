"""Erasures: the log, and the erasure of a person, which the typed address confirms after a count."""

from dataclasses import replace

from postroom.archive.model import ArchiveOptions
from postroom.dashboard.listing import FormField, ListColumn, PageAction, columns
from postroom.dashboard.page import PageRequest, form, listing, page
from postroom.erasure import service
from postroom.erasure.model import Erasure
from postroom.errors import BadInput
from postroom.runtime.endpoint import Answer

MANAGE = "erasures:manage"


def _amounts(erasure: Erasure) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {amount}" for name, amount in erasure.counts.items())


_ERASURE = (
    *columns(Erasure, "id", "requested_at", "requested_by", id={"form": "code"}),
    ListColumn("state", "Status", "state", value=lambda each: "done" if each.is_done else "running"),
    *columns(Erasure, "finished_at"),
    ListColumn("counts", "Changed rows", value=_amounts),
    ListColumn("waits_for", "Waits for", "list", is_minor=True),
)

_PERSON = (
    FormField("email", "Address", "email", is_required=True),
    FormField("keep_accounts", "Keep the account and the scheduled messages of the person", "check"),
)

_COUNT = (
    ListColumn("table", "Table", value=lambda count: count[0].replace("_", " ")),
    ListColumn("rows", "Rows", "number", value=lambda count: count[1]),
)


async def new_page(request: PageRequest) -> Answer:
    return request.form_page(
        "Erase a person",
        _PERSON,
        to="/erasures/preview",
        button="Count the rows",
        lead="The next page shows how many rows have the address, and asks again. Nothing changes before that.",
        back="/erasures",
    )


async def preview_page(request: PageRequest) -> Answer:
    """The number of rows per table that would change, and the field for the typed address."""
    email, keeps = _given(request)
    try:
        counts = await service.preview_erasure(request.call.room, address=email, keep_accounts=keeps)
    except BadInput as error:
        return await new_page(replace(request, problem=error.message))
    return request.page("erasure.html", email=email, keeps=keeps, counts=sorted(counts.items()), columns=_COUNT)


async def erase_page(request: PageRequest) -> Answer:
    """Erase the person, if the address was typed once more."""
    email, keeps = _given(request)
    if request.form.get("typed", "").strip().lower() != email.lower():
        problem = "The typed address is not the one to erase. Nothing was changed."
        return await preview_page(replace(request, problem=problem))
    room = request.call.room
    done = await service.erase(
        room, ArchiveOptions.of(room.settings), address=email, actor=request.actor, keep_accounts=keeps
    )
    rest = "is done" if done.is_done else "goes on: the workers rewrite the files of the archive"
    return request.done("/erasures", f"Erasure {done.id} {rest}.")


def _given(request: PageRequest) -> tuple[str, bool]:
    return request.form.get("email", "").strip(), bool(request.form.get("keep_accounts"))


PAGES = (
    listing(
        "/erasures",
        "Erasures",
        _ERASURE,
        service.list_erasures,
        scope=MANAGE,
        lead="People whose data was erased on their request, without their addresses.",
        empty="No person was erased. Erase a person who asks for it, as by article 17 of the GDPR: all that this room "
        "has about the address is deleted, also from the archive. Counts and suppressions stay, without the address. "
        "The rows are counted first, and nothing changes before you type the address again.",
        actions=[PageAction("Erase a person", "/erasures/new", MANAGE, is_link=True, is_main=True)],
    ),
    page("/erasures/new", new_page, scope=MANAGE),
    form("/erasures/preview", preview_page, scope=MANAGE),
    form("/erasures/new", erase_page, scope=MANAGE),
)
