"""One function per statement of `queries.sql`, under the same name. Rows become models here and nowhere else."""

from dataclasses import dataclass

from postroom.db.queries import column, load, model
from postroom.feedback.attribution import SentDelivery
from postroom.feedback.model import ReceivedReport, Suppression, SuppressionChange

QUERIES = load("postroom.feedback")


@dataclass(frozen=True, slots=True)
class Unreported:
    """The complaints of one notice."""

    complaints: int
    campaigns: int
    delivery_ids: tuple[int, ...]


delete_old_bounces = QUERIES["delete_old_bounces"].exec
delete_old_tokens = QUERIES["delete_old_tokens"].exec
delete_old_unread = QUERIES["delete_old_unread"].exec


find_erased = QUERIES["find_erased"].dict_as("address", column("pseudonym", str))
find_sent = QUERIES["find_sent"].dict_as(
    "id", lambda row: SentDelivery(row["id"], row["created_at"], tuple(row["recipients"]))
)
find_suppressions = QUERIES["find_suppressions"].many_as(model(Suppression))
forget_soft_bounces = QUERIES["forget_soft_bounces"].exec
keep_unread = QUERIES["keep_unread"].exec
lift = QUERIES["lift"].many_as(model(Suppression))
list_bounces = QUERIES["list_bounces"].search_as(model(ReceivedReport))
list_changes = QUERIES["list_changes"].many_as(model(SuppressionChange))
list_export = QUERIES["list_export"].many_as(model(Suppression))
list_suppressions = QUERIES["list_suppressions"].search_as(model(Suppression))
mark_complaints_reported = QUERIES["mark_complaints_reported"].one_as(
    lambda row: Unreported(row["complaints"], row["campaigns"], tuple(row["delivery_ids"] or ()))
)
merge_suppressions = QUERIES["merge_suppressions"].one_as(column("written", int))
record_acceptances = QUERIES["record_acceptances"].one_as(column("removed", int))
record_feedback = QUERIES["record_feedback"].one_as(column("recorded", int))
"""Store reports; returns the number of new ones."""
say_who = QUERIES["say_who"].exec
use_token = QUERIES["use_token"].has
