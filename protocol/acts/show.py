"""Show one problem of a study as every arm answered it, from its records; with retained tokens, if decoded
again.

Held-out problems are shown only after the verdict: somebody who saw them before could still change the study.
"""

import itertools
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from analysis.explored import differing as ranking
from analysis.explored import one_problem
from analysis.explored.differing import Body, Differing
from analysis.explored.one_problem import Answer, Kept, OneProblem, Parting, Piece
from analysis.output import headline
from analysis.rules.rule import FULL
from analysis.studies import arms
from protocol import tasks
from protocol.acts.again import replay
from protocol.evidence.findings import CannotTell
from protocol.evidence.refusals import BadInput, Refusal, Tampered, hint
from protocol.evidence.run import records
from protocol.evidence.run.held_out import Judged
from protocol.evidence.run.registration import SEAL, VERDICT, Registration
from protocol.running import same_lane
from protocol.tasks import door
from protocol.tasks.problem import Problem

if TYPE_CHECKING:
    from policies import Policy
    from protocol.plan.grid import Cell
    from protocol.running.decoding_again import Decoder
    from protocol.running.kept import Noted

__all__ = ["Asked", "Differing", "differing", "problem"]

SPLITS: Mapping[str, str] = {"confirm": "confirm", "probe": "dev"}  # the names in a lock, by phase
# Fields of a record, and of its `cache`, that must agree if a lane is decoded again.
OF_LANE = ("prompt", "text", "tokens", "stop")
OF_CACHE = ("mean", "peak", "events", "granted")
FIELDS = ("model", "task", "budget", "arm", "seed")


class Asked(NamedTuple):
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
    kept: bool = False
    event: int | Literal["last"] | None = None
    identity: Path | None = None


def differing(
    study: Registration, asked: Asked, report: Callable[[str], None]
) -> tuple[list[Differing], int, str]:
    """Return the problems on which some lane is graded differently from the reference, those with most such
    lanes first; the number of all problems; and the name of the reference. Raises as `read_problem` does.
    """
    phase = _phase(study, asked)
    report(f"reading the records of {study.folder}")
    recorded = study.confirmed if phase == "confirm" else study.probed
    bodies = [record["body"] for record in recorded]
    _refuse_unrecorded(bodies, asked)
    found = ranking.differing(bodies, study.registered, lambda body: _chosen(body, asked))
    problems = {(body["cell"]["task"], body["problem"]) for body in bodies}
    return found, len(problems), ranking.beside(study.registered, bodies)


def problem(
    study: Registration, home: Path, name: str, asked: Asked, report: Callable[[str], None]
) -> OneProblem:
    """Read one problem from the records of `study`: of all models, seeds and budgets the first, unless the
    filter names one; of a named arm every budget. home: where fetched files are stored. report: is called
    with each step.

    Raises BadInput for a held-out problem before the verdict, for an unknown problem or name, and for
    anything missing here that decoding again needs; Tampered for records that do not verify.
    """
    phase = _phase(study, asked)
    _refuse_unknown(study, phase, name, asked)
    report(f"reading the records of {study.folder}")
    everything = _recorded(study, phase, name)
    _refuse_unrecorded(everything, asked)
    chosen, others = _narrowed(everything, asked)
    first = chosen[0]["cell"]
    judged = Judged(study.lock, study.folder, asked.identity) if study.has(VERDICT) else None
    built, unbuilt = _built(study, home, first["task"], name, first["model"], judged)
    reference = ranking.references(study.registered, everything)(
        next(filter(ranking.evicts, chosen), chosen[0])
    )
    shown = [body for body in chosen if body is not reference]
    place = study.place(phase)
    beside = None if reference is None else reference["text"]
    kept = _kept(study, home, asked, shown, beside, report) if asked.kept else {}
    return OneProblem(
        folder=str(study.folder),
        phase=phase,
        verdict=headline.word(study.verdict.content["judged"]) if judged else "",
        problem=name,
        model=first["model"],
        task=first["task"],
        seed=first["seed"],
        prompt=built and _prompt(built),
        unbuilt=unbuilt,
        gold=() if built is None else (built.gold,) if isinstance(built.gold, str) else tuple(built.gold),
        reference=None if reference is None else _answer(place, reference, None),
        full=reference is not None and reference["cell"]["budget"] == FULL,
        answers=tuple(
            _answer(place, body, beside)._replace(**kept.get(records.key(body), {})) for body in shown
        ),
        remarks=tuple(_remarks(study, reference, shown)),
        others=tuple(others),
    )


def _phase(study: Registration, asked: Asked) -> str:
    """Raise BadInput for held-out problems before the verdict, without reading any of them."""
    if asked.phase == "probe":
        if not study.place("probe").exists():
            raise BadInput(f"{study.folder}: was not probed; run: kv-prereg probe {study.folder}")
        return "probe"
    locked = study.lock  # raises for a folder without a registration
    if not study.has(SEAL) or not study.has(VERDICT):
        raise BadInput(
            f"{study.folder}: has no verdict, and held-out problems are not looked at before it; "
            "write --phase probe for its development problems"
        )
    Judged(locked, study.folder).key()
    return "confirm"


def _refuse_unknown(study: Registration, phase: str, name: str, asked: Asked) -> None:
    items = study.lock.content["items"]
    if asked.task is not None and asked.task not in items:
        raise BadInput(f"--task {asked.task!a}: is no task of this study; {hint(asked.task, items)}")
    own = [items[asked.task]] if asked.task else list(items.values())
    known = [each for item in own for each in item[SPLITS[phase]]]
    if name in known:
        return
    if any(name in item["dev"] for item in own):
        raise BadInput(f"--problem {name!a}: is a development problem; write --phase probe as well")
    if any(name in item["confirm"] for item in own):
        raise BadInput(f"--problem {name!a}: is held out, and no probe has it; leave out --phase probe")
    listing = f"kv-prereg show {study.folder}"
    raise BadInput(f"--problem {name!a}: is no problem of this study; {hint(name, known, listing)}")


def _recorded(study: Registration, phase: str, name: str) -> list[Body]:
    """Return the bodies of all lanes of a problem. Raises BadInput without any."""
    found: dict[records.Key, Body] = {}
    for body in (record["body"] for record in records.read_problem(study.place(phase), name)):
        if body["registration"] != study.lock.digest or body["phase"] != phase:
            raise Tampered(f"{study.place(phase)}: a record of {name!a} is of another study or phase")
        if found.setdefault(records.key(body), body) is not body:
            raise Tampered(f"{study.place(phase)}: {str(records.key(body))!a} is recorded twice")
    if not found:
        raise BadInput(f"--problem {name!a}: has no record; its lanes were not run")
    return list(found.values())


def _chosen(body: Body, asked: Asked) -> bool:
    cell = body["cell"]
    return all(getattr(asked, each) in (None, cell[each]) for each in FIELDS)


def _refuse_unrecorded(bodies: Sequence[Body], asked: Asked) -> None:
    for each in FIELDS:
        there = dict.fromkeys(str(body["cell"][each]) for body in bodies)
        if (wanted := getattr(asked, each)) is not None and str(wanted) not in there:
            raise BadInput(f"--{each} {str(wanted)!a}: no record here has it; {hint(str(wanted), there)}")


def _narrowed(bodies: Sequence[Body], asked: Asked) -> tuple[list[Body], list[str]]:
    """Return the lanes that match the filter, and the options that show others."""
    others = []
    for each in FIELDS:
        wanted = getattr(asked, each)
        there = list(dict.fromkeys(body["cell"][each] for body in bodies if not _whole(body, each)))
        if wanted is not None:
            bodies = [body for body in bodies if body["cell"][each] == wanted]
        elif each != "arm" and len(there) > 1 and not (each == "budget" and asked.arm):
            bodies = [body for body in bodies if body["cell"][each] == there[0] or _whole(body, each)]
            others.append(f"--{each} {', '.join(shlex.quote(str(one)) for one in there[1:])}")
    if not bodies:
        raise BadInput("no lane has all of these options; leave one of them out")
    return list(bodies), others


def _whole(body: Body, field: str) -> bool:
    """Whether a lane counts for every budget, as those of the full cache do."""
    return field == "budget" and not ranking.evicts(body)


def _built(
    study: Registration, home: Path, task: str, name: str, model: str, judged: Judged | None
) -> tuple[Problem | None, str]:
    """Return the problem, or the reason why it cannot be built here. Raises errors about a wrong private key.
    """
    try:
        own = tasks.finder(study.registered["tasks"], study.folder)(task)
        if judged is not None and judged.identity is not None:
            door.refuse_unopenable([own], judged.identity)
        return door.build(own, task, name, _counter(model, home), judged), ""
    except Refusal as missing:
        if judged is not None and judged.identity is not None:
            raise
        return None, str(missing)


def _counter(model: str, home: Path) -> Callable[[str], int]:
    """Return a function that counts tokens; the tokenizer is loaded when a task first calls it, which many
    never do.
    """
    opened: list[Callable[[str], int]] = []

    def count(text: str) -> int:
        if not opened:
            try:
                from protocol.models.load import tokenizer  # with torch
                from protocol.tasks import prompting
            except ImportError as missing:
                raise BadInput(
                    f"its length is counted in tokens of {model}, and {missing.name} is not installed; "
                    "run: pip install 'kv-prereg[run]'"
                ) from None
            opened.append(prompting.counter(tokenizer(model, home)))
        return opened[0](text)

    return count


def _prompt(built: Problem) -> str:
    return "\n".join(part for part in (built.context, built.question, built.prefix) if part)


def _answer(place: Path, body: Body, beside: str | None) -> Answer:
    """reference_text: the reference's text, if there is one and this is another lane."""
    held: tuple[float, ...] = ()
    if body["trajectory"] is not None:
        trajectory = records.trajectory(place, body["trajectory"])
        held = tuple(slots / trajectory["heads"] for slots in trajectory["held"])
    ended = body["state"] == "ok"
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
        worth=one_problem.worth(body),
        prompt=body["prompt"],
        prompt_tokens=body["prompt_tokens"],
        slots=body["slots"],
        held=held,
        events=tuple(
            (step, before, after) for step, before, after in (body["cache"] or {}).get("events", ())
        ),
        parts=one_problem.parting(beside, body["text"]) if ended and beside is not None else None,
    )


def _remarks(study: Registration, reference: Body | None, shown: Sequence[Body]) -> list[str]:
    """Return remarks that a reader of texts side by side needs."""
    said = [f"{each}." for each in arms.asked(study.lock.content)]
    if reference is None:
        return [*said, "No lane of the full cache or of a comparator was recorded beside these."]
    if reference["cell"]["budget"] != FULL:
        said.append(f"No full cache ran here: {reference['cell']['arm']} stands in its place.")
    if any(body["prompt"] != reference["prompt"] for body in shown):
        said.append("Some arms were asked otherwise than the reference: their texts part for that, too.")
    return said


def _kept(
    study: Registration,
    home: Path,
    asked: Asked,
    shown: Sequence[Body],
    beside: str | None,
    report: Callable[[str], None],
) -> dict[records.Key, dict[str, Any]]:
    """Return the fields `kept` and `unkept` of these lanes, decoded again. reference_text: see
    `_make_answer`.
    """
    lanes = [body for body in shown if body["state"] == "ok" and ranking.evicts(body)]
    notes: dict[tuple[Any, ...], list[Noted]] = {}
    if not lanes:
        return {}
    try:
        report(f"decoding {len(lanes)} lanes again")
        from protocol.running import kept  # with torch

        def watch(cell: "Cell", policy: "Policy") -> "Policy":
            return kept.watched(policy, notes.setdefault(tuple(cell), []))

        decoder = replay.decoder_of(study, home, asked.identity, lanes, watch)
        by, found = replay.engine(study), {}
        for body, again in zip(lanes, decoder.decode_together(lanes), strict=True):
            own = notes.get(tuple(body["cell"][each] for each in FIELDS), [])
            apart = None if beside is None else one_problem.parting(beside, again["text"])
            found[records.key(body)] = _seen(decoder, body, again, own, asked.event, apart, by)
    except ImportError as missing:
        raise BadInput(f"--kept: {missing}; run: pip install 'kv-prereg[run]'") from None
    except CannotTell as lacking:
        raise BadInput(f"--kept: {lacking}") from None
    return found


def _seen(
    decoder: "Decoder",
    body: Body,
    again: Body,
    notes: Sequence["Noted"],
    event: int | str | None,
    parts: Parting | None,
    by: replay.Engine,
) -> dict[str, Any]:
    """Return the fields of one lane. parting: where the lane's text diverges from the reference's."""
    from protocol.running import kept

    cell = body["cell"]
    if why := kept.unseen(decoder.designs[body["phase"]].policy(cell["arm"])):
        return {"unkept": why}
    if again["state"] != "ok" or not notes:
        return {"unkept": f"decoded again it gives no event: {again['reason'] or 'none fired'}"}
    different = same_lane.difference(body, again, allocated=False)
    same = all(body[name] == again[name] for name in OF_LANE) and all(
        body["cache"][name] == again["cache"][name] for name in OF_CACHE if name in body["cache"]
    )
    context, query = decoder.fed(body)
    prompt, words = len(context) + len(query), decoder.tokenizer(cell["model"])
    before = 0
    if isinstance(event, int):
        number = min(event, len(notes))
    elif event is None and parts is not None:
        place = _token(kept.texts(words, notes[-1].token_ids[prompt:]), parts.character)
        before = sum(len(note.token_ids) - prompt <= place for note in notes)
        number = before or 1  # if there is none, the first, which cannot be the cause
    else:
        number = len(notes)
    note = notes[number - 1]
    seen = len(note.token_ids)
    answered = kept.texts(words, note.token_ids[prompt:])
    texts = kept.texts(words, note.token_ids[:prompt]) + answered
    pieces = tuple(Piece(text, share) for text, share in zip(texts, note.shares, strict=True))
    return {
        "kept": Kept(
            same=same,
            said=f"{_said(different, same=same)}; {by}",
            event=number,
            events=len(notes),
            step=max(0, seen - prompt),
            before=before > 0,
            pieces=pieces,
            prompt=min(prompt, seen),
            after=again["text"][len("".join(answered)) :],
            remark=MERGED if note.merged else "",
        )
    }


def _token(texts: Sequence[str], character: int) -> int:
    """Return how many tokens end before the one that contains a character, or that follows all of these."""
    ends = itertools.accumulate(map(len, texts))
    return sum(end <= character for end in ends)


MERGED = "Slots that are not kept were merged into kept ones, which are marked as their own tokens alone."


def _said(different: same_lane.Difference | None, *, same: bool) -> str:
    if not same:
        return f"decoded again, it is NOT the recorded lane, and this is what it kept here ({different})"
    beside = "" if different is None else f" ({different})"
    return f"decoded again: the recorded text, token for token, with its slots and events{beside}"
