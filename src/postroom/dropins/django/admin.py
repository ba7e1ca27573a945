"""The admin's page of deliveries: read only; everything else is in the dashboard of Postroom."""

from functools import cached_property
from typing import Any

from django.contrib import admin
from django.core.paginator import Paginator
from django.utils.html import format_html

from postroom.dropins.django.models import DeliveryRow
from postroom.dropins.django.options import database_alias, read_options

MOST_COUNTED = 10_000  # a count of millions of rows takes seconds


class BoundedPaginator(Paginator):  # type: ignore[misc] # Django has no types of its own
    """Counts at most so many rows; later ones are found by their recipient."""

    @cached_property
    def count(self) -> int:
        return int(self.object_list[:MOST_COUNTED].count())


class DeliveryAdmin(admin.ModelAdmin):  # type: ignore[misc] # as above
    list_display = ("id", "recipient_email", "state", "lane", "template_id", "created_at", "finished_at", "dashboard")
    list_filter = ("state", "lane")
    search_fields = ("recipient_email__exact",)
    search_help_text = "The whole address of a recipient"
    show_full_result_count = False
    paginator = BoundedPaginator

    @admin.display(description="")  # type: ignore[untyped-decorator]  # Django has no types
    def dashboard(self, delivery: DeliveryRow) -> str:
        """A link to the delivery in Postroom's dashboard, if POSTROOM['DASHBOARD'] says where that is."""
        options = read_options()
        base = options.get("DASHBOARD")
        return format_html('<a href="{}/deliveries/{}">dashboard</a>', base.rstrip("/"), delivery.id) if base else ""

    def get_fields(self, _request: Any, _delivery: Any = None) -> list[str]:
        return [*(field.name for field in DeliveryRow._meta.fields), "dashboard"]  # noqa: SLF001 - Django's way

    get_readonly_fields = get_fields

    def get_queryset(self, request: Any) -> Any:
        return super().get_queryset(request).using(database_alias())

    def has_add_permission(self, _request: Any) -> bool:
        return False

    def has_change_permission(self, _request: Any, _delivery: Any = None) -> bool:
        return False

    def has_delete_permission(self, _request: Any, _delivery: Any = None) -> bool:
        return False


if database_alias() is not None:
    admin.site.register(DeliveryRow, DeliveryAdmin)
