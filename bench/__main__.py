"""`python -m bench`: parse, run, print. Exits 1 when a subject failed or a must was missed."""

import argparse
import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable

import uvloop
from rich.console import Console
from rich.status import Status

from bench.harness import Plan, Results, open_subjects, run_experiments
from bench.report import Machine, describe_machine, judge_targets, print_json, print_tables
from bench.rows import EXPERIMENTS, Experiment, chosen_experiments
from bench.server import running_server
from bench.subjects import all_subjects
from bench.targets import Level, Verdict

WIDTH = 210
QUICK = Plan(rounds=1, seconds=0.5, quick=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Postroom beside its peers.")
    rows = ", ".join(experiment.name for experiment in EXPERIMENTS)
    parser.add_argument("names", nargs="*", help=f"what to measure; everything when left out: {rows}")
    parser.add_argument("--subjects", help="only these, separated by commas")
    parser.add_argument("--rounds", type=int, help="measured rounds (3)")
    parser.add_argument("--seconds", type=float, help="how long a round should last (3)")
    parser.add_argument("--size", type=int, help="a fixed number of operations instead")
    parser.add_argument("--quick", action="store_true", help="one short round: does it run?")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser.parse_args()


def plan_from(options: argparse.Namespace) -> Plan:
    usual = QUICK if options.quick else Plan()
    return Plan(
        rounds=options.rounds or usual.rounds,
        seconds=options.seconds or usual.seconds,
        quick=usual.quick,
        size=options.size,
    )


def announcer(console: Console, status: Status) -> Callable[[str], None]:
    """Print the current measurement: in place on a terminal, otherwise one line each."""
    return status.update if console.is_terminal else console.print


def stop_on_terminate() -> None:
    """Lets SIGTERM end the run as Ctrl-C does: the database server would outlive us otherwise."""
    task = asyncio.current_task()
    assert task
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


async def run(
    experiments: tuple[Experiment, ...], plan: Plan, wanted: set[str], console: Console
) -> tuple[Results, Machine]:
    """Start the server, let the subjects take turns, and tell what was found."""
    opening = Results()
    stop_on_terminate()
    async with running_server() as arena:
        machine = describe_machine(await arena.version())
        chosen = [subject for subject in all_subjects() if not wanted or subject.name in wanted]
        with console.status("opening databases") as status:
            subjects = await open_subjects(chosen, arena, opening)
            try:
                results = await run_experiments(
                    experiments,
                    subjects,
                    plan,
                    announce=announcer(console, status),
                    counting=arena.meter.counting_statements,
                )
            finally:
                for subject in subjects:
                    await subject.close()
    results.failures.update(opening.failures)
    return results, machine


def console_for_tables() -> Console:
    """Wide enough for the table where no terminal says how wide it is."""
    console = Console()
    return console if console.is_terminal else Console(width=WIDTH)


def main() -> int:
    options = parse()
    try:
        experiments = chosen_experiments(options.names)
    except ValueError as fault:
        print(fault, file=sys.stderr)
        return 2
    wanted = set(filter(None, (options.subjects or "").split(",")))
    with contextlib.redirect_stdout(sys.stderr):  # measurements may print and log
        results, machine = uvloop.run(run(experiments, plan_from(options), wanted, Console(stderr=True)))
    if options.json:
        print_json(results, machine)
    else:
        print_tables(results, machine, console_for_tables())
    missed = [
        target for target, verdict in judge_targets(results) if target.level is Level.MUST and verdict is Verdict.MISSED
    ]
    return 1 if results.failures or missed else 0


if __name__ == "__main__":
    sys.exit(main())
