"""The benchmark's arithmetic and its sink. Nothing here measures time."""

import contextlib
import json
import smtplib
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from email.message import EmailMessage
from pathlib import Path

import pytest
from bench.harness import GROWTH, Plan, Readings, Results, run_experiments, size_for, size_of_count
from bench.report import Machine, as_document, build_table, format_target, format_value, judge
from bench.rows import EXPERIMENTS, ROWS, Experiment, Row, Unit, by_rate, chosen_experiments
from bench.server import Arena
from bench.sink import Counts, message_id_of, start_sink
from bench.statements import read_statements
from bench.targets import TARGETS, Bound, Level, Target, Verdict
from bench.workers import net_seconds
from rich.console import Console

from bench import letters, load

MACHINE = Machine(cores=2, postgresql="18", python="3.11", platform="test")
RATED = Experiment("drain", (Row("drain", "drain"),), first=100)
FIXED = Experiment("code", (Row("code-p99", "code", Unit.MILLISECONDS),), full=1_000_000, quick=10_000)


class Scripted:
    """A subject that answers from a list, always with three statements, and keeps the sizes it was asked for."""

    def __init__(self, name: str, rates: list[float], log: list[str] | None = None) -> None:
        self.name = name
        self.sizes: list[int] = []
        self._rates = iter(rates)
        self._log = log if log is not None else []

    async def open(self, arena: Arena) -> None:
        """Nothing to make."""

    async def close(self) -> None:
        """Nothing to give back."""

    def measures(self) -> Mapping[str, Callable[[int], Awaitable[Readings]]]:
        return {"drain": self._measure}

    async def _measure(self, size: int) -> Readings:
        self.sizes.append(size)
        self._log.append(self.name)
        return {"drain": next(self._rates), "drain-statements": 3.0}


async def run(experiments: list[Experiment], subjects: list[Scripted], plan: Plan) -> Results:
    return await run_experiments(experiments, subjects, plan, announce=lambda _: None, counting=contextlib.nullcontext)


def results(**samples: dict[str, list[float]]) -> Results:
    return Results(samples={row.replace("_", "-"): found for row, found in samples.items()})


def test_median_ignores_one_noisy_round() -> None:
    """The median, not the mean, stands for a subject."""
    assert results(drain={"postroom": [10.0, 1.0, 12.0]}).median("drain", "postroom") == 10.0


def test_median_of_nothing_is_unknown() -> None:
    """A subject that was not measured has no figure, not a zero."""
    assert results().median("drain", "postroom") is None


def test_ratio_compares_medians_of_the_same_row() -> None:
    """A ratio is our median over the other's."""
    found = results(drain={"postroom": [30.0], "pgqueuer": [10.0, 20.0]})
    assert found.ratio("drain", "postroom", "pgqueuer") == 2.0


@pytest.mark.parametrize("peers", [[], [0.0]])
def test_ratio_without_a_peer_is_unknown(peers: list[float]) -> None:
    """Nothing, or zero, cannot be divided by."""
    found = results(drain={"postroom": [30.0], "pgqueuer": peers})
    assert found.ratio("drain", "postroom", "pgqueuer") is None


@pytest.mark.parametrize(
    "plan, rate, size",
    [
        (Plan(), None, 100),
        (Plan(seconds=3), 200.0, 600),
        (Plan(seconds=3), 1.0, 100),
        (Plan(seconds=3), 1e9, 100 * GROWTH),
        (Plan(seconds=3, most=150), 1e9, 150),
        (Plan(size=7), 200.0, 7),
    ],
)
def test_a_rated_round_lasts_the_asked_for_seconds(plan: Plan, rate: float | None, size: int) -> None:
    """The warm-up's rate decides the size, between the warm-up's own and a bound."""
    assert size_for(RATED, plan, rate) == size


@pytest.mark.parametrize("quick, size", [(True, 10_000), (False, 1_000_000)])
def test_a_fixed_experiment_keeps_its_size(quick: bool, size: int) -> None:  # noqa: FBT001 - a table of cases
    """A measurement at a queue depth does not depend on speed."""
    assert size_for(FIXED, Plan(quick=quick), 5.0) == size


async def test_rounds_are_interleaved_after_an_uncounted_warm_up() -> None:
    """Every subject takes its turn in each round; the warm-up only sets the size."""
    order: list[str] = []
    first, second = Scripted("a", [40.0, 50.0, 60.0, 70.0], order), Scripted("b", [400.0, 500.0, 600.0, 700.0], order)
    found = await run([RATED], [first, second], Plan(rounds=2, seconds=4))
    assert order == ["a", "b"] * 4
    assert found.samples == {"drain": {"a": [60.0, 70.0], "b": [600.0, 700.0]}}
    assert first.sizes == [100, 160, 200, 240]
    assert second.sizes == [100, 1_600, 2_000, 2_400]


async def test_statements_are_counted_in_a_small_round_and_everything_else_in_the_others() -> None:
    """The rate of the round that writes the statements into the log is not used, not even for the next size."""
    subject = Scripted("a", [40.0, 50.0, 1.0, 60.0, 70.0])
    found = await run([by_rate("drain", "drain", 100)], [subject], Plan(rounds=2, seconds=4))
    assert subject.sizes == [100, 160, 100, 200, 240]
    assert found.samples == {"drain": {"a": [60.0, 70.0]}, "drain-statements": {"a": [3.0]}}


@pytest.mark.parametrize(
    "first, plan, size",
    [
        (100, Plan(size=400_000), 100),
        (100, Plan(size=7), 7),
        (None, Plan(), 20_000),
        (None, Plan(quick=True), 500),
        (None, Plan(size=7), 7),
    ],
)
def test_statements_are_counted_in_a_small_log(first: int | None, plan: Plan, size: int) -> None:
    """As many operations as the first warm-up has, and those of an experiment of fixed size; or fewer, if asked for."""
    assert size_of_count(Experiment("drain", (), first=first, full=20_000, quick=500), plan) == size


async def test_a_failing_subject_does_not_stop_the_others() -> None:
    """A failed subject is named with its reason and excluded."""
    broken, sound = Scripted("broken", []), Scripted("sound", [1.0, 1.0, 2.0])
    found = await run([RATED], [broken, sound], Plan(rounds=1))
    assert list(found.failures) == [("drain", "broken")]
    assert found.samples == {"drain": {"sound": [2.0]}}


@pytest.mark.parametrize(
    "target, ours, peers, verdict",
    [
        (Target("drain", Level.MUST, 100), 100.0, None, Verdict.MET),
        (Target("drain", Level.MUST, 100), 99.0, None, Verdict.MISSED),
        (Target("drain", Level.MUST, 100), None, None, Verdict.UNKNOWN),
        (Target("drain", Level.MUST, 2, peer="b"), 20.0, 10.0, Verdict.MET),
        (Target("drain", Level.MUST, 2, peer="b"), 19.0, 10.0, Verdict.MISSED),
        (Target("drain", Level.MUST, 2, peer="b"), 19.0, None, Verdict.UNKNOWN),
        (Target("code-p99", Level.MUST, 5, bound=Bound.AT_MOST), 5.0, None, Verdict.MET),
        (Target("code-p99", Level.MUST, 5, bound=Bound.AT_MOST), 5.1, None, Verdict.MISSED),
    ],
)
def test_a_target_is_met_missed_or_not_measured(
    target: Target, ours: float | None, peers: float | None, verdict: Verdict
) -> None:
    """A bound holds for our median, or for its ratio to the peer's; without both sides nothing is claimed."""
    found = Results()
    for subject, value in (("postroom", ours), ("b", peers)):
        if value is not None:
            found.add(subject, {target.row: value})
    assert judge(target, found) is verdict


@pytest.mark.parametrize(
    "value, unit, text",
    [
        (12_345.6, Unit.PER_SECOND, "12,346/s"),
        (1.234, Unit.RATIO, "1.23×"),
        (0.25, Unit.MILLISECONDS, "0.2 ms"),
        (1_234.5, Unit.BYTES, "1,234 B"),
        (0.00412, Unit.COUNT, "0.00412"),
        (80.0, Unit.MEGABYTES, "80.0 MB"),
    ],
)
def test_values_read_in_their_unit(value: float, unit: Unit, text: str) -> None:
    """Rates have no decimals; small things do."""
    assert format_value(value, unit) == text


def test_a_ratio_target_names_its_peer() -> None:
    """The reader sees against whom the promise was made."""
    assert format_target(Target("drain", Level.MUST, 20, peer="procrastinate")) == "≥ 20× procrastinate"


def test_the_document_holds_every_round_and_survives_json() -> None:
    """The document has all values, medians, ratios, verdicts, failures and the machine."""
    found = results(
        drain={"postroom": [30_000.0, 20_000.0], "procrastinate": [500.0]}, drain_python={"postroom": [40.0]}
    )
    found.failures["code", "postroom"] = "RuntimeError: no"
    document = json.loads(json.dumps(as_document(found, MACHINE)))
    assert document["machine"]["cores"] == 2
    ours, theirs, cost = document["rows"]
    assert (cost["row"], cost["unit"]) == ("drain-python", "µs")
    assert ours["rounds"] == [30_000.0, 20_000.0]
    assert theirs["postroom_is"] == 50.0
    verdicts = {(entry["row"], entry["target"]): entry["verdict"] for entry in document["targets"]}
    assert verdicts["drain-python", "Python CPU ≤ 60.0 µs"] == "met"
    assert verdicts["drain", "≥ 1× pgqueuer-500"] == "not measured"
    assert document["failures"] == [{"experiment": "code", "subject": "postroom", "reason": "RuntimeError: no"}]


def test_the_table_shows_medians_ratios_costs_and_verdicts() -> None:
    """Costs are columns of the row they belong to, and so are their targets."""
    console = Console(width=200, record=True, quiet=False, file=(Path("/dev/null").open("w")))  # noqa: SIM115
    found = results(
        drain={"postroom": [24_000.0], "pgqueuer-500": [12_000.0]},
        drain_postgresql={"postroom": [42.4], "pgqueuer-500": [33.3]},
    )
    console.print(build_table(found))
    console.file.close()
    shown = console.export_text()
    assert shown.count("drain into a no-op") == 1
    for words in ("24,000/s", "12,000/s", "2.00×", " 42 ", " 33 ", "must PostgreSQL CPU ≤ 50.0 µs met"):
        assert words in shown


def test_targets_name_known_rows() -> None:
    """A misspelt row would silently never be judged."""
    assert {target.row for target in TARGETS} <= set(ROWS)


def test_experiments_are_chosen_by_name_in_the_order_of_the_report() -> None:
    """Names choose; none means all; a wrong one is refused with the right ones."""
    assert [chosen.name for chosen in chosen_experiments(["drain", "enqueue-1"])] == ["enqueue-1", "drain"]
    assert chosen_experiments([]) == EXPERIMENTS
    with pytest.raises(ValueError, match="no such row: drian"):
        chosen_experiments(["drian"])


def test_percentile_is_a_value_that_occurred() -> None:
    """The nearest rank, never an interpolation."""
    values = [float(number) for number in range(1, 201)]
    assert (load.percentile(values, 50), load.percentile(values, 99)) == (100.0, 198.0)
    assert load.percentile([7.0], 99) == 7.0


async def test_clients_share_the_numbers_exactly_once() -> None:
    """Nothing is done twice or left out, however many clients there are."""
    done: list[int] = []

    async def act(_client: str, batch: range) -> None:
        done.extend(batch)

    await load.share_batches(["a", "b", "c"], range(5, 2_505), act)
    assert sorted(done) == list(range(5, 2_505))


def test_numbers_are_never_handed_out_twice() -> None:
    """Idempotency keys of different rounds differ."""
    numbers = load.Numbers()
    assert (numbers.take(3), numbers.take(2)) == (range(3), range(3, 5))


@pytest.mark.parametrize("busy, idle, net", [(4.0, 0.5, 3.5), (1.0, 0.9, 0.5), (1.0, 1.5, 0.5)])
def test_start_up_is_not_charged_but_never_more_than_half_taken_off(busy: float, idle: float, net: float) -> None:
    """A drain too short to tell from its start-up must not read as an absurd rate."""
    assert net_seconds(busy, idle) == net


def test_the_letter_is_about_five_kilobytes() -> None:
    """The targets speak of 5 KB mail and 4 KB bodies."""
    assert 4_800 < len(letters.prepared_message()) < 5_500
    assert len(letters.own_body(123).encode()) == 4_096
    assert "{{" not in letters.fill(letters.HTML, 1)


def test_statements_are_read_by_name(tmp_path: Path) -> None:
    """Text before the first name is a comment."""
    file = tmp_path / "some.sql"
    file.write_text("-- about\n\n-- name: one\nSELECT 1;\n\n-- name: two\nSELECT\n    2;\n")
    assert read_statements(file) == {"one": "SELECT 1;", "two": "SELECT\n    2;"}


@pytest.mark.parametrize(
    "data, found",
    [
        (b"Message-ID: <a@b>\r\nTo: x\r\n\r\nbody", b"<a@b>"),
        (b"To: x\r\nmessage-id:\r\n <a@b>\r\n\r\nbody", b"<a@b>"),
        (b"To: x\r\n\r\nMessage-ID: <in-the-body@b>", b""),
    ],
)
def test_the_sink_reads_message_ids_from_headers_only(data: bytes, found: bytes) -> None:
    """In any case, folded or not, and never from the body."""
    assert message_id_of(data) == found


def letter(number: int) -> EmailMessage:
    message = EmailMessage()
    message["From"], message["To"], message["Message-ID"] = "a@example.org", "b@example.org", f"<{number}@example.org>"
    message.set_content("Hello.\n.\n..\nBye.\n")
    return message


def test_the_sink_counts_mail_and_recipients() -> None:
    """Every accepted mail counts once, with all its recipients; zeroing restarts the count."""
    with start_sink() as sink, smtplib.SMTP(sink.host, sink.port) as client:
        assert client.ehlo()[0] == 250
        assert {"pipelining", "8bitmime", "smtputf8"} <= set(client.esmtp_features)
        client.send_message(letter(1), to_addrs=["b@example.org", "c@example.org"])
        client.send_message(letter(2), to_addrs=["b@example.org"])
        assert sink.counts() == Counts(messages=2, recipients=3)
        sink.reset()
        assert sink.counts() == Counts(messages=0, recipients=0)


def test_the_sink_records_what_it_is_asked_to(tmp_path: Path) -> None:
    """Message-ID and recipients of each mail whose first recipient starts as asked, in order of arrival."""
    with start_sink(record=tmp_path / "record", only="code-") as sink, smtplib.SMTP(sink.host, sink.port) as client:
        for number, recipient in enumerate(["code-1@example.org", "bulk@example.org", "code-2@example.org"]):
            client.send_message(letter(number), to_addrs=[recipient])
        found = sink.recorded()
    assert [(entry.message_id, entry.recipients) for entry in found] == [
        ("<0@example.org>", ("code-1@example.org",)),
        ("<2@example.org>", ("code-2@example.org",)),
    ]
    assert found[0].at < found[1].at


def test_the_sink_takes_mail_over_starttls() -> None:
    """Its certificate is valid for its authority, and mail over TLS counts."""
    with start_sink(tls=True) as sink, smtplib.SMTP(sink.host, sink.port) as client:
        client.starttls(context=ssl.create_default_context(cafile=sink.authority))
        client.send_message(letter(1))
        assert "starttls" not in client.esmtp_features
        assert sink.counts() == Counts(messages=1, recipients=1)


@pytest.mark.parametrize("cut", [1, 7, 64])
def test_the_sink_takes_pipelined_mail_in_any_pieces(cut: int) -> None:
    """Where packets are cut changes nothing, nor whether a mail is empty."""
    mail = b"MAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nDATA\r\n"
    talk = b"EHLO x\r\n" + mail + b"Subject: x\r\n\r\nbody\r\n.\r\n" + mail + b".\r\nQUIT\r\n"
    with start_sink() as sink, socket.create_connection((sink.host, sink.port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(talk), cut):
            connection.sendall(talk[start : start + cut])
        answers = connection.makefile("rb").read().split(b"\r\n")
        assert sink.counts() == Counts(messages=2, recipients=2)
    codes = [line[:3] for line in answers if line and line[3:4] == b" "]
    assert codes == [b"220", b"250"] + [b"250", b"250", b"354", b"250"] * 2 + [b"221"]
