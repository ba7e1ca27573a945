"""Turns results into a table for people and JSON for machines. Both say the same."""

import json
import os
import platform
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.harness import Results
from bench.rows import COSTS, EXPERIMENTS, ROWS, Unit
from bench.targets import OURS, TARGETS, Level, Target, Verdict


@dataclass(frozen=True)
class Machine:
    """The machine and versions of a measurement."""

    cores: int
    postgresql: str
    python: str
    platform: str


def describe_machine(postgresql: str) -> Machine:
    return Machine(os.cpu_count() or 0, postgresql, platform.python_version(), platform.platform(terse=True))


def format_value(value: float, unit: Unit) -> str:
    if unit is Unit.PER_SECOND:
        return f"{value:,.0f}/s"
    if unit is Unit.RATIO:
        return f"{value:.2f}×"
    if unit is Unit.COUNT:
        return f"{value:.3g}"
    return f"{value:,.0f} B" if unit is Unit.BYTES else f"{value:,.1f} {unit}"


def format_target(target: Target) -> str:
    """The promise in words: `≥ 12,000/s`, `≥ 20× procrastinate`, `PostgreSQL CPU ≤ 4× postgresql`."""
    row = ROWS[target.row]
    cost = f"{row.title} " if row.cost_of else ""
    if target.peer is not None:
        return f"{cost}{target.bound} {target.value:g}× {target.peer}"
    return f"{cost}{target.bound} {format_value(target.value, row.unit)}"


def judge_targets(results: Results) -> list[tuple[Target, Verdict]]:
    """Every promise with its verdict, in the order of the table of targets."""
    return [(target, judge(target, results)) for target in TARGETS]


def judge(target: Target, results: Results) -> Verdict:
    peers = results.median(target.row, target.peer) if target.peer else None
    return target.judge(results.median(target.row, OURS), peers)


def rounds_of(results: Results) -> Iterator[tuple[str, str, list[float]]]:
    """Row, subject and values, rows in the order of the report."""
    for row in ROWS:
        for subject, values in results.samples.get(row, {}).items():
            yield row, subject, values


def as_document(results: Results, machine: Machine) -> dict[str, Any]:
    """Everything known about the run, ready for `json.dumps`."""
    return {
        "machine": asdict(machine),
        "rows": [describe_rounds(results, *found) for found in rounds_of(results)],
        "targets": [
            {
                "row": target.row,
                "level": target.level,
                "target": format_target(target),
                "verdict": verdict,
            }
            for target, verdict in judge_targets(results)
        ],
        "failures": [
            {"experiment": experiment, "subject": subject, "reason": reason}
            for (experiment, subject), reason in results.failures.items()
        ],
    }


def describe_rounds(results: Results, row: str, subject: str, values: list[float]) -> dict[str, Any]:
    return {
        "row": row,
        "unit": ROWS[row].unit,
        "subject": subject,
        "rounds": values,
        "median": results.median(row, subject),
        "postroom_is": results.ratio(row, OURS, subject),
    }


def print_json(results: Results, machine: Machine) -> None:
    print(json.dumps(as_document(results, machine), indent=2, ensure_ascii=False))


def print_tables(results: Results, machine: Machine, console: Console) -> None:
    console.print(
        f"{machine.cores} cores · PostgreSQL {machine.postgresql} · Python {machine.python} · {machine.platform}"
    )
    console.print(build_table(results))
    unmeasured = [experiment.name for experiment in EXPERIMENTS if experiment.rows[0].name not in results.samples]
    if unmeasured:
        console.print(f"Not measured in this run: {', '.join(unmeasured)}.")
    for (experiment, subject), reason in results.failures.items():
        console.print(f"[red]failed[/red] {experiment} · {subject}: ", end="")
        console.print(reason, markup=False)


def build_table(results: Results) -> Table:
    table = Table(title="Postroom beside its peers: medians, and ratios within this run", title_justify="left")
    table.add_column("row")
    table.add_column("subject")
    costs = [f"{title}, {unit}" if unit else title for title, unit in COSTS.values()]
    for heading in ("median", "lowest – highest", "Postroom is", *costs):
        table.add_column(heading, justify="right")
    table.add_column("target")
    shown = ""
    for row, subject, values in rounds_of(results):
        if ROWS[row].cost_of:
            continue  # a column of the row it belongs to
        if row != shown:
            table.add_section()
        table.add_row(*cells(results, row, subject, values, title="" if row == shown else ROWS[row].title))
        shown = row
    return table


def cells(results: Results, row: str, subject: str, values: list[float], *, title: str) -> tuple[str, ...]:
    unit = ROWS[row].unit
    median = results.median(row, subject)
    ratio = None if subject == OURS else results.ratio(row, OURS, subject)
    return (
        title,
        f"[bold]{subject}[/bold]" if subject == OURS else subject,
        "" if median is None else format_value(median, unit),
        f"{format_value(min(values), unit)} – {format_value(max(values), unit)}" if len(values) > 1 else "",
        "" if ratio is None else f"{ratio:.2f}×",
        *(cost_cell(results, f"{row}-{cost}", subject) for cost in COSTS),
        verdict_lines(results, row) if subject == OURS else "",
    )


def cost_cell(results: Results, row: str, subject: str) -> str:
    median = results.median(row, subject)
    if median is None:
        return ""
    return f"{median:.3g}" if ROWS[row].unit is Unit.COUNT else f"{median:,.0f}"


def verdict_lines(results: Results, row: str) -> str:
    """The promises of the row and of its costs, one to a line: `must ≥ 12,000/s met`."""
    colours = {Verdict.MET: "green", Verdict.MISSED: "red", Verdict.UNKNOWN: "dim"}
    lines = []
    for target, verdict in judge_targets(results):
        if row in (target.row, ROWS[target.row].cost_of):
            # A moonshot not reached is no failure, so it is not shown as one.
            hoped = target.level is Level.MOONSHOT and verdict is Verdict.MISSED
            colour = "yellow" if hoped else colours[verdict]
            lines.append(f"{target.level} {format_target(target)} [{colour}]{verdict}[/{colour}]")
    return "\n".join(lines)
