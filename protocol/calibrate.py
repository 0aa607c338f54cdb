"""Measure the statistics of a model that some policies score with.

    python -m protocol.calibrate chain-llama text --task chain
    python -m protocol.calibrate chain-llama traces --task chain --split dev
    python -m protocol.calibrate path:weights text --text corpus.txt

With --task, the prompt of a problem and the answer that the model itself gives with its full cache; with
--text, a plain text. --split calibration are the problems that a task sets aside for this, dev those for
development. Problems held out for confirmation are never read. A file of statistics is written once.

Exit status: 0 done; 2 bad input; 3 drifted.
"""

import argparse
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, zip_longest
from pathlib import Path

import torch
import transformers

import policies
import splits
from protocol import command, engine, tasks
from protocol.evidence.refusals import BadInput
from protocol.models import calibration, sources, stored
from protocol.models.load import LoadedModel, load
from protocol.tasks import prompting
from protocol.tasks.problem import Problem

AT_ONCE = 16
"""Problems that are answered in one batch."""


def main(argv: list[str] | None = None) -> int:
    made = command.parser("protocol.calibrate", __doc__)
    made.add_argument("model", help="a source, e.g. chain-llama")
    made.add_argument("name", choices=calibration.NAMES, help="the name that policies ask for")
    given = made.add_mutually_exclusive_group(required=True)
    given.add_argument("--task", help="measure on problems of this task and the model's own answers")
    given.add_argument("--text", type=Path, help="measure on this file")
    made.add_argument("--split", default="calibration", help="calibration (default) or dev")
    made.add_argument("--tokens", type=int, default=32768, help="how many tokens, at most")
    made.add_argument("--max-new-tokens", type=int, default=512, help="the longest answer")
    made.add_argument("--device", default="cpu")
    made.add_argument("--dtype", default="float32")
    args = made.parse_args(argv)
    return command.answer(args.json, lambda: calibrate(args))


def calibrate(args: argparse.Namespace) -> int:
    if args.tokens < 1 or args.max_new_tokens < 1:
        raise BadInput("tokens and max-new-tokens: give at least 1")
    refuse_device(args.device)
    ids = problems(args.task, args.split) if args.task else []
    data = content(args.text) if args.text else b""
    transformers.utils.logging.disable_progress_bar()
    home = sources.home()
    path = calibration.statistics_paths(args.model, home)[args.name]
    if path.exists():
        raise BadInput(f"{path}: exists and is written once; {anew(args.model)}")
    model = load(args.model, home, dtype=args.dtype, device=args.device)
    used: dict[str, str] = {}
    if args.task:
        count = prompting.counter(model.tokenizer)
        built = (tasks.build(args.task, problem, count) for problem in in_turn(ids))
        texts = traces(model, built, args.max_new_tokens, used)
        about = {"task": args.task, "split": args.split, "max_new_tokens": str(args.max_new_tokens)}
    else:
        texts = iter([model.tokenizer(data.decode(), add_special_tokens=False)["input_ids"]])
        about = {"text": hashlib.sha256(data).hexdigest()}
    path.parent.mkdir(parents=True, exist_ok=True)
    # Made before measuring, so that a folder that cannot be written is refused before the work is done.
    with tempfile.TemporaryDirectory(dir=path.parent.parent) as beside:
        found, counted = calibration.measure(model.network, texts, args.tokens)
        about |= {
            "model": args.model,
            "weights": calibration.weights_digest(args.model, home),
            "dtype": args.dtype,
            "tokens": str(counted),
            "problems": json.dumps(used, sort_keys=True),
        }
        whole = Path(beside, path.name)
        calibration.write(whole, found, about)
        os.link(whole, path)  # unlike a rename, a link does not overwrite
    if embedded(args.model):
        stored.write_sums(path.parent)  # loading the model has just verified the other files
    values = {"path": str(path), "tokens": counted, "problems": len(used)}
    command.say(args.json, f"{path}: {counted} tokens, {len(used)} problems", values)
    return 0


def embedded(source: str) -> bool:
    return isinstance(sources.parse(source), sources.Embedded)


def anew(source: str) -> str:
    """What to do about statistics that are there; also after a kill between writing them and their sums."""
    listed = f" and its line in {stored.SUMS} out" if embedded(source) else ""
    return f"move it away{listed} to measure anew"


def refuse_device(device: str) -> None:
    try:
        kind, index = torch.device(device).type, torch.device(device).index or 0
    except RuntimeError:
        kind, index = "", 0
    if kind not in ("cpu", "cuda"):
        raise BadInput(f"device {device!r}: write cpu or cuda")
    if kind == "cuda" and index >= torch.cuda.device_count():
        raise BadInput(f"device {device!r}: torch does not find it here; use a machine that has it, or cpu")


def in_turn(ids: Iterable[str]) -> Iterator[str]:
    """One id of each level, then the next one of each: the measured tokens may end before the ids do.

    Of a level (or depth, or subject) are the ids that differ in their last part alone.
    """
    levels: dict[str, list[str]] = {}
    for one in ids:
        levels.setdefault(one.rpartition("/")[0], []).append(one)
    return (one for turn in zip_longest(*levels.values()) for one in turn if one is not None)


def problems(task: str, split: str) -> Sequence[str]:
    """Ids that may be looked at."""
    known = tasks.get(task)
    if split == "dev":
        return splits.load(task).dev
    if split != "calibration":
        raise BadInput(
            f"split {split!r}: statistics come from calibration or dev problems; write one of them"
        )
    own = getattr(known, "calibration_ids", None)
    if own is None:
        raise BadInput(f"task {task!r}: sets no calibration problems aside; write --split dev")
    ids: Sequence[str] = own()
    return ids


def traces(
    model: LoadedModel, built: Iterator[Problem], max_new_tokens: int, used: dict[str, str]
) -> Iterator[tuple[int, ...]]:
    """Prompts with the model's own greedy answers, as they are asked for; the end of an answer is left out.

    `used` gets the digest of each prompt, as the records of a study have it.
    """
    full = policies.get("full")
    while True:
        batch = list(islice(built, AT_ONCE))
        if not batch:
            return
        requests = []
        for problem in batch:
            context, _ = prompting.render(problem, model.tokenizer, "inside")
            lane = engine.Lane(problem.id, full, None, seed=0)
            requests.append(engine.Request(problem.id, engine.Prompt(tuple(context), ()), (lane,)))
        ran = engine.run(model, requests, max_new_tokens=max_new_tokens)
        for request, answers in zip(requests, ran.answers, strict=True):
            (outcome,) = answers.outcomes
            if isinstance(outcome, engine.LaneFailure):
                raise BadInput(f"problem {request.problem}: {outcome.reason}")
            text = request.prompt.context + outcome.token_ids
            used[request.problem] = prompting.digest(*request.prompt)
            yield text


def content(path: Path) -> bytes:
    try:
        data = path.read_bytes()
        data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"text {path}: is no readable UTF-8 text: {error}") from error
    return data


if __name__ == "__main__":
    sys.exit(main())
