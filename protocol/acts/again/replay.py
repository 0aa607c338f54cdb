"""Decode some recorded lanes again, drawn by an auditor, to detect records that were invented.

Records can be rewritten so that every digest fits and all fields are consistent. But nobody can write what
the models generate without running them. The lanes are ranked by a nonce that the auditor draws after the
records were sealed: nobody could know which lanes to keep honest, and everybody who has the nonce draws the
same lanes.

The auditor's engine decodes, and not the locked one: the author wrote the locked engine, and it could replay
stored answers. Where the locked files that decode are the auditor's own, both are the same, and a difference
that rounding does not explain is a failure. Where they are not, a change of the code may be the reason, and
the result is undetermined.
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
# The code that turns a problem into an answer, and the libraries that it uses.
DECODING = (
    "policies/",
    "splits/",
    *(f"protocol/{room}/" for room in ("engine", "grading", "models", "plan", "running", "tasks")),
)
LIBRARIES = ("torch", "transformers", "tokenizers", "numpy", "math-verify", "sympy")
EDGES = 4  # at most one lane in so many may diverge at a rounding edge; with more the result is undetermined
EVERY = 5.0  # between progress reports


class Engine(NamedTuple):
    """The engine that decodes here, compared with the locked one. differing_files: how many of `files` locked
    files differ or are missing here; libraries: those with another version, as text.
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
    """Return how many of `count` lanes gave their records, and that the excluded problems have their prompts.

    home: where fetched files are stored. nonce: see `NONCE_PATTERN`. identity: a file with the private key of
    encrypted problems. report: is called with the progress from time to time.

    Raises BadInput for an invalid nonce or count; NotRun without a verdict, because no audit of an unfinished
    study opens held-out problems; Tampered for a lane that is not registered, for one that differs from its
    record by more than rounding explains, and for one excluded by a prompt that is not its own; CannotTell
    where the code may be the cause, where many lanes diverge at rounding edges, and for anything missing on
    this machine: torch, the locked weights, a device.
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
    except (OSError, RuntimeError, MemoryError) as problem:  # torch raises nothing more specific
        why = " ".join(str(problem).split())[:200] or type(problem).__name__
        raise CannotTell(f"decoding broke off on this machine: {why!a}; see that memory is free") from None
    return _told(settled, by, nonce, len(drawn)) + asked


def refuse(count: int, nonce: str) -> None:
    """Raise BadInput for an invalid number of lanes or nonce."""
    if count < 1:
        raise BadInput(f"--replay {count}: draw at least one lane")
    if not NONCE.fullmatch(nonce):
        raise BadInput("--nonce: write 16 to 128 lower-case hex digits, two a byte")


def draw(recorded: Sequence[Record], count: int, nonce: str) -> list[Record]:
    """Return the first `count` of the lanes that ran, ranked by HMAC-SHA256(nonce, canonical [phase, *key]).
    """
    secret = bytes.fromhex(nonce)
    ranked = (
        (hmac.digest(secret, canonical.dumps([head.phase, *head.key]), hashlib.sha256), place)
        for place, head in enumerate(records.heads(recorded))
        if head.state != "excluded"
    )
    return [*records.chosen(recorded, (place for _, place in heapq.nsmallest(count, ranked)))]


def engine(study: Registration) -> Engine:
    """Compare the engine here with the locked one: files by their bytes, libraries by their version."""
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
        """Return a text without control characters: the names in a folder are untrusted."""
        name = f"lane {str(records.key(self.body))!a} of {self.body['phase']}"
        return f"{name}: {self.settled.found}" if self.settled.found else name


def decoder_of(
    study: Registration,
    home: Path,
    identity: Path | None,
    bodies: Sequence[Mapping[str, Any]],
    watch: Callable[["Cell", "Policy"], "Policy"] = lambda cell, policy: policy,
) -> "decoding_again.Decoder":
    """Return a decoder for these lanes; before the verdict, only for those of a probe. observe: wraps the
    policy of each cell, as in the executor. Raises as `check` does, and BadInput and Drifted for missing
    files.
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
    """Return one body for each excluded problem of a model, and for each prompt that is recorded for it."""
    found: dict[Any, int] = {}
    for place, head in enumerate(records.heads(recorded)):
        if head.state == "excluded":
            asked = (head.phase, head.key.model, head.key.task, head.key.problem)
            found.setdefault((*asked, head.prompt, head.prompt_tokens), place)
    return [record["body"] for record in records.chosen(recorded, found.values())]


def _asked(decoder: "decoding_again.Decoder", excluded: Sequence[dict[str, Any]], by: Engine) -> str:
    """Rebuild the prompts of all excluded problems, which needs the tokenizer alone, and return a text about
    them; empty if there are none. Raises as `check` does.
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
    """Decode each drawn lane again and classify it; stop after the first one that rounding cannot explain.
    Raises as `check` does, and BadInput and Drifted for missing files.
    """
    from protocol.running import decoding_again

    bodies = sorted(drawn, key=lambda body: body["cell"]["model"])
    told = _progress(report, len(bodies))
    allocated = by.locked
    plain = [(body, told(decoder.decode(body))) for body in bodies]
    # Reproduced lanes come first, so that all of them are counted.
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
    """Return the design that confirm ran."""
    if opened.protocol.sweep is None:
        return opened.protocol
    winner = opened.registration.selection.content["selected"]["winner"]
    if winner not in opened.protocol.sweep.candidates:
        raise Tampered(f"{SELECTION}: selects {winner!a}, which is no candidate")
    return opened.protocol.confirmed(winner)


def _progress(report: Callable[[str], None], lanes: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a function that passes each lane through and reports the progress from time to time."""
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
    """Return a sentence about the replayed lanes. Raises Tampered and CannotTell as `check` does."""
    words = [lane.settled.word for lane in lanes]
    same, shaken, edges = (words.count(word) for word in ("same", "shaken", "edge"))
    held = "memory" if by.locked else "slots, events"  # another engine may allocate other bytes
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
