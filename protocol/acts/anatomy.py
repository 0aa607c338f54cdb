"""Label the traces that [anatomy] registers: one half chooses a signal and layer, the other tests them.

No statistics are loaded before a half is whole; no testing trace is labelled before the choice is written.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

from analysis import anatomy as analysed
from analysis.output import phases
from analysis.output.phases import phase
from analysis.studies.plain_files import RecordError
from protocol.acts import beforehand
from protocol.acts.locking import unedited
from protocol.evidence.refusals import BadInput
from protocol.evidence.run import anatomies, claim
from protocol.evidence.run.anatomies import Due
from protocol.evidence.run.anatomy_fields import HALVES
from protocol.locked.planned import Planned
from protocol.locked.study import Study, refuse_drift
from protocol.models import load
from protocol.models.load import LoadedModel
from protocol.occlusion import body, windows
from protocol.running import measured
from protocol.running.executors import local
from protocol.tasks import door, prompting

__all__ = ["Ahead", "ahead", "anatomy"]

FIRST, SECOND = HALVES
ENTERED = {FIRST: "anatomy-chosen", SECOND: "anatomy-judged"}


class Ahead(NamedTuple):
    """At most, where every answer is as long as its task allows: what is done for so many traces. tokens: fed
    and decoded.
    """

    traces: int
    occlusions: int
    tokens: int

    def words(self) -> str:
        return (
            f"{self.traces:,} traces: at most {self.occlusions:,} occlusions and {self.tokens:,} tokens "
            "fed or decoded; how long that takes, the first trace says"
        )


def anatomy(study: Study) -> None:
    """Label what has no line yet, choose, label the other half, judge. Raises as `beforehand.anatomy`,
    `refuse_drift` and `unedited.refuse_edited` do, and BadInput for a half that nothing can be chosen on.
    """
    beforehand.anatomy(study.registration)
    with phase("hashing sources, packages and weights"):
        refuse_drift(study, with_weights=True)
    with phase("deriving the lock again"):
        unedited.refuse_edited(study, simulated=False)
    with claim.running(study.registration):
        beforehand.refuse_claimed(study.registration.anew(), "traces are labelled")
        due = anatomies.due(study.lock.content)
        _half(study, [one for one in due if one.half == FIRST])
        with phase("choosing a signal and a layer"):
            chosen = anatomies.write_chosen(study.registration, _told(lambda: analysed.choose(study.folder)))
        _half(study, due, chosen)
        with phase("testing what was chosen"):
            anatomies.write_verdict(study.registration, _told(lambda: analysed.judge(study.folder)))


def ahead(planned: Planned, due: Iterable[Due]) -> Ahead:
    """What labelling these traces takes at most, from their prompts. Builds development problems alone."""
    protocol, own = planned.protocol, planned.protocol.anatomy
    assert own is not None, "no [anatomy] is registered"
    tokenizer = cache(lambda model: load.tokenizer(model, planned.home))
    registered, occlusion = {task.name: task for task in protocol.tasks}, own.occlusion()
    asked = len(protocol.arms) + 1  # the whole cache is not asked, and the labels are
    traces = occlusions = tokens = 0
    for one in due:
        task, words = registered[one.task], tokenizer(one.model)
        problem = door.build(planned.tasks[one.task], one.task, one.problem, prompting.counter(words))
        context, query = map(len, prompting.render(problem, words, task.query))
        span = windows.span_of(
            occlusion.occlude, context, query, task.max_new_tokens, Fraction(occlusion.cut)
        )
        found = windows.windows(span, occlusion.window, occlusion.stride)
        traces, occlusions = traces + 1, occlusions + 2 * len(found)
        padded = sum(span.tokens - each.start for each in found)
        continued = (2 * len(found) + asked * len(protocol.budgets) + 1) * occlusion.new_tokens
        tokens += context + query + task.max_new_tokens + 3 * span.tokens + padded + continued
    return Ahead(traces, occlusions, tokens)


def _half(study: Study, due: Sequence[Due], chosen: str | None = None) -> None:
    """Label the traces of `due` without a line, in an attempt of their own, unless the last one ended with
    all of them. chosen: the digest that testing traces cite.
    """
    now = study.registration.anew()
    events = [entry.event for entry in now.entries if entry.event in anatomies.EVENTS]
    done = len(anatomies.read(now).bodies)
    if done >= len(due) and {"occluded", *ENTERED.values()} & {*events[-1:]}:
        return
    attempt = anatomies.begin(study.registration)
    with phase("counting what is ahead"):
        estimate = ahead(study.planned, due[done:])
    phases.note(estimate.words() if not done else f"continuing: {done:,} of {len(due):,}; {estimate.words()}")
    label, began = _labelling(study), time.monotonic()
    with anatomies.Writer(study.registration) as writer, phase("labelling traces") as tell:
        for at, one in enumerate(due[done:], start=done):
            left = (time.monotonic() - began) / (at - done) * (len(due) - at) if at > done else None
            words = f"{at:,} of {len(due):,} traces"
            tell(phases.At(words, at, len(due), left, more=f"{one.task} {one.problem}, to {one.half}"))
            traced = label(one)
            own: dict[str, Any] = {"attempt": attempt, "half": one.half} | _cited(one, chosen)
            when = datetime.now(UTC).isoformat(timespec="seconds")
            head = {"registration": study.lock.digest, "time": when}
            writer.append({**traced.body, **head, **own}, traced.values)
    anatomies.end(study.registration)


def _cited(one: Due, chosen: str | None) -> dict[str, str]:
    return {} if one.half == FIRST or chosen is None else {"chosen": chosen}


def _labelling(study: Study) -> Callable[[Due], body.Traced]:
    """What labels one trace. Sets torch's threads and deterministic mode for the process."""
    measured.ready(study.planned)
    model_of, lanes = local.held(study.planned, lambda told: None), study.lanes()
    registered = study.protocol.anatomy
    assert registered is not None, "no [anatomy] is registered"
    occlusion = registered.occlusion()

    def label(one: Due) -> body.Traced:
        model = model_of(one.model)
        if reason := _excluded(study, model, one):
            left_out = {"model": one.model, "task": one.task, "problem": one.problem}
            return body.Traced({**left_out, "state": "failed", "reason": reason}, b"")
        return body.traced(study.planned, model, one.task, one.problem, occlusion, lanes.get(one.model))

    return label


def _excluded(study: Study, model: LoadedModel, one: Due) -> str | None:
    """Why a problem is not run in any phase of the study; None where it is."""
    if study.protocol.exclude is None:
        return None
    task = next(task for task in study.protocol.tasks if task.name == one.task)
    known, counter = study.planned.tasks[one.task], prompting.counter(model.tokenizer)
    problem = door.build(known, one.task, one.problem, counter)
    context, _ = prompting.render(problem, model.tokenizer, task.query)
    found = study.protocol.excludes(len(context))
    return None if found is None else f"excluded: {found}"


def _told(analyse: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return analyse()
    except RecordError as incomplete:
        raise BadInput(str(incomplete)) from None
