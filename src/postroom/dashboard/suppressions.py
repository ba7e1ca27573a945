"""Suppressions: search, the history of an address, add, lift, import and export."""

from typing import Any
from urllib.parse import quote

from postroom.dashboard.listing import Filter, FormField, ListColumn, PageAction, columns, filters, options_of
from postroom.dashboard.page import PageRequest, form, form_pages, listing, listing_page, page
from postroom.db.pool import Pool
from postroom.feedback import service
from postroom.feedback.lists import ListReader, write_lines
from postroom.feedback.model import NewSuppression, Suppression, SuppressionChange, SuppressionReason
from postroom.feedback.service import SuppressionFilter
from postroom.runtime.endpoint import Answer, redirect
from postroom.runtime.page import Found

READ, WRITE = "suppressions:read", "suppressions:write"
LARGEST_IMPORT = 1024 * 1024
"""Bytes of a pasted list; larger files are imported by the command line or the API."""

EXPORTED = 100_000  # rows; bounds memory, and the command line exports without a limit


def address_page(email: str) -> str:
    return f"/suppressions/address?email={quote(email, safe='')}"


_SUPPRESSION = columns(
    Suppression, "email", "reason", "scope", "origin", "bounce_count", "until", "detail", "created_at",
    bounce_count={"label": "Bounces", "value": lambda each: each.bounce_count or None}, until={"is_minor": True},
    email={"link": lambda each: address_page(each.email)}, scope={"form": "words"}, detail={"form": "clip"},
    reason={"form": "words"},
)  # fmt: skip

_CHANGE = columns(
    SuppressionChange, "at", "change", "reason", "scope", "until", "origin", "actor", "note",
    scope={"form": "words"}, reason={"form": "words"}, change={"form": "words"},
)  # fmt: skip

_NEW = (
    FormField("email", "Address", "email", is_required=True),
    FormField("reason", "Reason", options=options_of(SuppressionReason), value=SuppressionReason.MANUAL.value),
    FormField("scope", "Mail that is blocked", options=("", "all", "bulk"), hint="Empty: as the reason demands"),
    FormField("detail", "Note"),
)


_FILTERS = filters(
    SuppressionFilter,
    Filter("email", "Address", placeholder="ada@example.org"),
    Filter("reason", "Reason"),
    Filter("origin", "Origin", placeholder="import"),
)
_LIFT = PageAction(
    "Lift", "/suppressions/lift", WRITE,
    question="The address gets mail again. A person or their provider had asked for the opposite: the audit log and the"
    " history name you.",
)  # fmt: skip


async def _find(pool: Pool, *, cursor: str | None, **chosen: Any) -> Found[Suppression]:
    return await service.list_suppressions(pool, SuppressionFilter(**chosen), cursor=cursor)


async def show_page(request: PageRequest) -> Answer:
    """One address: whether it gets mail, and every change, also after it was lifted."""
    email = request.asked("email")
    if email is None:
        return redirect("/suppressions")
    return request.page(
        "address.html",
        email=email,
        found=await service.find_suppressions(request.pool, email),
        history=await service.list_history(request.pool, email),
        columns=tuple(column for column in _SUPPRESSION if column.name != "email"),
        changes=_CHANGE,
        actions=[_LIFT.at(fields={"email": email})],
    )


async def new_page(request: PageRequest) -> Answer:
    return request.form_page(
        "Suppress an address",
        _NEW,
        button="Suppress it",
        lead="Waiting mail to the address is not sent either.",
        back="/suppressions",
    )


async def add_page(request: PageRequest) -> Answer:
    wanted = request.read(NewSuppression, {each.name: request.form.get(each.name, "").strip() for each in _NEW})
    made = await service.suppress(request.pool, wanted, actor=request.actor)
    return request.done(address_page(made.email), f"{made.email} is suppressed.")


async def lift_page(request: PageRequest) -> Answer:
    email = request.form.get("email", "")
    await service.lift(request.pool, email, actor=request.actor, note="dashboard")
    return request.done(address_page(email), f"{email} gets mail again.")


async def ask_import_page(request: PageRequest) -> Answer:
    return request.form_page(
        "Import suppressions",
        (FormField("list", "Addresses", "area", is_required=True),),
        button="Import them",
        lead="One address per line, or CSV with a header: email, reason, scope, origin, detail. At most 1 MB; "
        "larger files: postroom suppressions import.",
        back="/suppressions",
    )


async def import_page(request: PageRequest) -> Answer:
    """Write the valid lines; the page lists the rejected ones with the reason."""
    reader = ListReader()
    batch = reader.read(request.form.get("list", "").splitlines())
    written = await service.import_batch(request.pool, batch, actor=request.actor) if batch else 0
    await service.record_import(request.pool, actor=request.actor, imported=written, refused=reader.result.refused)
    problems = [{"line": line, "problem": problem} for line, problem in reader.result.problems[:200]]
    return request.page(
        "imported.html",
        written=written,
        refused=reader.result.refused,
        problems=problems,
        columns=(ListColumn("line", "Line", "number"), ListColumn("problem", "Problem")),
    )


async def export_page(request: PageRequest) -> Answer:
    """The list as CSV, which an import reads back; larger lists are exported by the command line or the API."""
    found, _more = await service.export_page(request.pool, cursor=None, limit=EXPORTED)
    headers = {"content-disposition": 'attachment; filename="suppressions.csv"'}
    return Answer(write_lines(found, header=True).encode(), 200, "text/csv; charset=utf-8", headers)


PAGES = (
    listing(
        "/suppressions",
        "Suppressions",
        _SUPPRESSION,
        _find,
        scope=READ,
        from_replica=True,
        lead="Addresses that get no mail, or no bulk mail.",
        empty="No address is suppressed.",
        filters=_FILTERS,
        actions=[
            PageAction("Export", "/suppressions/export", READ, is_link=True),
            PageAction("Import", "/suppressions/import", WRITE, is_link=True),
            PageAction("Add", "/suppressions/new", WRITE, is_link=True, is_main=True),
        ],
    ),
    page("/suppressions/address", show_page, scope=READ),
    listing_page("/suppressions/export", export_page, scope=READ),
    *form_pages("/suppressions/new", new_page, add_page, scope=WRITE),
    form("/suppressions/lift", lift_page, scope=WRITE),
    *form_pages("/suppressions/import", ask_import_page, import_page, scope=WRITE, most_body=LARGEST_IMPORT),
)
