"""The Django project around django-post-office, run as a program of its own: Django is configured once per process.

python -m bench.subjects.django_post_office_app <database url> <smtp port, 0 for none> <act> …

migrate                           tables, and the template
enqueue alone|in-transaction|batch|bodies <first number> <count> <clients>     prints seconds and seconds of CPU
work <processes>                  send what is queued, then end
unsent                            prints how many are not sent
clear                             empties the queue
"""

import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import django
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict  # type: ignore[import-not-found, unused-ignore]

from bench import letters, load


def configure(url: str, smtp_port: int) -> None:
    found = conninfo_to_dict(url)
    transport = "smtp" if smtp_port else "dummy"
    settings.configure(
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": found["dbname"],
                "USER": found.get("user", ""),
                "PASSWORD": found.get("password", ""),
                "HOST": found.get("host", ""),
                "PORT": str(found.get("port", "")),
                "CONN_MAX_AGE": None,
            }
        },
        INSTALLED_APPS=["django.contrib.contenttypes", "post_office"],
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        DEFAULT_FROM_EMAIL=letters.SENDER,
        EMAIL_HOST="127.0.0.1",
        EMAIL_PORT=smtp_port,
        EMAIL_USE_TLS="SSL_CERT_FILE" in os.environ,
        USE_TZ=True,
        TEMPLATES=[
            {"BACKEND": "django.template.backends.django.DjangoTemplates"},
            {"BACKEND": "post_office.template.backends.post_office.PostOfficeTemplates", "APP_DIRS": True},
        ],
        POST_OFFICE={
            "BACKENDS": {"default": f"django.core.mail.backends.{transport}.EmailBackend"},
            "BATCH_SIZE": 5_000,
            "THREADS_PER_PROCESS": 10,
        },
    )
    django.setup()


def migrate() -> None:
    from django.core.management import call_command
    from post_office.models import EmailTemplate

    call_command("migrate", verbosity=0)
    EmailTemplate.objects.create(
        name=letters.TEMPLATE_ID, subject=letters.SUBJECT, content=letters.TEXT, html_content=letters.HTML
    )


def by_template(number: int) -> dict[str, Any]:
    return {
        "recipients": letters.recipient(number),
        "template": letters.TEMPLATE_ID,
        "context": letters.variables(number),
        "render_on_delivery": True,
    }


def by_body(number: int) -> dict[str, Any]:
    return {
        "recipients": letters.recipient(number),
        "subject": f"Letter {number}",
        "message": letters.own_body(number),
    }


def connect_thread() -> None:
    """Django's `connection` is another one in each thread."""
    from django.db import connection

    connection.ensure_connection()


def send_in_transaction(number: int) -> None:
    from django.db import transaction
    from post_office import mail

    with transaction.atomic():
        mail.send(**by_template(number))


def enqueue(kind: str, first: int, count: int, clients: int) -> tuple[float, float]:
    """The seconds and the CPU seconds that queueing took, threads already running and connected."""
    from post_office import mail

    numbers = range(first, first + count)
    acts: dict[str, tuple[Callable[[Any], object], list[Any]]] = {
        "alone": (lambda number: mail.send(**by_template(number)), list(numbers)),
        "in-transaction": (send_in_transaction, list(numbers)),
        "batch": (lambda batch: mail.send_many([by_template(number) for number in batch]), list(load.batches(numbers))),
        "bodies": (lambda batch: mail.send_many([by_body(number) for number in batch]), list(load.batches(numbers))),
    }
    act, work = acts[kind]
    with ThreadPoolExecutor(clients, initializer=connect_thread) as threads:
        list(threads.map(lambda _: time.sleep(0.01), range(clients)))  # every thread has its connection
        began, cpu = time.perf_counter(), time.process_time()
        list(threads.map(act, work))
        return time.perf_counter() - began, time.process_time() - cpu


def work(processes: int) -> None:
    from django.core.management import call_command

    call_command("send_queued_mail", processes=processes)


def unsent() -> int:
    from post_office.models import STATUS, Email

    return int(Email.objects.exclude(status=STATUS.sent).count())


def clear() -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE post_office_email CASCADE")


def main() -> None:
    url, smtp_port, act, *arguments = sys.argv[1:]
    configure(url, int(smtp_port))
    if act == "enqueue":
        kind, *numbers = arguments
        print(*enqueue(kind, *map(int, numbers)))
    elif act == "unsent":
        print(unsent())
    else:
        {"migrate": migrate, "work": lambda: work(int(arguments[0])), "clear": clear}[act]()


if __name__ == "__main__":
    main()
