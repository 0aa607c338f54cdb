"""An arm of an outside study that OpenVINO GenAI decodes, with its own precision of the cache and its own eviction.

    kv-prereg openvino problems.jsonl --released outside/released.json --precision f16 --out out/f16.csv
    kv-prereg openvino problems.jsonl --released outside/released.json --precision u8 --out out/u8.csv
    kv-prereg openvino problems.jsonl --released outside/released.json --precision f16 --keep 448 --out out/evicts.csv

Problems are lines of a task file (docs/tasks.md), and prompts are the tokens that this project's engine is fed.
A prompt is decoded alone, greedily, so that the pool of the cache holds its blocks and nothing else: after
every step the bytes in use are read. The file has a row for each released problem: its score, question and
answer, its tokens, and the mean and the last of these bytes. `kv-prereg confirm` reads id, score and
question, and keeps the file as it is. Which slots OpenVINO keeps it does not say: no eviction is replayed.

Each row is on disk as soon as it is made, in OUT.unfinished. A run that was stopped goes on after its last row
when the same command is typed again; the CSV is written once, at the end.

--keep: tokens that a prompt's cache is cut to, in blocks of 32, at the second new token; the first and the
last 32 stay, and the block that is being filled comes on top. --scores: how OpenVINO sums the attention that a
token received over steps; norm_sum divides it by how long the token has been there.

Needs `pip install '.[run,openvino]'`. Exit status: 0 done; 2 bad input; 3 the model's file drifted.
"""

import csv
import io
import sys
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol import command
from protocol.adapters import unfinished_rows
from protocol.adapters.unfinished_rows import UnfinishedRows
from protocol.formats import files, strict_json
from protocol.formats.progress_display import Progress, note, phase
from protocol.formats.refusals import BadInput

if TYPE_CHECKING:
    from protocol.tasks.file_task import FileTask
    from protocol.tasks.problem import Problem

BLOCK = 32  # tokens of a block of OpenVINO's cache on a CPU
PRECISIONS = ("f32", "f16", "bf16", "u8", "u4")
SCORES = ("sum", "norm_sum")
COLUMNS = ("id", "score", "question", "answer", "prompt_tokens", "new_tokens", "mean_cache_bytes", "last_cache_bytes")
EXTRA = "openvino-genai: is not installed; run: pip install '.[run,openvino]'"


class Options(command.Options):
    problems: Path
    released: Path
    out: Path
    grader: str
    model: str
    precision: str
    keep: int | None
    scores: str
    max_new_tokens: int
    threads: int


class Answer(NamedTuple):
    """Tokens with the stop token, and the bytes of the cache in use after each step."""

    token_ids: list[int]
    cache_bytes: list[int]


def main(argv: list[str] | None = None) -> int:
    parser = command.make_parser("openvino", __doc__)
    parser.add_argument(
        "problems", type=Path, help="the task file, whose lines have id, context, question, answer, prefix"
    )
    parser.add_argument("--released", type=Path, required=True, help="the outside/released.json of the claimed study")
    parser.add_argument("--out", type=Path, required=True, help="the CSV file to write, named after the arm")
    parser.add_argument("--grader", default="exact", help="the grader of the answers (default: exact)")
    parser.add_argument("--model", default="smollm2-135m", help="a model stored as a GGUF file (default: smollm2-135m)")
    parser.add_argument("--precision", choices=PRECISIONS, required=True, help="number format of keys and values")
    parser.add_argument(
        "--keep", type=int, metavar="TOKENS", help="evict down to this many tokens; without it nothing is evicted"
    )
    parser.add_argument("--scores", choices=SCORES, default="norm_sum", help="the score by which --keep ranks tokens")
    parser.add_argument("--max-new-tokens", type=int, default=12)
    parser.add_argument("--threads", type=int, default=1)
    return command.run(parser, argv, Options(), act)


def act(args: Options) -> int:
    if args.keep is not None and (args.keep % BLOCK or args.keep <= 2 * BLOCK):
        raise BadInput(f"--keep {args.keep}: give a multiple of {BLOCK} above {2 * BLOCK}")
    if args.max_new_tokens < 1 or args.threads < 1:
        raise BadInput("--max-new-tokens and --threads: give at least 1")
    if args.out.exists():
        raise BadInput(f"{args.out}: exists already and is never overwritten; name another file")
    from protocol.tasks.file_task import FileTask

    task = FileTask("problems", args.problems, args.grader)
    names = read_released(args.released, task.ids())
    with unfinished_rows.open_rows(args.out, list_settings(args), names) as unfinished:
        if unfinished.rows:
            note(f"{args.out}: continues after {len(unfinished.rows)} of {len(names)} problems")
        append_missing(args, task, names, unfinished)
        write_rows(args.out, unfinished.rows)
    rows = unfinished.rows
    held = [int(row["mean_cache_bytes"]) for row in rows]
    right = sum(row["score"] == "1" for row in rows)
    line = f"{args.out}: {right} of {len(rows)} right, {sum(held) / len(held) / 1e6:.3f} MB of cache on average"
    command.print_result(args.json, line, {"right": right, "problems": len(rows), "mean_cache_bytes": held})
    return 0


def append_missing(args: Options, task: "FileTask", names: Sequence[str], unfinished: UnfinishedRows) -> None:
    """Decode the problems that have no row yet, in their order."""
    # Imported late: both are slow, and --help and refusals need neither.
    with phase("loading transformers and OpenVINO"):
        from protocol import grading
        from protocol.models import fetch, load
        from protocol.tasks import prompting
        from protocol.tasks.file_task import as_context

        pipeline = open_pipeline(fetch.fetch_gguf(args.model, files.cache_home()), args)
        tokenizer = load.tokenizer(args.model, files.cache_home())
        counter = prompting.counter(tokenizer)
    start, first = time.monotonic(), len(unfinished.rows)
    with as_context(grading.get_grader(args.grader)) as grader, phase("decoding") as update:
        for number in range(first, len(names)):
            seconds_left = (time.monotonic() - start) / max(1, number - first) * (len(names) - number)
            words = f"{number} of {len(names)} problems, {args.out.stem}"
            update(Progress(words, number, len(names), seconds_left if number > first else None))
            problem = task.build(names[number], counter)
            prompt, _ = prompting.render(problem, tokenizer, "inside")
            answer = decode(pipeline, number, prompt, args.max_new_tokens, tokenizer.eos_token_id)
            text = tokenizer.decode(answer.token_ids, skip_special_tokens=True)
            grade = grading.best_grade(grader.grade, problem.gold, problem.prefix + text)
            unfinished.append(format_row(problem, text, grade, len(prompt), answer))


def list_settings(args: Options) -> dict[str, str]:
    """Return what every row depends on, by the names of the options."""
    names = ("grader", "model", "precision", "keep", "scores", "max_new_tokens", "threads")
    settings = {f"--{name.replace('_', '-')}": str(vars(args)[name]) for name in names}
    digests = {"problem file": files.sha256(args.problems), "--released": files.sha256(args.released)}
    try:
        engine = metadata.version("openvino-genai")
    except metadata.PackageNotFoundError:
        engine = ""
    return {**digests, **settings, "openvino-genai": engine}


def read_released(path: Path, known: Sequence[str]) -> list[str]:
    """Return the ids that released.json names, of its only task. Raises BadInput where the file has others."""
    try:
        (ids,) = strict_json.parse(files.read(path)).values()
        names = [str(name) for name in ids]
    except (ValueError, AttributeError, TypeError):
        names = []
    if not names:
        raise BadInput(f"{path}: is not a released.json with one task; use the one that kv-prereg confirm wrote")
    if missing := sorted({*names} - {*known}):
        raise BadInput(
            f"--released: {len(missing)} of its ids are not in the problem file, for example {missing[0]!a}; name "
            "the file that the study's pool was made from"
        )
    return names


def open_pipeline(gguf: Path, settings: Options) -> Any:
    """Return OpenVINO's pipeline of continuous batches on a CPU, which computes in float32."""
    try:
        import openvino_genai as genai
    except ImportError:
        raise BadInput(EXTRA) from None
    scheduler = genai.SchedulerConfig()
    scheduler.cache_size = 1  # GB of the pool, used or not
    scheduler.enable_prefix_caching = False  # or blocks of an earlier prompt would stay in use
    scheduler.max_num_batched_tokens = 2**15  # a prompt in one piece
    if settings.keep is not None:
        mode = getattr(genai.AggregationMode, settings.scores.upper())
        scheduler.use_cache_eviction = True
        scheduler.cache_eviction_config = genai.CacheEvictionConfig(BLOCK, BLOCK, settings.keep, mode)
    properties = {
        "KV_CACHE_PRECISION": settings.precision,
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": settings.threads,
    }
    return genai.ContinuousBatchingPipeline(str(gguf), scheduler, "CPU", properties)


def decode(pipeline: Any, number: int, prompt: Sequence[int], new_tokens: int, stop_id: int) -> Answer:
    """Decode one prompt greedily, and read after each step how many bytes of the pool are in use."""
    import numpy as np
    import openvino
    import openvino_genai as genai

    config = genai.GenerationConfig()
    config.max_new_tokens, config.do_sample, config.eos_token_id = new_tokens, False, stop_id
    handle = pipeline.add_request(number, openvino.Tensor(np.array([prompt], dtype=np.int64)), config)
    in_use = []
    while pipeline.has_non_finished_requests():
        pipeline.step()
        metrics = pipeline.get_metrics()
        in_use.append(round(metrics.cache_usage / 100 * metrics.kv_cache_size_in_bytes))
    (output,) = handle.read_all()
    return Answer(list(output.generated_ids), in_use)


def format_row(problem: "Problem", text: str, grade: Any, prompt_tokens: int, answer: Answer) -> dict[str, str]:
    """Return a row of the CSV. A text that could not be graded has no score: its lane failed."""
    held = answer.cache_bytes
    return {
        "id": problem.id,
        "score": grade.score or ("" if grade.status == "error" else str(int(grade.status == "correct"))),
        "question": problem.question or problem.context,
        "answer": text,
        "prompt_tokens": str(prompt_tokens),
        "new_tokens": str(len(answer.token_ids)),
        "mean_cache_bytes": str(round(sum(held) / len(held))),
        "last_cache_bytes": str(held[-1]),
    }


def write_rows(path: Path, rows: Sequence[dict[str, str]]) -> None:
    files.make_folder(path.parent)
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    files.create(path, text.getvalue().encode())


if __name__ == "__main__":
    sys.exit(main())
