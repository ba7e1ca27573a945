"""Make the room in the site's database. Undoing it leaves the room, which holds the mail."""

from django.db import migrations, models

from postroom.delivery.model import DeliveryState, Lane
from postroom.dropins.django.options import room_name
from postroom.dropins.django.room import make_room


class Migration(migrations.Migration):  # type: ignore[misc] # Django has no types of its own
    initial = True
    atomic = False  # the script of the room is a transaction of its own

    operations = (
        migrations.RunPython(make_room, migrations.RunPython.noop),
        migrations.CreateModel(
            name="DeliveryRow",
            fields=[
                ("id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("state", models.TextField(choices=[(each.value, each.value) for each in DeliveryState])),
                ("lane", models.TextField(choices=[(each.value, each.value) for each in Lane])),
                ("recipient_email", models.TextField(verbose_name="recipient")),
                ("template_id", models.TextField(null=True, verbose_name="template")),
                ("source", models.TextField()),
                ("attempt_count", models.SmallIntegerField(verbose_name="attempts")),
                ("reason", models.TextField(null=True)),
                ("detail", models.TextField(null=True)),
                ("created_at", models.DateTimeField(verbose_name="accepted")),
                ("next_attempt_at", models.DateTimeField(null=True, verbose_name="next attempt")),
                ("finished_at", models.DateTimeField(null=True, verbose_name="finished")),
            ],
            options={
                "managed": False,
                "db_table": f'"{room_name()}"."deliveries"',
                "default_permissions": ("view",),
                "ordering": ("-id",),
                "verbose_name": "delivery",
                "verbose_name_plural": "deliveries",
            },
        ),
    )
