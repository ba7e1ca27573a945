"""The Django app: a migration that makes the room, checks, and a read-only page of the admin."""

from django.apps import AppConfig


class PostroomConfig(AppConfig):  # type: ignore[misc] # Django has no types of its own
    name = "postroom.dropins.django"
    label = "postroom"
    verbose_name = "Postroom"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from postroom.dropins.django import checks

        checks.register()
