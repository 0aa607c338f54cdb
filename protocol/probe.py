"""Run a locked protocol on its development problems: look as often as you like, nothing is decided here.

    kv-prereg probe registrations/001-mine

The locked sources run, unpacked into a temporary folder. Every registered cell runs on the dev split; the
first comparator runs twice (A/A), so that what varies without any change of policy is known. With a sweep its
candidates and its baseline run instead, and the committed rule selects which candidate confirm will run:
selection.json, written once; from then on nothing is run again. Interrupted, it continues; finished, it
prints the same table again: what each arm answered, where the full cache would not pass the gate,
and where an arm evicted nothing.

Exit status: 0 done; 2 bad input, or a lane of a sweep has no grade (nothing is selected); 3 drifted; 4
another process is running it.
"""

import sys
from collections.abc import Callable
from typing import Any

from protocol import command
from protocol.acts import preflight
from protocol.evidence.registration import Registration
from protocol.formats.progress_display import phase
from protocol.models import sources
from protocol.run.executors.settings import ExecutorOptions, add_options, parse_settings
from protocol.workspace import locked_tree


class Options(command.Options, ExecutorOptions):
    pass


def main(argv: list[str] | None = None, *, enter: bool = False) -> int:
    parser = command.make_parser("protocol.probe", __doc__)
    command.add_folder(parser)
    add_options(parser)
    args = parser.parse_args(argv, namespace=Options())
    return command.execute(args.json, lambda: act(args, enter), resumes=True)


def act(args: Options, enter: bool) -> int:
    study, settings = Registration(args.folder), parse_settings(args)
    with phase(locked_tree.phase_label("checking the files of the study")):
        preflight.check_probe(study)
        if enter:
            locked_tree.enter(study, "protocol.probe")
    # Imported late: torch is slow, and --help and the refusals above do not need it.
    with phase(locked_tree.phase_label("loading torch", "loading torch, compiled anew")):
        from protocol.acts import development_results, probe, select
        from protocol.workspace.study import open_study

    rows, selected, alike, gate, eviction_notes = probe.probe(open_study(study, sources.cache_home()), settings)
    parts = [format_table(rows, development_results.format_shares)]
    parts += [] if selected is None else ["", select.format_table(selected)]
    parts += [*(format_alike(*pair) for pair in alike), *gate, *eviction_notes]
    values = {
        "arms": rows,
        "selected": selected,
        "alike": [pair._asdict() for pair in alike],
        "gate": gate,
        "never_evicted": eviction_notes,
    }
    command.print_result(args.json, "\n".join(parts), values)
    return 0


def format_alike(arms: tuple[str, str], same: int, lanes: int) -> str:
    return (
        f"arms {arms[0]} and {arms[1]} gave the same text from the same memory on {same} of {lanes} "
        "development lanes: one experiment, two contrasts?"
    )


def format_table(rows: list[dict[str, Any]], shares: Callable[[dict[str, Any]], str]) -> str:
    lines = ["development split: for looking, not for claiming", ""]
    width = max([6, *(len(row["budget"]) for row in rows)])
    for row in rows:
        note = f"  {row['discordant']} texts differ from the first run" if "discordant" in row else ""
        label = f"{row['model']}  {row['task']:<22} {row['budget']:>{width}}  {row['arm']:<22}"
        lines.append(f"{label} {shares(row)}{note}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(locked_tree.run(main))
