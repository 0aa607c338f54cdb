"""Run the whole grid of a written protocol with small models in place of its own: would it run?

    kv-prereg rehearse registrations/alpha-math500 --stand-in hf:a/b@<commit>=chain-qwen2

Every cell of probe and confirm runs once, on a few development problems; nothing is locked, no held-out
problem is opened and nothing is kept unless --out names a folder, whose answers `kv-prereg show` then shows.
Prints how often each arm was right and its first three answers, where the full cache would not pass the
gate, where an arm evicted nothing, failures with their reasons, seconds, peak memory, how long probe and
confirm would take (over ten minutes: in batches as wide as registered), arms that keep the same slots, and the
differences that a study of the registered size can see. A device that is not here is replaced by the CPU in float32.

With --on MACHINE nothing is run: hours, memory and cost are worked out from the shapes of the models, the
lanes, and constants of the machine (docs/machines.md); what of these is assumed is said. MACHINE is one that
is known, with how many of it before an x (8xA100-80G, 2xH100-80G, H200, L40S, A10G, 4090, CPU), or a TOML or
JSON file of constants. How long it takes here, a rehearsal itself says.

Exit status: 0 every lane ran; 2 bad input, or what registering would refuse; 3 some lanes failed.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.judgement import arm_text, eviction_counts, full_cache_use, same_retained_slots
from protocol import command, register, tasks
from protocol.evidence import citations
from protocol.evidence.registration import PROTOCOL, Registration
from protocol.formats import files, progress_display
from protocol.formats.progress_display import phase
from protocol.formats.refusals import BadInput
from protocol.formats.terminal import line_width
from protocol.formats.vocabulary import CURRENT_JUDGING
from protocol.instruments.planning import machines
from protocol.lock import lock
from protocol.models import sources
from protocol.plan import toml_reader
from protocol.plan.design import Design
from protocol.preflight import development_results, neighbours, written_study
from protocol.preflight.previously_opened import find_previously_opened
from protocol.workspace import imports
from protocol.workspace.planned_study import PlannedStudy, read_decoded_protocol

if TYPE_CHECKING:
    from protocol.preflight.rehearsal import Rehearsal


SHOWN_ANSWERS = 3  # of an arm
CELL_FIELDS = ("phase", "model", "task", "budget", "arm")


class Options(command.Options):
    stand_in: list[str]
    problems: int
    tokens: int | None
    out: Path | None
    on: str | None
    price: float | None
    shape: list[str]
    prompt_tokens: int | None
    answer_tokens: int | None


def main(argv: list[str] | None = None, *, is_typed: bool = False) -> int:
    """is_typed: run from a shell; then refuse import paths that registering would refuse."""
    parser = command.make_parser("rehearse", __doc__)
    command.add_folder(parser)
    parser.add_argument(
        "--stand-in", action="append", default=[], metavar="MODEL=STAND-IN", help="load STAND-IN in place of MODEL"
    )
    parser.add_argument("--problems", type=int, default=2, help="development problems a task (2)")
    parser.add_argument("--tokens", type=int, help="most new tokens a lane (as registered)")
    parser.add_argument("--out", type=Path, help="an empty folder in which to keep the records")
    planning = parser.add_argument_group("print the plan without running anything")
    planning.add_argument("--on", metavar="MACHINE", help="estimate hours, memory and cost there")
    planning.add_argument("--price", type=float, help="price of the whole machine an hour, in any currency")
    planning.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="MODEL=FILE",
        help="config.json of a model that is not on this machine",
    )
    planning.add_argument("--prompt-tokens", type=int, metavar="N", help="tokens of a prompt (default: counted)")
    planning.add_argument(
        "--answer-tokens",
        type=int,
        metavar="N",
        help="tokens of an answer (default: as in the probe, or half of the limit)",
    )

    def rehearse_or_estimate(args: Options) -> int:
        with toml_reader.locate_refusals(args.folder / PROTOCOL):
            return act(args, is_typed) if args.on is None else estimate_on_machine(args)

    return command.run(parser, argv, Options(), rehearse_or_estimate)


def estimate_on_machine(args: Options) -> int:
    assert args.on is not None
    if args.stand_in or args.out is not None or args.tokens is not None:
        raise BadInput("--on: runs nothing, so it cannot be combined with --stand-in, --tokens or --out")
    if args.price is not None and not 0 < args.price < math.inf:
        raise BadInput(f"--price {args.price:g}: write a number above 0")
    for name, tokens in (("--prompt-tokens", args.prompt_tokens), ("--answer-tokens", args.answer_tokens)):
        if tokens is not None and not 1 <= tokens <= 1 << 24:
            raise BadInput(f"{name} {tokens}: write 1 to {1 << 24}")
    machines.find_machine(args.on)  # raises BadInput before torch is loaded
    with phase(f"reading {PROTOCOL} and its policies"):
        protocol = read_decoded_protocol(args.folder)
    shapes = {
        model: Path(file) for model, file in (_parse_pair(argument, protocol, "--shape") for argument in args.shape)
    }
    with phase("loading torch"):
        from protocol.instruments.planning import estimate, workload
    inputs = workload.UserInputs(shapes, args.prompt_tokens, args.answer_tokens)
    result = estimate.estimate_study(
        PlannedStudy(protocol, files.cache_home(), folder=args.folder), args.on, inputs, args.price
    )
    command.print_result(args.json, estimate.format_estimate(result), estimate.json_values(result))
    return 0


def act(args: Options, is_typed: bool) -> int:
    if args.price is not None or args.shape or args.prompt_tokens or args.answer_tokens:
        raise BadInput("--price, --shape, --prompt-tokens and --answer-tokens: are allowed only with --on")
    if args.problems < 1 or (args.tokens is not None and args.tokens < 1):
        raise BadInput("--problems and --tokens: write whole numbers of at least 1")
    if args.out is not None and args.out.exists() and any(args.out.iterdir()):
        raise BadInput(f"--out {args.out}: is not empty; name a new folder")
    if is_typed:
        imports.refuse_uncovered()
    _, written, items = written_study.read_written_study(
        args.folder,
        files.cache_home(),
        opens_held_out=False,
        is_decoded=True,
        is_older=lambda data: Registration(args.folder).has(lock.NAME),  # locks older than gates keep their protocol
    )
    protocol = written.protocol
    citations.open_cited(args.folder, protocol.content())
    models = choose_stand_ins(protocol, args.stand_in)
    written._replace(protocol=written_study.with_stand_ins(protocol, models)).files()  # refuses missing files
    # Imported late: torch and scipy are slow, and --help and the refusals above do not need them.
    with phase("loading torch"):
        from analysis.simulation import confirm_power
        from policies.structure import structure
        from protocol.preflight import layer_support, rehearsal

    design = rehearsal.fit_to_machine(protocol, args.tokens)
    planned = PlannedStudy(design, files.cache_home(), folder=args.folder)
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.out or Path(temporary)
        rehearsed = rehearsal.rehearse(planned, models, items, args.problems, folder)
    confirm_bodies, content = rehearsed.bodies["confirm"], protocol.content()
    opened = find_previously_opened(args.folder, items, content)
    fresh_lock = {
        "judging": CURRENT_JUDGING,
        "items": items,
        "data": tasks.data_digests(planned.tasks),
        "opened": opened,
    }
    facts = {
        "protocol": {"content": content},
        "policies": {arm.name: structure(protocol.policy(arm.name)) for arm in protocol.arms},
        "asked": {arm.name: protocol.extra_prompt(arm.name) for arm in protocol.arms},
    }
    if args.out is not None:
        from protocol.instruments.show import rehearsal_folder

        rehearsal_folder.write(args.out, args.folder, facts, items)
    unlike = arm_text.altered_arms(facts)
    lanes = [body["cell"] | {"problem": body["problem"], "grade": body["grade"]} for body in confirm_bodies]
    discordance = confirm_power.discordance_of_lanes(lanes, content["decision"])
    measured = [round(discordance, 3)] if discordance else []
    values = summarize(rehearsed) | {
        "could_be_native": layer_support.could_be_native(written),  # as registered: no stand-in, on its own device
        "gate": development_results.gate_warnings(protocol, confirm_bodies),
        "opened": register.format_opened(fresh_lock),
        "power": confirm_power.describe_power(content, rehearsed.detectable, items, measured),
        "charge": neighbours.describe_charge(content),
        "never_evicted": eviction_counts.eviction_warnings(eviction_counts.count_arms(confirm_bodies, content), unlike),
    }
    next_step = f"next: kv-prereg show {args.out}" if args.out else "--out FOLDER keeps every answer for kv-prereg show"
    instrument_lines = [line for _, lines in rehearsed.instruments for line in lines]
    answers = [*format_answers(rehearsed.bodies), next_step]
    text = format_rehearsal(values, models, args.tokens, answers, instrument_lines)
    command.print_result(args.json, text, values)
    return 3 if values["failed"] else 0


def choose_stand_ins(protocol: Design, arguments: Sequence[str]) -> dict[str, str]:
    """Return the model to load for each registered one: its stand-in from "MODEL=STAND-IN", else itself.

    Raises BadInput for one that is not here.
    """
    replacements = dict(_parse_pair(text, protocol, "--stand-in") for text in arguments)
    for stand_in in replacements.values():
        sources.locate(stand_in, files.cache_home())
    return {model: replacements.get(model, model) for model in protocol.models}


def _parse_pair(text: str, protocol: Design, option: str) -> tuple[str, str]:
    model, equals, other = text.partition("=")
    if not equals or not other or model not in protocol.models:
        value = "STAND-IN" if option == "--stand-in" else "FILE"
        raise BadInput(f"{option} {text}: write MODEL={value} with MODEL one of {', '.join(protocol.models)}")
    return model, other


def summarize(rehearsal: Rehearsal) -> dict[str, Any]:
    by_lane = {
        (*body["cell"].values(), body["problem"]): body for bodies in rehearsal.bodies.values() for body in bodies
    }
    bodies = [*by_lane.values()]
    return {
        "arms": [
            {**dict(zip(CELL_FIELDS, key, strict=True)), **counts}
            for key, counts in count_cells(rehearsal.bodies).items()
        ],
        "failed": sum(body["state"] == "failed" for body in bodies),
        "reasons": Counter(body["reason"] for body in bodies if body["state"] == "failed").most_common(),
        "lanes": rehearsal.lanes,
        "tokens": sum(body["tokens"] for body in bodies),
        "seconds": round(rehearsal.seconds, 1),
        "peak_bytes": rehearsal.peak_bytes,
        "whole": {
            name: {
                "lanes": lanes,
                "seconds": round(rehearsal.expected_time[name].seconds),
                "most_seconds": round(rehearsal.expected_time[name].max_seconds),
            }
            for name, lanes in rehearsal.registered_lanes.items()
        },
        "full_use": rehearsal.full_use,
        "same_kept": rehearsal.same_kept,
    } | {name: value for values, _ in rehearsal.instruments for name, value in values.items()}


def count_cells(bodies: dict[str, list[dict[str, Any]]]) -> dict[tuple[str, ...], dict[str, int]]:
    """Return the counts of `development` for each cell, seeds pooled, in running order; keys: CELL_FIELDS."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for name, phase_bodies in bodies.items():
        for body in phase_bodies:
            cell = body["cell"]
            key = (name, *(cell[field] for field in CELL_FIELDS[1:]))
            groups.setdefault(key, []).append(body)
    return {key: development_results.count_answers(group) for key, group in groups.items()}


def merge_rows(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of the table: one for a cell of probe and confirmation that was decoded once for both."""
    merged: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        key = tuple(value for name, value in row.items() if name != "phase")
        merged[key] = row | {"phase": "both"} if key in merged else row
    return list(merged.values())


def format_answers(bodies: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Return the first answers of each arm, in one line each, with their grades."""
    by_arm: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {}
    for body in (body for phase_bodies in bodies.values() for body in phase_bodies if body["state"] == "ok"):
        by_arm.setdefault(body["cell"]["arm"], {})[(*body["cell"].values(), body["problem"])] = body
    lines = []
    for arm, answers in by_arm.items():
        was_fed = any("divergence" in body for body in answers.values())
        lines += ["", f"{arm} was fed the full cache's text; its agreement:" if was_fed else f"{arm} answered:"]
        for body in [*answers.values()][:SHOWN_ANSWERS]:
            grade = f"{body['grade']} {body.get('score', '')}".rstrip()
            label = f"  {body['problem']}, budget {body['cell']['budget']}: {grade}: "
            text = " ".join(body["text"].split())
            room = max(20, line_width() - len(label))
            lines.append(label + (text if len(text) <= room else f"{text[: room - 1]}…"))
    return [*lines, ""]


def format_rehearsal(
    values: dict[str, Any],
    models: dict[str, str],
    tokens: int | None,
    answers: Sequence[str] = (),
    instrument_lines: Sequence[str] = (),
) -> str:
    lines = ["rehearsed on development problems, nothing locked", ""]
    lines += [f"{model} played by {stand_in}" for model, stand_in in models.items() if model != stand_in]
    width = max([5, *(len(row["budget"]) for row in values["arms"])])
    for row in merge_rows(values["arms"]):
        label = f"{row['phase']:<8} {row['model']}  {row['task']}  {row['budget']:>{width}}  {row['arm']:<24}"
        lines.append(f"{label} {development_results.format_shares(row)}")
    lines += [f"{count} failed: {reason}" for reason, count in values["reasons"]]
    lines += answers
    if any(model != stand_in for model, stand_in in models.items()):
        lines.append("these answers come from stand-in models and say nothing about the registered models")
    if tokens is not None:
        lines.append(f"lanes were stopped after {tokens} tokens, so more of them are truncated than in the study")
    lines += values["opened"] + values["gate"] + values["never_evicted"] + values["charge"]
    speed = values["tokens"] / values["seconds"] if values["seconds"] else 0.0
    lines += [
        "",
        f"{values['lanes']} lanes, {values['failed']} failed, {values['tokens']} tokens in "
        f"{values['seconds']:.1f} s ({speed:.0f} a second), "
        f"peak memory {values['peak_bytes'] / 2**30:.1f} GiB",
    ]
    lines += [
        f"decoding the whole {name}: {estimate['lanes']:,} lanes, about "
        f"{progress_display.format_duration(estimate['seconds'])} with answers as long as here, "
        f"{progress_display.format_duration(estimate['most_seconds'])} with all answers as long as "
        f"{'here' if tokens else 'they'} may be"
        for name, estimate in values["whole"].items()
    ] + ["checks, hashing and drawings take additional time: in a small study more than decoding"] * bool(
        values["whole"]
    )
    if values["could_be_native"]:
        lines.append(
            'generation.kernel = "native" could decode every model and arm here, in about half of the time, and no '
            "answer would depend on what is decoded with it"
        )
    lines += instrument_lines
    lines += full_cache_use.describe_full_use(values["full_use"])
    lines += same_retained_slots.describe_pairs(values["same_kept"])
    lines += values["power"]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(is_typed=True))
