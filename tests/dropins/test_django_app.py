"""The Django app in a site of its own: the room by a migration, in test databases too, checks, and the admin."""

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

pytest.importorskip("django", reason="Django is not installed: its app is NOT tested")
pytest.importorskip("psycopg", reason="psycopg is not installed: Django's app is NOT tested")

SETTINGS = """
import json, os
SECRET_KEY = "for-tests"
INSTALLED_APPS = [
    "django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions",
    "django.contrib.messages", "postroom.dropins.django",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [{
    "BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True,
    "OPTIONS": {"context_processors": [
        "django.template.context_processors.request",
        "django.contrib.auth.context_processors.auth",
        "django.contrib.messages.context_processors.messages",
    ]},
}]
ROOT_URLCONF = "site_urls"
ALLOWED_HOSTS = ["*"]
USE_TZ = True
DATABASES = json.loads(os.environ["SITE_DATABASES"])
EMAIL_BACKEND = "postroom.dropins.django.EmailBackend"
POSTROOM = {"DASHBOARD": "https://mail.example.org"}
exec(os.environ.get("SITE_CHANGES", ""))
"""
URLS = """
from django.contrib import admin
from django.urls import path

urlpatterns = [path("admin/", admin.site.urls)]
"""
MANAGE = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "site_settings"
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""
TESTS = """
from django.contrib.auth.models import User
from django.db import connection
from django.test import TestCase
import postroom.sync
from postroom.dropins.django.models import DeliveryRow


class MailTest(TestCase):
    def test_mail_of_a_test_is_in_its_database(self):
        postroom.sync.send(connection, to="ada@example.org", subject="Code 123456", text="Hello", lane="auth")
        self.assertEqual(DeliveryRow.objects.get().recipient_email, "ada@example.org")
        self.client.force_login(User.objects.create_superuser("root"))
        listed = self.client.get("/admin/postroom/deliveryrow/?q=ada@example.org&state=queued")
        delivery = DeliveryRow.objects.get()
        self.assertContains(listed, "ada@example.org")
        self.assertContains(listed, f'href="https://mail.example.org/deliveries/{delivery.pk}"')
        self.assertNotContains(listed, "123456")
        page = self.client.get(f"/admin/postroom/deliveryrow/{delivery.pk}/change/")
        self.assertContains(page, "ada@example.org")
        self.assertNotContains(page, 'name="_save"')
        self.assertEqual(self.client.get("/admin/postroom/deliveryrow/add/").status_code, 403)

    def test_another_test_has_none_of_it(self):
        self.assertFalse(DeliveryRow.objects.exists())
"""


@dataclass(frozen=True)
class Site:
    """A folder with `manage.py`, and a database without a room."""

    folder: Path
    url: str

    async def manage(self, *arguments: str, changes: str = "") -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(self._manage, *arguments, changes=changes)

    def _manage(self, *arguments: str, changes: str) -> subprocess.CompletedProcess[str]:
        parts = urlsplit(self.url)
        database: dict[str, Any] = {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": parts.path.lstrip("/"),
            "USER": parts.username,
            "PASSWORD": parts.password,
            "HOST": parts.hostname,
            "PORT": parts.port,
        }
        return subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=self.folder,
            env={**os.environ, "SITE_DATABASES": json.dumps({"default": database}), "SITE_CHANGES": changes},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.fixture
async def site(database_url: str, tmp_path: Path) -> Site:
    for name, text in (
        ("site_settings.py", SETTINGS),
        ("site_urls.py", URLS),
        ("manage.py", MANAGE),
        ("tests.py", TESTS),
    ):
        (tmp_path / name).write_text(text)
    connection = await asyncpg.connect(database_url)
    await connection.execute("DROP SCHEMA postroom CASCADE")
    await connection.close()
    return Site(tmp_path, database_url)


async def test_migrate_makes_the_room_once(site: Site) -> None:
    """The room is complete, mail can be sent and listed by Postroom's own command, and a second run changes nothing."""
    migrated = await site.manage("migrate")
    assert migrated.returncode == 0, migrated.stderr
    assert "Applying postroom.0001_room... OK" in migrated.stdout
    sent = await site.manage("sendtestemail", "ada@example.org")
    assert sent.returncode == 0, sent.stderr
    listed = await site.manage("postroom", "deliveries", "list", "--json")
    assert listed.returncode == 0, listed.stderr
    assert json.loads(listed.stdout)["items"][0]["source"] == "django"
    assert "is up to date" in (await site.manage("postroom", "migrate", "--no-backup")).stdout
    again = await site.manage("migrate", "postroom", "zero")
    assert again.returncode == 0, again.stderr
    assert (await site.manage("migrate")).returncode == 0  # the room is there, with its mail
    assert "No changes detected" in (await site.manage("makemigrations", "--check", "--dry-run")).stdout


async def test_a_test_database_has_the_room_and_the_admin_only_reads(site: Site) -> None:
    """`manage.py test`: mail is part of a test and rolled back with it; the admin shows no subject and no button."""
    tested = await site.manage("test", "tests")
    assert tested.returncode == 0, tested.stderr
    assert "Ran 2 tests" in tested.stderr


@pytest.mark.parametrize(
    "changes, found",
    [
        ("", "postroom.W002"),
        ("POSTROOM['ROOM'] = 'nope'", "There is no room 'nope' in this database."),
        ("POSTROOM['ROMM'] = 'typo'", "(postroom.E001) POSTROOM has unknown settings: ROMM."),
        ("POSTROOM['URL'] = 'http://127.0.0.1:8025'", "(postroom.E001) POSTROOM['KEY'], an API key, is required"),
        ("EMAIL_BACKEND = 'django.core.mail.backends.smtp.EmailBackend'", "(postroom.W001) EMAIL_BACKEND is django"),
        ("DATABASES['default'] = {'ENGINE': 'django.db.backends.sqlite3', 'NAME': 'x'}", "postroom.E002"),
    ],
)
async def test_the_checks_name_a_mistake(site: Site, changes: str, found: str) -> None:
    """Each has its own id; a missing room is a warning, because `migrate` runs the checks first."""
    checked = await site.manage("check", "--database", "default", changes=changes)
    assert found in checked.stderr
    assert (checked.returncode == 1) == ("E00" in found)
