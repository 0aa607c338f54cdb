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

from protocol import command
from protocol.evidence.registration import Registration
from protocol.instruments.anatomy import trace_file
from protocol.instruments.anatomy.analysis import report_text
from protocol.instruments.anatomy.fields import STATES
from protocol.instruments.attempt import MeasuringCommand, run_command
from protocol.workspace import locked_tree


def main(argv: list[str] | None = None, *, enter: bool = False) -> int:
    return run_command(MEASURING, __doc__, argv, enter=enter)


def _is_done(study: Registration) -> bool:
    """Return whether the ledger has its verdict; the verdict is then printed and nothing is run."""
    return "anatomy" in study.protocol and bool(study.count_events(trace_file.VERDICT_EVENT))


def _print_result(study: Registration, as_json: bool) -> int:
    traces, verdict = trace_file.read_traces(study), trace_file.read_document(study, trace_file.VERDICT).content
    states = Counter(body["state"] for body in traces.bodies)
    pairs = verdict.get("pairs", [])
    summary = ", ".join(f"{states[state]} {state}" for state in STATES if states[state])
    lines = [f"{len(traces.bodies)} development traces: {summary}", ""]
    lines += [line for pair in pairs for line in (format_pair(pair), *report_text.format_slip(pair))]
    lines += [
        "",
        "how well signals predict which tokens this model's answers need on these tasks; this is not a verdict "
        "on any policy",
    ]
    values = {"traces": len(traces.bodies), "states": dict(states), "verdict": verdict}
    command.print_result(as_json, "\n".join(lines), values)
    return 0


def format_pair(pair: Mapping[str, Any]) -> str:
    """Format one model and task: the chosen signal, and its result on the test half."""
    line = f"{pair['model']}  {pair['task']:<22} {pair['word']}"
    if pair["signal"] is None:
        return f"{line}: nothing was chosen"
    layer = "" if pair["layer"] is None else f", layer {pair['layer']}"
    line += f": {pair['signal']}{layer} ({'high' if pair['sign'] > 0 else 'low'} where a token is needed)"
    if (rho := pair.get("rho")) is None:
        return line
    low, high = rho["interval"] or ("", "")
    return f"{line}, mean rho {rho['mean']} [{low}, {high}] over {rho['units']} traces, p {rho['p']}"


MEASURING = MeasuringCommand(
    trace_file.INSTRUMENT,
    "protocol.instruments.anatomy.run.labelling:anatomy",
    _is_done,
    _print_result,
)

if __name__ == "__main__":
    sys.exit(locked_tree.run(main))
