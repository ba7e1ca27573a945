"""Suppressions: search, the history of an address, add, lift, import and export."""

from urllib.parse import quote

import msgspec

from postroom.dashboard.listing import Filter, FormField, ListColumn, PageAction, columns, options_of
from postroom.dashboard.page import PageRequest
from postroom.errors import BadInput
from postroom.feedback import service
from postroom.feedback.lists import ListReader, write_lines
from postroom.feedback.model import NewSuppression, Suppression, SuppressionChange, SuppressionReason
from postroom.feedback.service import SuppressionFilter
from postroom.runtime.endpoint import Answer, redirect

READ, WRITE = "suppressions:read", "suppressions:write"
LARGEST_IMPORT = 1024 * 1024
"""Bytes of a pasted list; larger files are imported by the command line or the API."""

EXPORTED = 100_000


def address_page(email: str) -> str:
    return f"/suppressions/address?email={quote(email, safe='')}"


_SUPPRESSION = columns(
    Suppression, "email", "reason", "scope", "origin", "until", "bounce_count", "detail", "created_at",
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


async def list_page(request: PageRequest) -> Answer:
    chosen = {name: request.asked(name) for name in ("email", "reason", "origin")}
    found = await service.list_suppressions(
        request.pool,
        SuppressionFilter(email=chosen["email"], reason=_reason(chosen["reason"]), origin=chosen["origin"]),
        cursor=request.asked("cursor"),
    )
    return request.listing(
        "Suppressions",
        _SUPPRESSION,
        found,
        lead="Addresses that get no mail, or no bulk mail.",
        empty="No address is suppressed.",
        filters=[
            Filter("email", "Address", chosen["email"], placeholder="ada@example.org"),
            Filter("reason", "Reason", chosen["reason"], options_of(SuppressionReason)),
            Filter("origin", "Origin", chosen["origin"], placeholder="import"),
        ],
        actions=[
            PageAction(label="Export", path="/suppressions/export", scope=READ, is_link=True),
            PageAction(label="Import", path="/suppressions/import", scope=WRITE, is_link=True),
            PageAction(label="Add", path="/suppressions/new", scope=WRITE, is_link=True, is_main=True),
        ],
    )


def _reason(written: str | None) -> SuppressionReason | None:
    try:
        return SuppressionReason(written) if written else None
    except ValueError:
        raise BadInput.of("reason", f"must be one of {', '.join(SuppressionReason)}") from None


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
        actions=[
            PageAction(
                label="Lift",
                path="/suppressions/lift",
                scope=WRITE,
                question="The address gets mail again. A person or their provider had asked for the opposite: the "
                "audit log and the history name you.",
                fields={"email": email},
            )
        ],
    )


async def new_page(request: PageRequest) -> Answer:
    return _form(request)


def _form(request: PageRequest, problem: str | None = None) -> Answer:
    return request.form_page(
        "Suppress an address",
        _NEW,
        to="/suppressions/new",
        button="Suppress it",
        lead="Waiting mail to the address is not sent either.",
        back="/suppressions",
        problem=problem,
    )


async def add_page(request: PageRequest) -> Answer:
    given = {each.name: request.form.get(each.name, "").strip() for each in _NEW}
    try:
        wanted = msgspec.convert({name: value for name, value in given.items() if value}, NewSuppression)
        made = await service.suppress(request.pool, wanted, actor=request.actor)
    except (BadInput, msgspec.ValidationError) as error:
        return _form(request, str(error))
    return request.done(address_page(made.email), f"{made.email} is suppressed.")


async def lift_page(request: PageRequest) -> Answer:
    email = request.form.get("email", "")
    await service.lift(request.pool, email, actor=request.actor, note="dashboard")
    return request.done(address_page(email), f"{email} gets mail again.")


async def ask_import_page(request: PageRequest) -> Answer:
    return request.form_page(
        "Import suppressions",
        (FormField("list", "Addresses", "area", is_required=True),),
        to="/suppressions/import",
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
