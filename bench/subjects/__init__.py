"""The subjects. Each module has one and states the settings it runs with and why those are its fastest.

`all_subjects()` is the order of a round. Each has a database of its own, so that dead rows of one never slow another.
"""

from bench.harness import Subject
from bench.subjects import postfix
from bench.subjects.django_post_office import DjangoPostOffice
from bench.subjects.pgqueuer_subject import PgQueuer
from bench.subjects.postgresql import BarePostgres
from bench.subjects.postroom_subject import PostroomSubject
from bench.subjects.procrastinate_subject import Procrastinate
from bench.subjects.sql_queue import SqlQueue


def all_subjects() -> list[Subject]:
    return [
        PostroomSubject(),
        BarePostgres(),
        SqlQueue("graphile-worker"),
        SqlQueue("pgmq"),
        PgQueuer(),
        PgQueuer(batch_size=500),
        Procrastinate(),
        DjangoPostOffice(),
        *([postfix.Postfix()] if postfix.is_available() else []),
    ]
