"""Decode some recorded lanes again, drawn by an auditor: what reaches records that were made up.

Records can be rewritten so that every digest fits and every field agrees with every other one. What they
cannot be is what the models give, without running them. The lanes are ranked by a nonce of the auditor, who
draws it after the records were sealed: nobody could know which ones to keep honest, and whoever has the nonce
draws the same.

It is the auditor's engine that decodes, and not the locked one: a locked engine is the author's, and could
recite. Where the locked files that decode are the auditor's own, it is both, and a difference that no
rounding explains is a failure. Where they are not, a change of the code may be the reason: it cannot be told.
"""

import hashlib
import heapq
import hmac
import importlib.metadata
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.evidence.bytes import canonical
from protocol.evidence.bytes.shown import put
from protocol.evidence.findings import CannotTell, NotRun
from protocol.evidence.refusals import BadInput, Drifted, Tampered
from protocol.evidence.run import records
from protocol.evidence.run.held_out import Judged
from protocol.evidence.run.records import Record
from protocol.evidence.run.registration import SEAL, SELECTION, VERDICT, Registration
from protocol.locked import drift
from protocol.locked.study import Study, open_study
from protocol.plan.design import Design
from protocol.running import same_lane

if TYPE_CHECKING:
    from policies import Policy
    from protocol.plan.grid import Cell
    from protocol.running import decoding_again

__all__ = ["NONCE", "Engine", "check", "confirmed", "decoder_of", "draw", "engine", "refuse"]

NONCE = re.compile("(?:[0-9a-f]{2}){8,64}")
# Where the code lies that makes an answer of a problem, and the libraries that it rests on.
DECODING = (
    "policies/",
    "splits/",
    *(f"protocol/{room}/" for room in ("engine", "grading", "models", "plan", "running", "tasks")),
)
LIBRARIES = ("torch", "transformers", "tokenizers", "numpy", "math-verify", "sympy")
EDGES = 4  # of lanes one in so many may part from its record on an edge; of more nothing is told
EVERY = 5.0  # seconds between lines of progress


class Engine(NamedTuple):
    """What decodes here, beside what was locked. differing: of `files` locked ones, how many are others or
    missing here; libraries: those of another version, in words.
    """

    differing: int
    files: int
    libraries: tuple[str, ...]

    @property
    def locked(self) -> bool:
        return not self.differing and not self.libraries

    def __str__(self) -> str:
        if self.locked:
            return "decoded with the locked sources"
        others = [f"{self.differing} of {self.files} locked files differ"] if self.differing else []
        return f"decoded by today's engine ({', '.join([*others, *self.libraries])})"


def check(
    study: Registration,
    home: Path,
    count: int,
    nonce: str,
    identity: Path | None = None,
    report: Callable[[str], None] = lambda line: put(line, sys.stderr),
) -> str:
    """How many of `count` lanes gave their records, and that the excluded problems have their prompts.

    home: where what was fetched is kept. nonce: see `NONCE`. identity: a file with the private key of
    encrypted problems. report: is told how far it is, now and then.

    Raises BadInput for a nonce or a number that is none; NotRun without a verdict: held-out problems are not
    opened for an audit of an unfinished study; Tampered for a lane that is not registered, for one that gives
    another record than rounding can explain, and for one excluded by a prompt that is not its own; CannotTell
    where that may be the code's doing, where many lanes lie on an edge of rounding, and for what this machine
    lacks: torch, the locked weights, a device.
    """
    refuse(count, nonce)
    if not study.has(SEAL) or not study.has(VERDICT):
        raise NotRun("no verdict yet, and lanes of held-out problems are decoded again after it")
    recorded = records.Joined([study.confirmed, study.probed])
    drawn = [each["body"] for each in draw(recorded, count, nonce)]
    if not drawn:
        raise NotRun("no record is of a lane that ran")
    excluded, by = _excluded(recorded), engine(study)
    try:
        decoder = decoder_of(study, home, identity, [*drawn, *excluded])
        asked = _asked(decoder, excluded, by)
        settled = _decoded(decoder, drawn, nonce, by, report)
    except (BadInput, Drifted) as missing:
        raise CannotTell(str(missing)) from None
    except (OSError, RuntimeError, MemoryError) as problem:  # of this machine: torch says no more than that
        why = " ".join(str(problem).split())[:200] or type(problem).__name__
        raise CannotTell(f"decoding broke off on this machine: {why!a}; see that memory is free") from None
    return _told(settled, by, nonce, len(drawn)) + asked


def refuse(count: int, nonce: str) -> None:
    """Raises BadInput for a number of lanes, and for a nonce, that is none."""
    if count < 1:
        raise BadInput(f"--replay {count}: draw at least one lane")
    if not NONCE.fullmatch(nonce):
        raise BadInput("--nonce: write 16 to 128 lower-case hex digits, two a byte")


def draw(recorded: Sequence[Record], count: int, nonce: str) -> list[Record]:
    """The first `count` of the lanes that ran, ranked by HMAC-SHA256(nonce, canonical [phase, *key])."""
    secret = bytes.fromhex(nonce)
    ranked = (
        (hmac.digest(secret, canonical.dumps([head.phase, *head.key]), hashlib.sha256), place)
        for place, head in enumerate(records.heads(recorded))
        if head.state != "excluded"
    )
    return [*records.chosen(recorded, (place for _, place in heapq.nsmallest(count, ranked)))]


def engine(study: Registration) -> Engine:
    """What decodes here, compared with what was locked: files by their bytes, libraries by their version."""
    content = study.lock.content
    locked = [name for name in content["sources"] if name.startswith(DECODING)]
    differing = len({*drift.apart(content["sources"], *DECODING)} & {*locked})
    libraries = []
    for name in LIBRARIES:
        installed = content["environment"]["distributions"].get(name)
        before = installed.get("version") if isinstance(installed, dict) else None
        if before is not None and before != (now := _version(name)):
            libraries.append(f"{name} {now} for {before!a}")
    return Engine(differing, len(locked), tuple(libraries))


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


class Lane(NamedTuple):
    body: Mapping[str, Any]
    settled: same_lane.Settled

    def __str__(self) -> str:
        """With no character that a terminal acts on: a folder may name its lanes as it likes."""
        name = f"lane {str(records.key(self.body))!a} of {self.body['phase']}"
        return f"{name}: {self.settled.found}" if self.settled.found else name


def decoder_of(
    study: Registration,
    home: Path,
    identity: Path | None,
    bodies: Sequence[Mapping[str, Any]],
    watch: Callable[["Cell", "Policy"], "Policy"] = lambda cell, policy: policy,
) -> "decoding_again.Decoder":
    """What decodes these lanes; before the verdict, those of a probe. watch: as the executor takes it. Raises
    as `check` does, BadInput and Drifted for what is not here.
    """
    try:
        from protocol.running import decoding_again  # with torch, which an audit does without
    except ImportError as missing:
        raise CannotTell(f"{missing}; to decode lanes: pip install 'kv-prereg[run]'") from None
    opened = open_study(study, home)
    opened.planned.refuse_device()
    for model in dict.fromkeys(body["cell"]["model"] for body in bodies):
        if others := decoding_again.other_weights(opened, model):
            raise CannotTell(
                f"model {model!a}: {others[0]!a} since the lock ({len(others)} files differ); "
                "bring the weights that were locked"
            )
    judged = Judged(study.lock, study.folder, identity) if study.has(VERDICT) else None
    decoder = decoding_again.Decoder(opened, confirmed(opened) if judged else None, judged, watch)
    if unknown := [body for body in bodies if not decoder.registered(body)]:
        raise Tampered(f"{Lane(unknown[0], SAME)}: is not registered")
    return decoder


def _excluded(recorded: Sequence[Record]) -> list[dict[str, Any]]:
    """One body of each problem that a model was not asked, and of each prompt that is recorded of it."""
    found: dict[Any, int] = {}
    for place, head in enumerate(records.heads(recorded)):
        if head.state == "excluded":
            asked = (head.phase, head.key.model, head.key.task, head.key.problem)
            found.setdefault((*asked, head.prompt, head.prompt_tokens), place)
    return [record["body"] for record in records.chosen(recorded, found.values())]


def _asked(decoder: "decoding_again.Decoder", excluded: Sequence[dict[str, Any]], by: Engine) -> str:
    """What is said of excluded problems, whose prompts are all built again: a tokenizer is enough for that.
    Nothing where there are none. Raises as `check` does.
    """
    for body in excluded:
        for name, now in decoder.asked(body).items():
            if body[name] == now:
                continue
            found = f"{Lane(body, SAME)}: {name}: recorded {body[name]!a}, built {now!a}; it was excluded"
            if by.locked:
                raise Tampered(f"{found} by a prompt that is not its own; {by}")
            raise CannotTell(
                f"{found}, and a change of the code may be why; {by}; "
                "check out the sources that were locked and audit there"
            )
    return f"; all {len(excluded)} prompts that were excluded are as long as recorded" if excluded else ""


def _decoded(
    decoder: "decoding_again.Decoder",
    drawn: Iterable[dict[str, Any]],
    nonce: str,
    by: Engine,
    report: Callable[[str], None],
) -> list[Lane]:
    """Each drawn lane, and what becomes of it; none after the first that rounding cannot explain. Raises as
    `check` does, BadInput and Drifted for what is not here.
    """
    from protocol.running import decoding_again

    bodies = sorted(drawn, key=lambda body: body["cell"]["model"])
    told = _progress(report, len(bodies))
    allocated = by.locked
    plain = [(body, told(decoder.decode(body))) for body in bodies]
    # Those that gave their records first, so that all of them are counted.
    plain.sort(key=lambda pair: same_lane.difference(*pair, allocated=allocated) is not None)
    lanes = []
    for body, again in plain:
        shaken = (decoder.decode(body, shake) for shake in decoding_again.shakes(nonce))
        lanes.append(Lane(body, same_lane.settle(body, again, shaken, allocated=allocated)))
        if lanes[-1].settled.word == "beyond":
            break
    return lanes


SAME = same_lane.Settled("same")


def confirmed(opened: Study) -> Design:
    """What confirm ran."""
    if opened.protocol.sweep is None:
        return opened.protocol
    winner = opened.registration.selection.content["selected"]["winner"]
    if winner not in opened.protocol.sweep.candidates:
        raise Tampered(f"{SELECTION}: selects {winner!a}, which is no candidate")
    return opened.protocol.confirmed(winner)


def _progress(report: Callable[[str], None], lanes: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """What passes each lane on, and tells now and then how many there were."""
    started = said = time.monotonic()
    done = 0

    def passed(body: dict[str, Any]) -> dict[str, Any]:
        nonlocal said, done
        done, now = done + 1, time.monotonic()
        if now - said >= EVERY and done < lanes:
            said = now
            report(f"replay: {done} of {lanes} lanes, {(now - started) / done * (lanes - done):.0f} s left")
        return body

    return passed


def _told(lanes: Sequence[Lane], by: Engine, nonce: str, count: int) -> str:
    """The sentence of lanes that held. Raises Tampered and CannotTell as `check` does."""
    words = [lane.settled.word for lane in lanes]
    same, shaken, edges = (words.count(word) for word in ("same", "shaken", "edge"))
    held = "memory" if by.locked else "slots, events"  # bytes are those of an engine
    gave = f"{same} of {count} lanes drawn by the nonce {nonce} gave the recorded text, {held} and grade"
    if words[-1] == "beyond":
        if by.locked:
            raise Tampered(f"{lanes[-1]}; no rounding explains it; {gave}; {by}")
        raise CannotTell(
            f"{lanes[-1]}; no rounding explains it, though a change of the code may; {gave}; {by}; "
            "check out the sources that were locked and audit there"
        )
    if edges * EDGES > count:
        first = lanes[words.index("edge")]
        raise CannotTell(
            f"{edges} of {count} lanes part from their records where rounding moves them too, first {first}; "
            f"{gave}; {by}; audit on a machine like that of the lock"
        )
    if shaken:
        gave += f", {shaken} did with weights shaken by a few roundings"
    if edges:
        gave += f", {edges} part from it where rounding moves them too"
    return f"{gave}; {by}"
