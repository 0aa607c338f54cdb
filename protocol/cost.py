"""Measure time and memory of every registered arm, as [cost] has them: before the claim, apart from accuracy.

    kv-prereg cost registrations/001-mine

The locked sources run. One arm at a time decodes made-up prompts of a fixed length, warm, repeated, in an
order drawn by the registered seed; each repetition is one line of cost/<machine>.jsonl. Interrupted, it
continues; finished, it prints the same table again. On another machine it is another measurement, in another
file, and the two are never mixed. No verdict depends on it: docs/cost.md.

Exit status: 0 done; 2 bad input, such as a study without [cost]; 3 drifted; 4 claimed or closed already and
nothing was measured, or another process is running it.
"""

import sys
from pathlib import Path

from analysis.explored import cost as explored
from analysis.output.phases import phase
from analysis.output.told import plain
from protocol import command
from protocol.acts import beforehand
from protocol.evidence.run import costs
from protocol.evidence.run.registration import CLAIM, Registration
from protocol.locked import tree
from protocol.models import sources


def main(argv: list[str] | None = None, *, enter: bool = False) -> int:
    parser = command.parser("protocol.cost", __doc__)
    command.folder(parser)
    args = parser.parse_args(argv)
    return command.answer(args.json, lambda: act(Registration(args.folder), args.json, enter), resumes=True)


def act(study: Registration, as_json: bool, enter: bool) -> int:
    with phase(tree.words("checking the files of the study")):
        if _done(study):
            return _say(study.folder, as_json)
        beforehand.cost(study)
        if enter:
            tree.enter(study, "protocol.cost")
    # Imported late: torch is slow, and --help and the refusals above do not need it.
    with phase(tree.words("loading torch", "loading torch, compiled anew")):
        from protocol.acts import cost
        from protocol.locked.study import open_study

    cost.cost(open_study(study, sources.home()))
    return _say(study.folder, as_json)


def _done(study: Registration) -> bool:
    """Return whether the study is claimed and has measurements, which are then printed without a run."""
    return study.has(CLAIM) and any(one.bodies for one in costs.read(study))


def _say(folder: Path, as_json: bool) -> int:
    measured = explored.measured(folder)
    command.say(as_json, "\n".join(explored.lines(measured)), {"measured": plain(measured)})
    return 0


if __name__ == "__main__":
    sys.exit(tree.run(main))
