"""One problem of a study as every arm answered it, read from its records.

Held-out problems are shown only after the verdict: somebody who saw them before could still change the study.
"""

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from analysis.exploratory import changed_grades, text_difference
from analysis.exploratory.changed_grades import Body, ChangedProblem
from analysis.judgement import arm_text, recorded_judgement
from analysis.rules import verdict_line
from protocol import tasks
from protocol.evidence import records
from protocol.evidence.held_out_guard import JudgedHeldOut
from protocol.evidence.registration import SEAL, VERDICT, Registration
from protocol.formats.citations import record_lock
from protocol.formats.findings import CannotTell
from protocol.formats.refusals import BadInput, Refusal, Tampered
from protocol.formats.suggestions import suggest
from protocol.formats.vocabulary import FULL
from protocol.instruments.show.problem_answers import Answer, ProblemAnswers
from protocol.tasks import held_out_guard
from protocol.tasks.problem import Problem

SPLITS: Mapping[str, str] = {"confirm": "confirm", "probe": "dev"}  # the names in a lock, by phase
CELL_FIELDS = ("model", "task", "budget", "arm", "seed")


class LaneFilter(NamedTuple):
    """Which lanes to show: those of a phase and, if given, of a cell.

    event: the number of the eviction, from 1, after which retained tokens are shown; "last" for the last one;
    None for the last one before the lane's text diverges from the reference's, since later ones cannot
    explain that, and for the last one if it does not diverge.
    """

    phase: str | None = None
    model: str | None = None
    task: str | None = None
    budget: str | None = None
    arm: str | None = None
    seed: int | None = None
    with_retained: bool = False
    event: int | Literal["last"] | None = None
    identity: Path | None = None


def find_differing(
    study: Registration, lane_filter: LaneFilter, report: Callable[[str], None]
) -> tuple[list[ChangedProblem], int, str]:
    """Return the problems on which some lane is graded differently from the reference, those with most such
    lanes first; the number of all problems; and the name of the reference. Raises as `read_problem` does.
    """
    phase = _phase(study, lane_filter)
    report(f"reading the records of {study.folder}")
    recorded = study.confirm_records if phase == "confirm" else study.probe_records
    bodies = [record["body"] for record in recorded]
    _refuse_unrecorded(bodies, lane_filter)
    problems_found = changed_grades.find_changed_grades(
        bodies, study.protocol, lambda body: _is_selected(body, lane_filter)
    )
    problems = {(body["cell"]["task"], body["problem"]) for body in bodies}
    return problems_found, len(problems), changed_grades.reference_name(study.protocol, bodies)


def read_problem(
    study: Registration, home: Path, name: str, lane_filter: LaneFilter, report: Callable[[str], None]
) -> ProblemAnswers:
    """Read one problem from the records of `study`: of all models, seeds and budgets the first, unless the filter names
    one; of a named arm every budget. home: where fetched files are stored. report: is called with each step.

    Raises BadInput for a held-out problem before the verdict, for an unknown problem or name, and for
    anything missing here that decoding again needs; Tampered for records that do not verify.
    """
    phase = _phase(study, lane_filter)
    _refuse_unknown(study, phase, name, lane_filter)
    report(f"reading the records of {study.folder}")
    bodies = _read_bodies(study, phase, name)
    _refuse_unrecorded(bodies, lane_filter)
    chosen, others = _narrow(bodies, lane_filter)
    first = chosen[0]["cell"]
    judged = JudgedHeldOut(study.lock, study.folder, lane_filter.identity) if study.has(VERDICT) else None
    built, build_error = _build_problem(study, home, first["task"], name, first["model"], judged)
    reference = changed_grades.reference_finder(study.protocol, bodies)(
        next(filter(changed_grades.evicts, chosen), chosen[0])
    )
    shown_bodies = [body for body in chosen if body is not reference]
    phase_folder = study.phase_folder(phase)
    reference_text = None if reference is None else reference["text"]
    retained = _decode_retained(study, home, lane_filter, shown_bodies, reference_text, report)
    reference_answer = None if reference is None else _make_answer(phase_folder, reference, None)
    if reference_answer is not None and "outcome" in study.protocol:
        reference_answer = reference_answer._replace(worth=1.0)  # the full cache agrees with itself
    return ProblemAnswers(
        folder=str(study.folder),
        phase=phase,
        verdict=_supported_verdict(study) if judged else "",
        problem=name,
        model=first["model"],
        task=first["task"],
        seed=first["seed"],
        prompt=built and _format_prompt(built),
        unbuilt=build_error,
        gold=() if built is None else (built.gold,) if isinstance(built.gold, str) else tuple(built.gold),
        reference=reference_answer,
        full=reference is not None and reference["cell"]["budget"] == FULL,
        answers=tuple(
            _make_answer(phase_folder, body, reference_text)._replace(**retained.get(records.body_key(body), {}))
            for body in shown_bodies
        ),
        remarks=tuple(_remarks(study, reference, shown_bodies)),
        others=tuple(others),
    )


def _supported_verdict(study: Registration) -> str:
    """Return the verdict as it is printed. Raises Tampered for one that lock and records do not support."""
    recorded_judgement.refuse_unsupported_as(Tampered, study.folder)
    return verdict_line.format_verdict(study.verdict.content["judged"])


def _phase(study: Registration, lane_filter: LaneFilter) -> str:
    """Raise BadInput for held-out problems before the verdict, without reading any of them."""
    if lane_filter.phase == "probe":
        if not study.phase_folder("probe").exists():
            raise BadInput(f"{study.folder}: has not been probed; run: kv-prereg probe {study.folder}")
        return "probe"
    locked = study.lock  # raises for a folder without a registration
    if not study.has(SEAL) or not study.has(VERDICT):
        raise BadInput(
            f"{study.folder}: has no verdict, and held-out problems may not be looked at before; write "
            "--phase probe to see its development problems"
        )
    JudgedHeldOut(locked, study.folder).key()
    return "confirm"


def _refuse_unknown(study: Registration, phase: str, name: str, lane_filter: LaneFilter) -> None:
    items = study.lock.content["items"]
    if lane_filter.task is not None and lane_filter.task not in items:
        raise BadInput(f"--task {lane_filter.task!a}: is not a task of this study; {suggest(lane_filter.task, items)}")
    task_items = [items[lane_filter.task]] if lane_filter.task else list(items.values())
    known = [problem_id for item in task_items for problem_id in item[SPLITS[phase]]]
    if name in known:
        return
    if any(name in item["dev"] for item in task_items):
        raise BadInput(f"--problem {name!a}: is a development problem; add --phase probe")
    if any(name in item["confirm"] for item in task_items):
        raise BadInput(f"--problem {name!a}: is a held-out problem, which no probe has run; leave out --phase probe")
    listing = f"kv-prereg show {study.folder}"
    raise BadInput(f"--problem {name!a}: is not a problem of this study; {suggest(name, known, listing)}")


def _read_bodies(study: Registration, phase: str, name: str) -> list[Body]:
    """Return the bodies of all lanes of a problem. Raises BadInput without any."""
    bodies: dict[records.Key, Body] = {}
    for body in (record["body"] for record in records.read_problem(study.phase_folder(phase), name)):
        own, arm = study.lock.digest, body["cell"]["arm"]
        locked = own if phase == "probe" else record_lock(study.lock.content, own, arm)
        if body["registration"] != locked or body["phase"] != phase:
            raise Tampered(f"{study.phase_folder(phase)}: a record of {name!a} belongs to another study or phase")
        if bodies.setdefault(records.body_key(body), body) is not body:
            raise Tampered(f"{study.phase_folder(phase)}: {str(records.body_key(body))!a} is recorded twice")
    if not bodies:
        raise BadInput(f"--problem {name!a}: has no record, since its lanes were not run; choose another problem")
    return list(bodies.values())


def _is_selected(body: Body, lane_filter: LaneFilter) -> bool:
    cell = body["cell"]
    return all(getattr(lane_filter, field) in (None, cell[field]) for field in CELL_FIELDS)


def _refuse_unrecorded(bodies: Sequence[Body], lane_filter: LaneFilter) -> None:
    for field in CELL_FIELDS:
        recorded_values = dict.fromkeys(str(body["cell"][field]) for body in bodies)
        if (value := getattr(lane_filter, field)) is not None and str(value) not in recorded_values:
            raise BadInput(
                f"--{field} {str(value)!a}: no record of this problem has this value; "
                f"{suggest(str(value), recorded_values)}"
            )


def _narrow(bodies: Sequence[Body], lane_filter: LaneFilter) -> tuple[list[Body], list[str]]:
    """Return the lanes that match the filter, and the options that show others."""
    others = []
    for field in CELL_FIELDS:
        requested = getattr(lane_filter, field)
        values = list(dict.fromkeys(body["cell"][field] for body in bodies if not _spans_all_budgets(body, field)))
        if requested is not None:
            bodies = [body for body in bodies if body["cell"][field] == requested]
        elif field != "arm" and len(values) > 1 and not (field == "budget" and lane_filter.arm):
            bodies = [body for body in bodies if body["cell"][field] == values[0] or _spans_all_budgets(body, field)]
            others.append(f"--{field} {', '.join(shlex.quote(str(value)) for value in values[1:])}")
    if not bodies:
        raise BadInput("no lane has all of these options; leave one of them out")
    return list(bodies), others


def _spans_all_budgets(body: Body, field: str) -> bool:
    """Whether a lane counts for every budget, as those of the full cache do."""
    return field == "budget" and not changed_grades.evicts(body)


def _build_problem(
    study: Registration, home: Path, task: str, name: str, model: str, judged: JudgedHeldOut | None
) -> tuple[Problem | None, str]:
    """Return the problem, or the reason why it cannot be built here. Raises errors about a wrong private key."""
    try:
        task_object = tasks.task_finder(study.protocol["tasks"], study.folder)(task)
        if judged is not None and judged.identity is not None:
            held_out_guard.refuse_missing_key([task_object], judged.identity)
        return held_out_guard.build(task_object, task, name, _token_counter(model, home), judged), ""
    except Refusal as missing:
        if judged is not None and judged.identity is not None:
            raise
        return None, str(missing)


def _token_counter(model: str, home: Path) -> Callable[[str], int]:
    """Return a function that counts tokens; the tokenizer is loaded when a task first calls it, which many never do."""
    counters: list[Callable[[str], int]] = []

    def count(text: str) -> int:
        if not counters:
            try:
                from protocol.models.load import tokenizer  # with torch
                from protocol.tasks import prompting
            except ImportError as missing:
                raise BadInput(
                    f"its length is counted in tokens of {model}, and {missing.name} is not installed; "
                    "run: pip install '.[run]'"
                ) from None
            counters.append(prompting.counter(tokenizer(model, home)))
        return counters[0](text)

    return count


def _format_prompt(problem_text: Problem) -> str:
    return "\n".join(part for part in (problem_text.context, problem_text.question, problem_text.prefix) if part)


def _make_answer(phase_folder: Path, body: Body, reference_text: str | None) -> Answer:
    """reference_text: the reference's text, if there is one and this is another lane."""
    slots_per_head: tuple[float, ...] = ()
    if body["trajectory"] is not None:
        trajectory = records.read_trajectory(phase_folder, body["trajectory"])
        slots_per_head = tuple(slots / trajectory["heads"] for slots in trajectory["held"])
    has_ended = body["state"] == "ok"
    cell = body["cell"]
    return Answer(
        arm=cell["arm"],
        budget=cell["budget"],
        state=body["state"],
        reason=body["reason"],
        text=body["text"],
        tokens=body["tokens"],
        stop=body["stop"],
        answer=body["answer"],
        grade=body["grade"],
        why=body["grade_reason"],
        score=body.get("score"),
        worth=changed_grades.judged_score(body),
        prompt=body["prompt"],
        prompt_tokens=body["prompt_tokens"],
        slots=body["slots"],
        held=slots_per_head,
        events=tuple(
            (step, slots_before, slots_after)
            for step, slots_before, slots_after in (body["cache"] or {}).get("events", ())
        ),
        parts=text_difference.first_difference(reference_text, body["text"])
        if has_ended and reference_text is not None
        else None,
    )


def _remarks(study: Registration, reference: Body | None, shown_bodies: Sequence[Body]) -> list[str]:
    """Return remarks that a reader of texts side by side needs."""
    messages = [f"{text}." for text in arm_text.extra_prompt_sentences(study.lock.content)]
    if reference is None:
        return [*messages, "No lane of the full cache or of a comparator was recorded with these."]
    if reference["cell"]["budget"] != FULL:
        messages.append(f"No full cache ran here: {reference['cell']['arm']} is the reference instead.")
    if any(body["prompt"] != reference["prompt"] for body in shown_bodies):
        messages.append(
            "Some arms had a prompt other than the reference's, so their texts may also differ for that reason."
        )
    if "outcome" in study.protocol:
        messages.append(
            "The other arms were fed the full cache's text and did not produce it: their score is the "
            "agreement with it."
        )
    return messages


def _decode_retained(
    study: Registration,
    home: Path,
    lane_filter: LaneFilter,
    bodies: Sequence[Body],
    reference_text: str | None,
    report: Callable[[str], None],
) -> Mapping[records.Key, Mapping[str, Any]]:
    """Return the fields `kept` and `unkept` of the lanes that evict, decoded again if the filter asks for it."""
    lanes = [body for body in bodies if body["state"] == "ok" and changed_grades.evicts(body)]
    if not lane_filter.with_retained or not lanes:
        return {}
    report(f"decoding {len(lanes)} lanes again")
    try:
        from protocol.instruments.show import retained_tokens  # with torch

        return retained_tokens.decode_retained(
            study, home, lanes, lane_filter.identity, lane_filter.event, reference_text
        )
    except ImportError as missing:
        raise BadInput(f"--kept: {missing}; run: pip install '.[run]'") from None
    except CannotTell as lacking:
        raise BadInput(f"--kept: {lacking}") from None
