"""Which tokens an answer needs, and which signal knows: [anatomy] as registered, before the claim.

    kv-prereg anatomy registrations/001-mine

The locked sources run, on development problems alone. Windows of each of the model's own answers are
occluded, and a token is needed where any window over it changes the grade. One half of the problems chooses
the signal and layer that agree best with that: anatomy/chosen.json, written once. Only then is the other
half labelled, which tests them: anatomy/verdict.json. Each trace is one line of anatomy/traces.jsonl. What it
takes at most is said first, and how long from the first trace on. Interrupted, it continues; finished, it
prints the same again. No verdict on a policy depends on it: docs/anatomy.md.

Exit status: 0 done, whatever the traces say; 2 bad input, such as a study without [anatomy]; 3 drifted; 4
claimed or closed already and not all was labelled, or another process is running it.
"""

import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

from analysis.output.phases import phase
from protocol import command
from protocol.acts import beforehand
from protocol.evidence.run import anatomies
from protocol.evidence.run.anatomy_fields import STATES
from protocol.evidence.run.registration import Registration
from protocol.locked import tree
from protocol.models import sources


def main(argv: list[str] | None = None, *, enter: bool = False) -> int:
    parser = command.parser("protocol.anatomy", __doc__)
    command.folder(parser)
    args = parser.parse_args(argv)
    return command.answer(args.json, lambda: act(Registration(args.folder), args.json, enter), resumes=True)


def act(study: Registration, as_json: bool, enter: bool) -> int:
    with phase(tree.words("checking the files of the study")):
        if _done(study):
            return _say(study, as_json)
        beforehand.anatomy(study)
        if enter:
            tree.enter(study, "protocol.anatomy")
    # Imported late: torch is slow, and --help and the refusals above do not need it.
    with phase(tree.words("loading torch", "loading torch, compiled anew")):
        from protocol.acts import anatomy
        from protocol.locked.study import open_study

    anatomy.anatomy(open_study(study, sources.home()))
    return _say(study.anew(), as_json)


def _done(study: Registration) -> bool:
    """Return whether the ledger has its verdict; the verdict is then printed and nothing is run."""
    return anatomies.registered(study.lock.content) is not None and bool(study.count("anatomy-judged"))


def _say(study: Registration, as_json: bool) -> int:
    traces, verdict = anatomies.read(study), anatomies.judged(study).content
    states = Counter(body["state"] for body in traces.bodies)
    pairs = verdict.get("pairs", [])
    counted = ", ".join(f"{states[state]} {state}" for state in STATES if states[state])
    lines = [f"{len(traces.bodies)} development traces: {counted}", ""]
    lines += [words(pair) for pair in pairs]
    lines += ["", "what a signal knows of its own model's answers on these tasks; no verdict on any policy"]
    values = {"traces": len(traces.bodies), "states": dict(states), "verdict": verdict}
    command.say(as_json, "\n".join(lines), values)
    return 0


def words(pair: Mapping[str, Any]) -> str:
    """Format one model and task: the chosen signal, and its result on the test half."""
    told = f"{pair['model']}  {pair['task']:<22} {pair['word']}"
    if pair["signal"] is None:
        return f"{told}: nothing was chosen"
    layer = "" if pair["layer"] is None else f", layer {pair['layer']}"
    told += f": {pair['signal']}{layer} ({'high' if pair['sign'] > 0 else 'low'} where a token is needed)"
    if (rho := pair.get("rho")) is None:
        return told
    low, high = rho["interval"] or ("", "")
    return f"{told}, mean rho {rho['mean']} [{low}, {high}] over {rho['units']} traces, p {rho['p']}"


if __name__ == "__main__":
    sys.exit(tree.run(main))
