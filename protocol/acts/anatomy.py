"""Label the traces that [anatomy] registers: one half chooses a signal and layer, the other tests them.

No statistics are loaded before a half is complete; no testing trace is labelled before the choice is written.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from functools import cache
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

import transformers

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
from protocol.occlusion import body, windows
from protocol.running import measured
from protocol.running.executors import local
from protocol.tasks import door, prompting

__all__ = ["Ahead", "ahead", "anatomy"]

FIRST, SECOND = HALVES
ENTERED = {FIRST: "anatomy-chosen", SECOND: "anatomy-judged"}

Label: TypeAlias = Callable[[Sequence[Due]], Iterator[body.Traced]]


class Ahead(NamedTuple):
    """The most work that labelling so many traces takes, if every answer is as long as its task allows.
    tokens: fed and decoded.
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
    """Label the remaining traces, choose, label the other half, judge. Raises as `preflight.check_anatomy`,
    `refuse_drift` and `verify_before_claim.refuse_edited_lock` do, and BadInput for a half on which nothing
    can be chosen.
    """
    beforehand.anatomy(study.registration)
    with phase("hashing sources, packages and weights"):
        refuse_drift(study, with_weights=True)
    with phase("deriving the lock again"):
        unedited.refuse_edited(study, simulated=False)
    with claim.running(study.registration):
        beforehand.refuse_claimed(study.registration.anew(), "traces are labelled")
        due = anatomies.due(study.lock.content)
        if done := len(anatomies.read(study.registration).bodies):
            phases.note(f"continuing: {done:,} of {len(due):,} traces recorded")
        with phase("counting what is ahead"):
            phases.note(ahead(study.planned, due[done:]).words())
        label = cache(lambda: _labelling(study))  # loads a model, if traces are left to label
        _half(study, sum(one.half == FIRST for one in due), due, label)
        with phase("choosing a signal and a layer"):
            chosen = anatomies.write_chosen(study.registration, _told(lambda: analysed.choose(study.folder)))
        _half(study, len(due), due, label, chosen)
        with phase("testing what was chosen"):
            anatomies.write_verdict(study.registration, _told(lambda: analysed.judge(study.folder)))


def ahead(planned: Planned, due: Iterable[Due]) -> Ahead:
    """Return the most work that labelling these traces takes, from their prompts. Builds development problems
    alone.
    """
    protocol, own = planned.protocol, planned.protocol.anatomy
    assert own is not None, "no [anatomy] is registered"
    tokenizer = cache(lambda model: load.tokenizer(model, planned.home))
    registered, occlusion = {task.name: task for task in protocol.tasks}, own.occlusion()
    asked = len(protocol.arms) + 1  # without the full cache, and with the oracle
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


def _half(
    study: Study,
    ends: int,
    due: Sequence[Due],
    labelling: Callable[[], Label],
    chosen: str | None = None,
) -> None:
    """Label the unlabelled traces before `end` in a new attempt, unless the last attempt ended with all of
    them. chosen: the digest that testing traces cite.
    """
    now = study.registration.anew()
    events = [entry.event for entry in now.entries if entry.event in anatomies.EVENTS]
    done = len(anatomies.read(now).bodies)
    if done >= ends and {"occluded", *ENTERED.values()} & {*events[-1:]}:
        return
    attempt = anatomies.begin(study.registration)
    with anatomies.Writer(study.registration) as writer, phase("labelling traces") as tell:
        made, began = labelling()(due[done:ends]), time.monotonic()
        for at, one in enumerate(due[done:ends], start=done):
            left = (time.monotonic() - began) / (at - done) * (len(due) - at) if at > done else None
            words = f"{at:,} of {len(due):,}"
            tell(phases.At(words, at, len(due), left, more=f"{one.task} {one.problem}, to {one.half}"))
            traced = next(made)
            head = {"registration": study.lock.digest, "attempt": attempt, "half": one.half}
            when = {"time": datetime.now(UTC).isoformat(timespec="seconds")}
            writer.append({**traced.body, **head, **when, **_cited(one, chosen)}, traced.values)
    anatomies.end(study.registration)


def _cited(one: Due, chosen: str | None) -> dict[str, str]:
    return {} if one.half == FIRST or chosen is None else {"chosen": chosen}


def _labelling(study: Study) -> Label:
    """Return a function that labels traces in their order, those of a model and task together. Sets torch's
    threads and deterministic mode for the process.
    """
    measured.ready(study.planned)
    transformers.utils.logging.disable_progress_bar()  # our own display is enough
    model_of, lanes = local.held(study.planned, lambda told: None), study.lanes()
    registered = study.protocol.anatomy
    assert registered is not None, "no [anatomy] is registered"
    occlusion = registered.occlusion()

    def label(due: Sequence[Due]) -> Iterator[body.Traced]:
        for (model, task), own in groupby(due, key=lambda one: (one.model, one.task)):
            problems = [one.problem for one in own]
            loaded, places = model_of(model), lanes.get(model)
            yield from body.traced_together(study.planned, loaded, task, problems, occlusion, places)

    return label


def _told(analyse: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return analyse()
    except RecordError as incomplete:
        raise BadInput(str(incomplete)) from None
