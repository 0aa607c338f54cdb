"""Measure the statistics of a model that some policies read.

    kv-prereg calibrate chain-llama text --task chain
    kv-prereg calibrate chain-llama traces --task chain --split dev
    kv-prereg calibrate chain-llama thoughts --task chain
    kv-prereg calibrate chain-llama bases --task chain
    kv-prereg calibrate chain-llama routes --task chain
    kv-prereg calibrate path:weights text --text corpus.txt

text and traces are statistics of the queries; traces takes them along the model's own answers. thoughts are
thresholds for the sparsity of attention in the answers. bases are, for each layer and head, the directions
in which the values vary most. routes say which heads keep their top-scored slots; the others keep evenly
spaced slots. With --task, the model reads the prompt of a problem and its own answer with the full cache;
with --text, it reads a plain text, which has no answers. --split calibration uses the problems that a task
sets aside for calibration; dev uses the development problems. Problems held out for confirmation are never
read. A file of statistics is written once.

Exit status: 0 done; 2 bad input; 3 drifted.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import splits
from protocol import command, tasks
from protocol.formats import files
from protocol.formats.progress_display import phase
from protocol.formats.refusals import BadInput
from protocol.formats.suggestions import explain_os_error
from protocol.models import calibration_paths, checksums, sources

DTYPES = ("float32", "bfloat16", "float16")  # those of `protocol.models.load`, which imports torch


class Options(argparse.Namespace):
    json: bool
    model: str
    name: str
    task: str | None
    text: Path | None
    split: str
    tokens: int
    max_new_tokens: int
    device: str
    dtype: str


def main(argv: list[str] | None = None) -> int:
    parser = command.make_parser("calibrate", __doc__)
    parser.add_argument("model", help="a source, e.g. chain-llama")
    parser.add_argument(
        "name", choices=calibration_paths.NAMES, help="the statistics to measure, by the name in the policies' settings"
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--task", help="measure on problems of this task and on the model's own answers to them")
    source.add_argument("--text", type=Path, help="measure on this file")
    parser.add_argument("--split", default="calibration", help="calibration (default) or dev")
    parser.add_argument("--tokens", type=int, default=32768, help="the most tokens to measure")
    parser.add_argument("--max-new-tokens", type=int, default=512, help="the most new tokens of an answer")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    return command.run(parser, argv, Options(), act)


def act(args: Options) -> int:
    if args.tokens < 1 or args.max_new_tokens < 1:
        raise BadInput("--tokens and --max-new-tokens: give at least 1")
    if args.text and args.name in calibration_paths.MEASURED_ON_ANSWERS:
        raise BadInput(f"--text: {args.name} can only be measured on answers of the model; give --task instead")
    ids = select_problems(args.task, args.split) if args.task else []
    data = read_corpus(args.text) if args.text else b""
    path = calibration_paths.statistics_paths(args.model, files.cache_home())[args.name]
    if path.exists():
        raise BadInput(f"{path}: exists already and is never overwritten; {advise_remeasuring(args.model)}")
    sources.locate(args.model, files.cache_home())  # raises BadInput if the model is not fetched
    if args.dtype not in DTYPES:
        raise BadInput(f"dtype {args.dtype!r}: not one of {', '.join(DTYPES)}")
    # Imported late: torch is slow, and --help and the refusals above do not need it.
    with phase("loading torch"):
        from protocol.run import statistics_measurement

    result = statistics_measurement.calibrate(
        args.model,
        args.name,
        statistics_measurement.Source(args.task, args.split, ids, data),
        tokens=args.tokens,
        max_new_tokens=args.max_new_tokens,
        device=args.device,
        dtype=args.dtype,
    )
    values = {"path": str(result.path), "tokens": result.tokens, "problems": result.problems}
    line = f"{result.path}: {result.tokens} tokens, {result.problems} problems"
    command.print_result(args.json, line, values)
    return 0


def advise_remeasuring(source: str) -> str:
    """Return how to measure statistics again that exist, including after a run killed before their sums."""
    sums_note = f" and remove its line from {checksums.SUMS_FILE}" if sources.is_embedded(source) else ""
    return f"move it away{sums_note} to measure again"


def select_problems(task: str, split: str) -> Sequence[str]:
    """Return the ids of problems that may be used: calibration or development, never held-out ones."""
    definition = tasks.get(task)
    if split == "dev":
        return splits.load(task).dev
    if split != "calibration":
        raise BadInput(f"split {split!r}: statistics come from calibration or dev problems; write one of them")
    list_ids = getattr(definition, "calibration_ids", None)
    if list_ids is None:
        raise BadInput(f"task {task!r}: has no calibration problems; write --split dev")
    ids: Sequence[str] = list_ids()
    return ids


def read_corpus(path: Path) -> bytes:
    try:
        data = path.read_bytes()
        data.decode()
    except (OSError, UnicodeDecodeError) as error:
        message = explain_os_error(error) if isinstance(error, OSError) else f"{path}: is not UTF-8; save it as UTF-8"
        raise BadInput(f"--text {message}") from error
    return data


if __name__ == "__main__":
    sys.exit(main())
