"""The deliveries of the room, for the admin: read only, without subjects and content, which may hold a code."""

from django.db import models

from postroom.delivery.model import DeliveryState, Lane
from postroom.dropins.django.options import room_name


class DeliveryRow(models.Model):  # type: ignore[misc] # Django has no types of its own
    """A row of the table `deliveries`."""

    id = models.BigIntegerField(primary_key=True)
    state = models.TextField(choices=[(each.value, each.value) for each in DeliveryState])
    lane = models.TextField(choices=[(each.value, each.value) for each in Lane])
    recipient_email = models.TextField("recipient")
    template_id = models.TextField("template", null=True)  # noqa: DJ001 - the table has NULL here and below
    source = models.TextField()
    attempt_count = models.SmallIntegerField("attempts")
    reason = models.TextField(null=True)  # noqa: DJ001 - NULL in the room
    detail = models.TextField(null=True)  # noqa: DJ001 - NULL in the room
    created_at = models.DateTimeField("accepted")
    next_attempt_at = models.DateTimeField("next attempt", null=True)
    finished_at = models.DateTimeField("finished", null=True)

    class Meta:
        managed = False
        db_table = f'"{room_name()}"."deliveries"'
        default_permissions = ("view",)
        ordering = ("-id",)
        verbose_name = "delivery"
        verbose_name_plural = "deliveries"

    def __str__(self) -> str:
        return f"{self.id} to {self.recipient_email}"
