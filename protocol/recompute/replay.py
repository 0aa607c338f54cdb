"""Decode some recorded lanes again, drawn by an auditor, to detect records that were invented.

Records can be rewritten so that every digest fits and all fields are consistent. But nobody can write what
the models generate without running them. The lanes are ranked by a nonce that the auditor draws after the
records were sealed: nobody could know which lanes to keep honest, and everybody who has the nonce draws the
same lanes. Most are drawn among those that carry the verdict (`turning_lanes`), and the odds are printed.

The auditor's engine decodes, and not the locked one: the author wrote the locked engine, and it could replay
stored answers. Where the lock names the auditor's own release and libraries, a difference that rounding does
not explain is a failure. Where it names others, or ships with this project, a change of the code may be the
reason, and the result is undetermined.
"""

import hmac
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.evidence import records
from protocol.evidence.held_out_guard import JudgedHeldOut
from protocol.evidence.records import Record
from protocol.evidence.registration import SEAL, SELECTION, VERDICT, Registration
from protocol.formats import files
from protocol.formats.escape import print_escaped
from protocol.formats.findings import CannotTell, NotRun
from protocol.formats.instruments import INSTRUMENTS
from protocol.formats.refusals import BadInput, Drifted, Tampered
from protocol.formats.registry import load_attribute
from protocol.plan.design import Design
from protocol.recompute import turning_lanes
from protocol.recompute.turning_lanes import Draw, Route
from protocol.run import lane_comparison
from protocol.workspace import drift
from protocol.workspace.study import Study, open_study

if TYPE_CHECKING:
    from policies import Policy
    from protocol.plan.grid import Cell
    from protocol.run import redecode

NONCE_PATTERN = re.compile("(?:[0-9a-f]{2}){8,64}")
# The code that turns a problem into an answer, and the libraries that it uses.
DECODING_SOURCES = (
    "policies/",
    "splits/",
    *(
        f"protocol/{package}/"
        for package in ("engine", "grading", "layers", "models", "plan", "presses", "run", "tasks")
    ),
    *(f"protocol/{package}/" for package in ("executors", "running")),  # as `run` was called in older locks
)
LIBRARIES = ("torch", "transformers", "tokenizers", "numpy", "math-verify", "sympy")
MAX_EDGE_FRACTION = (
    4  # at most one lane in so many may diverge at a rounding edge; with more the result is undetermined
)
MEASURED_AGAIN = 3  # lines of each instrument
PROGRESS_SECONDS = 5.0  # between progress reports


class Engine(NamedTuple):
    """The engine that decodes here, compared with the locked one. differing_files: how many of `files` locked
    files differ or are missing here; reasons: why it may decode otherwise, as the lock has it.
    """

    differing_files: int
    files: int
    reasons: tuple[str, ...]

    @property
    def is_locked(self) -> bool:
        return not self.reasons

    def __str__(self) -> str:
        if not self.differing_files and not self.reasons:
            return "decoded with the locked sources"
        differences = (
            [f"{self.differing_files} of {self.files} files differ from the locked ones"]
            if self.differing_files
            else []
        )
        return f"decoded by today's engine ({', '.join([*differences, *self.reasons])})"


def check(
    study: Registration,
    home: Path,
    count: int | None,
    nonce: str,
    identity: Path | None = None,
    report: Callable[[str], None] = lambda line: print_escaped(line, sys.stderr),
    routes: Sequence[Route] = (),
) -> str:
    """Return how many of `count` lanes gave their records, and that the excluded problems have their prompts.

    count: None draws as many as `turning_lanes.ODDS` needs. routes: what turns the verdict, from
    `turning_lanes.find_study_routes`. home: where fetched files are stored. nonce: see `NONCE_PATTERN`. identity: a
    file with the private key of encrypted problems. report: is called with the progress from time to time.

    Raises BadInput for an invalid nonce or count; NotRun without a verdict, because no audit of an unfinished
    study opens held-out problems; Tampered for a lane that is not registered, for one that differs from its
    record by more than rounding explains, and for one excluded by a prompt that is not its own; CannotTell
    where the code may be the cause, where many lanes diverge at rounding edges, and for anything missing on
    this machine: torch, the locked weights, a device.
    """
    refuse_options(count, nonce)
    if not study.has(SEAL) or not study.has(VERDICT):
        raise NotRun("no verdict yet; held-out lanes may be decoded again only after the verdict")
    all_records = records.JoinedRecords([study.confirm_records, study.probe_records])
    draw = _draw(all_records, count, nonce, routes)
    drawn_bodies = [record["body"] for record in select_lanes(all_records, draw)]
    if not drawn_bodies:
        raise NotRun("no recorded lane ran, so there is nothing to decode again")
    excluded, replay_engine = _excluded_bodies(all_records), compare_engine(study)
    try:
        decoder = open_decoder(study, home, identity, [*drawn_bodies, *excluded])
        excluded_text = _check_excluded(decoder, excluded, replay_engine)
        lanes = _decode_lanes(decoder, drawn_bodies, nonce, replay_engine, report)
        lanes_text = _summarize(lanes, replay_engine, nonce, len(drawn_bodies))
        measured_text = "".join(_replay_instruments(study, home, nonce, replay_engine))
    except (BadInput, Drifted) as missing:
        raise CannotTell(str(missing)) from None
    except (OSError, RuntimeError, MemoryError) as problem:  # torch raises nothing more specific
        message = " ".join(str(problem).split())[:200] or type(problem).__name__
        raise CannotTell(
            f"decoding failed on this machine: {message!a}; make sure that enough memory is free"
        ) from None
    odds_text = f"; {draw}" if routes else ""
    return lanes_text + odds_text + excluded_text + measured_text


def _replay_instruments(study: Registration, home: Path, nonce: str, replay_engine: Engine) -> Iterator[str]:
    """Measure some drawn lines of each instrument again; yield a text about each. Raises as `check` does."""
    for instrument in INSTRUMENTS:
        if not instrument.replay or not files.exists(study.folder / instrument.name):
            continue
        name, drawn = instrument.name, list[int]()

        def draw(lines: int, name: str = name, drawn: list[int] = drawn) -> list[int]:
            ranked = sorted(
                range(lines), key=lambda line: hmac.digest(bytes.fromhex(nonce), f"{name} {line}".encode(), "sha256")
            )
            drawn[:] = sorted(ranked[:MEASURED_AGAIN])
            return drawn

        values = list(load_attribute(instrument.replay)(open_study(study, home), draw))
        differing = [value for value in values if value.recorded != value.now]
        if differing:
            first = differing[0]
            message = (
                f"{name}: {len(differing)} of {len(values)} values of {len(drawn)} drawn lines differ; the "
                f"first: {first.where!a}: recorded {str(first.recorded)[:80]!a}, now {str(first.now)[:80]!a}; "
                f"{replay_engine}"
            )
            may_round = all(value.may_round for value in differing)
            if replay_engine.is_locked and not (may_round and len(differing) * MAX_EDGE_FRACTION <= len(values)):
                raise Tampered(message)
            raise CannotTell(f"{message}; run the audit on a machine like that of the lock, with the locked sources")
        yield f"; {name}: {len(values)} values of {len(drawn)} drawn lines were reproduced"


def refuse_options(count: int | None, nonce: str) -> None:
    """Raise BadInput for an invalid number of lanes or nonce."""
    if count is not None and count < 1:
        raise BadInput(f"--replay {count}: write at least 1 lane")
    if not NONCE_PATTERN.fullmatch(nonce):
        raise BadInput("--nonce: write 16 to 128 lower-case hex digits, an even number")


def draw_lanes(all_records: Sequence[Record], count: int | None, nonce: str) -> list[Record]:
    """Return `count` of the lanes that ran, all alike likely, ranked by the nonce."""
    return select_lanes(all_records, _draw(all_records, count, nonce, ()))


def select_lanes(all_records: Sequence[Record], draw: Draw) -> list[Record]:
    """Return the records of the drawn lanes, as they were drawn."""
    indices = {(head.phase, *head.key): index for index, head in enumerate(records.record_heads(all_records))}
    return [*records.select_records(all_records, (indices[lane] for lane in draw.lanes))]


def _draw(all_records: Sequence[Record], count: int | None, nonce: str, routes: Sequence[Route]) -> Draw:
    heads = records.record_heads(all_records)
    lanes = ((head.phase, *head.key) for head in heads if head.state != "excluded")
    return turning_lanes.draw_lanes(lanes, routes, count, nonce)


def compare_engine(study: Registration) -> Engine:
    """Compare the engine here with the locked one: files by their bytes, libraries by their version."""
    sources = study.lock.content["sources"]
    locked = [name for name in sources if name.startswith(DECODING_SOURCES)]
    differing = len({*drift.differing_sources(sources, *DECODING_SOURCES)} & {*locked})
    return Engine(differing, len(locked), tuple(drift.other_code(study, LIBRARIES)))


class ReplayedLane(NamedTuple):
    body: Mapping[str, Any]
    outcome: lane_comparison.Classification

    def __str__(self) -> str:
        """Return a text without control characters: the names in a folder are untrusted."""
        name = f"lane {str(records.body_key(self.body))!a} of {self.body['phase']}"
        return f"{name}: {self.outcome.difference}" if self.outcome.difference else name


def open_decoder(
    study: Registration,
    home: Path,
    identity: Path | None,
    bodies: Sequence[Mapping[str, Any]],
    observe: Callable[["Cell", "Policy"], "Policy"] = lambda cell, policy: policy,
) -> "redecode.Decoder":
    """Return a decoder for these lanes; before the verdict, only for those of a probe. observe: wraps the policy of
    each cell, as in the executor. Raises as `check` does, and BadInput and Drifted for missing files.
    """
    try:
        from protocol.run import redecode  # with torch, which an audit does without
    except ImportError as missing:
        raise CannotTell(f"{missing}; to decode lanes: pip install '.[run]'") from None
    opened_study = open_study(study, home)
    opened_study.planned.refuse_device()
    for model in dict.fromkeys(body["cell"]["model"] for body in bodies):
        if other_files := redecode.list_weight_differences(opened_study, model):
            raise CannotTell(
                f"model {model!a}: {other_files[0]!a} since the lock ({len(other_files)} files differ); "
                "restore the locked weights"
            )
    held_out = JudgedHeldOut(study.lock, study.folder, identity) if study.has(VERDICT) else None
    decoder = redecode.Decoder(opened_study, confirmed_design(opened_study) if held_out else None, held_out, observe)
    if unregistered := [body for body in bodies if not decoder.is_registered(body)]:
        raise Tampered(f"{ReplayedLane(unregistered[0], SAME_OUTCOME)}: is not registered")
    return decoder


def _excluded_bodies(recorded: Sequence[Record]) -> list[dict[str, Any]]:
    """Return one body for each excluded problem of a model, and for each prompt that is recorded for it."""
    indices: dict[Any, int] = {}
    for index, head in enumerate(records.record_heads(recorded)):
        if head.state == "excluded":
            key = (head.phase, head.key.model, head.key.task, head.key.problem)
            indices.setdefault((*key, head.prompt, head.prompt_tokens), index)
    return [record["body"] for record in records.select_records(recorded, indices.values())]


def _check_excluded(decoder: "redecode.Decoder", excluded: Sequence[dict[str, Any]], replay_engine: Engine) -> str:
    """Rebuild the prompts of all excluded problems, which needs the tokenizer alone, and return a text about
    them; empty if there are none. Raises as `check` does.
    """
    for body in excluded:
        for name, rebuilt in decoder.prompt_fields(body).items():
            if body[name] == rebuilt:
                continue
            lane = ReplayedLane(body, SAME_OUTCOME)
            message = f"{lane}: {name}: recorded {body[name]!a}, but rebuilt {rebuilt!a}; the lane was excluded"
            if replay_engine.is_locked:
                raise Tampered(f"{message} because of a prompt that differs from the recorded one; {replay_engine}")
            raise CannotTell(
                f"{message}, perhaps because of a change in the code; {replay_engine}; check out the locked "
                "sources and run the audit there"
            )
    return f"; all {len(excluded)} prompts that were excluded are as long as recorded" if excluded else ""


def _decode_lanes(
    decoder: "redecode.Decoder",
    drawn_bodies: Iterable[dict[str, Any]],
    nonce: str,
    replay_engine: Engine,
    report: Callable[[str], None],
) -> list[ReplayedLane]:
    """Decode each drawn lane again and classify it; stop after the first one that rounding cannot explain.
    Raises as `check` does, and BadInput and Drifted for missing files.
    """
    from protocol.run import redecode

    bodies = sorted(drawn_bodies, key=lambda body: body["cell"]["model"])
    track = _track_progress(report, len(bodies))
    compares_memory = replay_engine.is_locked
    decoded = [(body, track(decoder.decode(body))) for body in bodies]
    # Reproduced lanes come first, so that all of them are counted.
    decoded.sort(key=lambda pair: lane_comparison.find_difference(*pair, compare_bytes=compares_memory) is not None)
    lanes = []
    for body, redecoded in decoded:
        perturbed = (decoder.decode(body, shake) for shake in redecode.draw_perturbations(nonce))
        lanes.append(
            ReplayedLane(body, lane_comparison.classify_lane(body, redecoded, perturbed, compare_bytes=compares_memory))
        )
        if lanes[-1].outcome.word == "beyond":
            break
    return lanes


SAME_OUTCOME = lane_comparison.Classification("same")


def confirmed_design(opened_study: Study) -> Design:
    """Return the design that confirm ran."""
    if opened_study.protocol.sweep is None:
        return opened_study.protocol
    winner = opened_study.registration.selection.content["selected"]["winner"]
    if winner not in opened_study.protocol.sweep.candidates:
        raise Tampered(f"{SELECTION}: selects {winner!a}, which is not a candidate")
    return opened_study.protocol.confirm_design(winner)


def _track_progress(report: Callable[[str], None], lanes: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a function that passes each lane through and reports the progress from time to time."""
    started = last_report = time.monotonic()
    done = 0

    def track(body: dict[str, Any]) -> dict[str, Any]:
        nonlocal last_report, done
        done, now = done + 1, time.monotonic()
        if now - last_report >= PROGRESS_SECONDS and done < lanes:
            last_report = now
            report(f"replay: {done} of {lanes} lanes, {(now - started) / done * (lanes - done):.0f} s left")
        return body

    return track


def _summarize(lanes: Sequence[ReplayedLane], replay_engine: Engine, nonce: str, count: int) -> str:
    """Return a sentence about the replayed lanes. Raises Tampered and CannotTell as `check` does."""
    outcomes = [lane.outcome.word for lane in lanes]
    same, perturbed, edges = (outcomes.count(outcome) for outcome in ("same", "shaken", "edge"))
    compared = "memory" if replay_engine.is_locked else "slots, events"  # another engine may allocate other bytes
    given = same + perturbed
    summary = f"{given} of {count} lanes drawn with the nonce {nonce} gave the recorded text, {compared} and grade"
    if outcomes[-1] == "beyond":
        if replay_engine.is_locked:
            raise Tampered(f"{lanes[-1]}; rounding cannot explain this; {summary}; {replay_engine}")
        raise CannotTell(
            f"{lanes[-1]}; rounding cannot explain this, but a change in the code may; {summary}; "
            f"{replay_engine}; check out the locked sources and run the audit there"
        )
    if edges * MAX_EDGE_FRACTION > count:
        first_edge = lanes[outcomes.index("edge")]
        raise CannotTell(
            f"{edges} of {count} lanes differ from their records, at places where rounding alone also changes "
            f"them, first {first_edge}; {summary}; {replay_engine}; run the audit on a machine like that of "
            "the lock"
        )
    if perturbed:
        summary += f", {perturbed} of them with weights perturbed by a few roundings"
    if edges:
        summary += f", {edges} differ from it at places where rounding alone also changes them"
    return f"{summary}; {replay_engine}"
