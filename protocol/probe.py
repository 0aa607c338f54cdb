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

from analysis.output.phases import phase
from protocol import command
from protocol.acts import beforehand
from protocol.evidence.run.registration import Registration
from protocol.locked import tree
from protocol.models import sources
from protocol.running.executors.settings import Place, chosen, options


class Options(command.Options, Place):
    pass


def main(argv: list[str] | None = None, *, enter: bool = False) -> int:
    parser = command.parser("protocol.probe", __doc__)
    command.folder(parser)
    options(parser)
    args = parser.parse_args(argv, namespace=Options())
    return command.answer(args.json, lambda: act(args, enter), resumes=True)


def act(args: Options, enter: bool) -> int:
    study, settings = Registration(args.folder), chosen(args)
    with phase(tree.words("checking the files of the study")):
        beforehand.probe(study)
        if enter:
            tree.enter(study, "protocol.probe")
    # Imported late: torch is slow, and --help and the refusals above do not need it.
    with phase(tree.words("loading torch", "loading torch, compiled anew")):
        from protocol.acts import development, probe, select
        from protocol.locked.study import open_study

    rows, selected, alike, gate, kept = probe.probe(open_study(study, sources.home()), settings)
    parts = [table(rows, development.shares)]
    parts += [] if selected is None else ["", select.table(selected)]
    parts += [*(words(*each) for each in alike), *gate, *kept]
    values = {
        "arms": rows,
        "selected": selected,
        "alike": [each._asdict() for each in alike],
        "gate": gate,
        "never_evicted": kept,
    }
    command.say(args.json, "\n".join(parts), values)
    return 0


def words(arms: tuple[str, str], same: int, lanes: int) -> str:
    return (
        f"arms {arms[0]} and {arms[1]} gave the same text from the same memory on {same} of {lanes} "
        "development lanes: one experiment, two contrasts?"
    )


def table(rows: list[dict[str, Any]], shares: Callable[[dict[str, Any]], str]) -> str:
    lines = ["development split: for looking, not for claiming", ""]
    wide = max([6, *(len(row["budget"]) for row in rows)])
    for row in rows:
        note = f"  {row['discordant']} texts differ from the first run" if "discordant" in row else ""
        place = f"{row['model']}  {row['task']:<22} {row['budget']:>{wide}}  {row['arm']:<22}"
        lines.append(f"{place} {shares(row)}{note}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(tree.run(main))
