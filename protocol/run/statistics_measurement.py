"""Measure the statistics of a model on problems or on a text, and write them once."""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers

import policies
from policies import Signal
from policies.thinkv import SEGMENT, Sparsity, segment_means
from protocol import engine, tasks
from protocol.engine import observation, prefill, rotation
from protocol.engine.prefill import Prefilled
from protocol.formats import files
from protocol.formats.progress_display import Progress, ReportProgress, phase
from protocol.formats.refusals import BadInput
from protocol.models import (
    bases,
    calibration,
    calibration_paths,
    checksums,
    query_statistics,
    routes,
    sources,
    thresholds,
)
from protocol.models.load import LoadedModel, load
from protocol.run import captured_queries
from protocol.tasks import prompting
from protocol.tasks.problem import Problem

BATCH_SIZE = 16
"""Number of problems that are answered in one batch."""


class Source(NamedTuple):
    """The source of statistics: problems of a task with the model's own answers, or a plain text."""

    task: str | None
    split: str
    ids: Sequence[str]
    text: bytes


class Text(NamedTuple):
    """A text to measure. prompt: tokens of the prompt, which the model's own answer follows; all of a plain text."""

    token_ids: Sequence[int]
    prompt: int


class MeasuredValue(NamedTuple):
    """A measured value, the number of tokens, and details that the value does not contain."""

    value: Any
    tokens: int
    details: dict[str, str]


class Calibrated(NamedTuple):
    path: Path
    tokens: int
    problems: int


def calibrate(
    model: str, name: str, source: Source, *, tokens: int, max_new_tokens: int, device: str, dtype: str
) -> Calibrated:
    """tokens: the most tokens to measure; max_new_tokens: of an answer. Raises BadInput for a device that is
    not available, Drifted for damaged weights.
    """
    refuse_device(device)
    transformers.utils.logging.disable_progress_bar()
    home = files.cache_home()
    path = calibration_paths.statistics_paths(model, home)[name]
    with phase(f"loading {model}"):
        loaded = load(model, home, dtype=dtype, device=device)
    if calibration.CLASS_BY_NAME[name] in (policies.Statistics, policies.Routes):
        refuse_other_rotation(loaded)
    if calibration.CLASS_BY_NAME[name] is policies.Routes:
        require_statistics(loaded)
    prompt_digests: dict[str, str] = {}
    if source.task:
        count_tokens = prompting.counter(loaded.tokenizer)
        problems_text = (tasks.build(source.task, problem, count_tokens) for problem in interleave_levels(source.ids))
        texts = generate_traces(loaded, problems_text, max_new_tokens, prompt_digests)
        metadata = {"task": source.task, "split": source.split, "max_new_tokens": str(max_new_tokens)}
    else:
        token_ids = loaded.tokenizer(source.text.decode(), add_special_tokens=False)["input_ids"]
        texts = iter([Text(token_ids, len(token_ids))])
        metadata = {"text": hashlib.sha256(source.text).hexdigest()}
    path.parent.mkdir(parents=True, exist_ok=True)
    # Created before measuring, so that an unwritable folder is refused before the work is done.
    with tempfile.TemporaryDirectory(dir=path.parent.parent) as temporary:
        with phase(f"measuring {name}") as update:
            measured = measure(loaded, name, report_progress(texts, tokens, update), tokens)
        metadata |= measured.details | {
            "model": model,
            "weights": calibration.weights_digest(model, home),
            "dtype": dtype,
            "tokens": str(measured.tokens),
            "problems": json.dumps(prompt_digests, sort_keys=True),
        }
        written_path = Path(temporary, path.name)
        calibration.write_value(written_path, measured.value, metadata)
        os.link(written_path, path)  # unlike a rename, a link does not overwrite
    if sources.is_embedded(model):
        checksums.write_sums(path.parent)  # loading the model has just verified the other files
    return Calibrated(path, measured.tokens, len(prompt_digests))


def report_progress(texts: Iterable[Text], tokens: int, update: ReportProgress) -> Iterator[Text]:
    """Yield the texts and report the progress."""
    done = 0
    for text in texts:
        done = min(tokens, done + len(text.token_ids))
        update(Progress(f"{done:,} of at most {tokens:,} tokens", done, tokens))
        yield text


def measure(model: LoadedModel, name: str, texts: Iterable[Text], tokens: int) -> MeasuredValue:
    """Measure what is calibrated under this name on the first `tokens` tokens. Raises BadInput for fewer."""
    if calibration.CLASS_BY_NAME[name] is policies.Thresholds:
        return measure_thresholds(model, texts, tokens)
    if calibration.CLASS_BY_NAME[name] is policies.Routes:
        return measure_routes(model, texts, tokens)
    if calibration.CLASS_BY_NAME[name] is policies.Bases:
        return measure_bases(model, texts, tokens)
    value, token_count = query_statistics.measure(model.network, (text.token_ids for text in texts), tokens)
    return MeasuredValue(value, token_count, {})


def measure_thresholds(model: LoadedModel, texts: Iterable[Text], tokens: int) -> MeasuredValue:
    """Measure thresholds of the sparsity of whole segments of answers, with the full cache; one forward per text."""
    means, token_count = [], 0
    for text, prefilled_text in prefill_texts(model, texts, tokens, [Sparsity()]):
        sparse = torch.cat(prefilled_text.signals[Sparsity()])
        means.append(segment_means(sparse[:, text.prompt :], SEGMENT))
        token_count += sparse.shape[-1]
    if not means:
        raise BadInput("texts: contain no token; give at least one")
    segments = torch.cat(means, -1)
    result = thresholds.fit_thresholds(segments)
    details = {"thresholds": result.method, "segments": str(segments.shape[-1])}
    return MeasuredValue(result.thresholds, token_count, details)


def measure_routes(model: LoadedModel, texts: Iterable[Text], tokens: int) -> MeasuredValue:
    """Measure which heads capture more attention by their scores, with the full cache; one forward per text."""
    statistics, captures, token_count = require_statistics(model), [], 0
    for text, prefilled_text in prefill_texts(model, texts, tokens, [], recent=tokens):
        captures.append(
            routes.capture_attention(
                prefilled_text.recent,
                prefilled_text.keys,
                prefilled_text.scale,
                text.prompt,
                statistics,
                prefilled_text.sinks,
            )
        )
        token_count += prefilled_text.keys[0].shape[1]
    queries = sum(capture.queries for capture in captures)
    routes.check_queries(queries)
    by_score, evenly = (torch.stack(parts).sum(0) / queries for parts in list(zip(*captures, strict=True))[:2])
    details = {"queries": str(queries)} | {
        part: json.dumps([[round(head, 4) for head in layer] for layer in share.tolist()])
        for part, share in (("by_score", by_score), ("evenly", evenly))
    }
    return MeasuredValue(routes.choose_routes(by_score, evenly), token_count, details)


def measure_bases(model: LoadedModel, texts: Iterable[Text], tokens: int) -> MeasuredValue:
    """Measure bases of the values of whole texts, prompt and answer, with the full cache; one forward per text."""
    moments = None
    for _, prefilled_text in prefill_texts(model, texts, tokens, []):
        values = torch.stack(prefilled_text.values)
        moments = (moments or bases.empty_moments(values)).add(values)
    if moments is None:
        raise BadInput("texts: contain no token; give at least one")
    result = bases.fit_bases(moments)
    return MeasuredValue(
        result.bases,
        moments.tokens,
        {"variance in a quarter": f"{result.quarter:.4f}"},
    )


def prefill_texts(
    model: LoadedModel, texts: Iterable[Text], tokens: int, signals: Sequence[Signal], recent: int = 0
) -> Iterator[tuple[Text, Prefilled]]:
    """Yield the texts up to so many tokens in all, the last one cut, each with the results of its forward.
    recent: how many of its last queries are returned, at most.
    """
    remaining = tokens
    for text in texts:
        token_ids = text.token_ids[: min(remaining, model.network.config.max_position_embeddings)]
        with observation.observe_forward(model.network), torch.no_grad():
            prefilled_text = prefill.feed(model, token_ids, signals, chunk=None, recent=recent)
        yield text, prefilled_text
        remaining -= len(token_ids)
        if not remaining:
            return


def require_statistics(model: LoadedModel) -> policies.Statistics:
    """Return the statistics that the scores use with which routes are measured. Raises BadInput if there are none."""
    (statistics_signal,) = policies.get("1d-per-head").calibrated
    statistics: policies.Statistics | None = model.statistics.get(statistics_signal.name)
    if statistics is None:
        raise BadInput(
            f"model {model.name}: routes need its {statistics_signal.name!r}, which have not been measured; "
            f"run: kv-prereg calibrate {model.name} {statistics_signal.name}"
        )
    return statistics


def refuse_other_rotation(model: LoadedModel) -> None:
    """Refuse models with another rotation: scores of a mean query ahead of its keys support only one kind."""
    if not rotation.rotates_halves(model.network):
        raise BadInput(
            f"model {model.name}: does not rotate the halves of a head in every layer, as scores from these "
            "statistics assume; choose another model"
        )
    if not captured_queries.are_captured(model.network):
        raise BadInput(
            f"model {model.name}: its attention does not use the queries as measured before it, as scores "
            "from these statistics assume; choose another model"
        )


def refuse_device(device: str) -> None:
    try:
        kind, index = torch.device(device).type, torch.device(device).index or 0
    except RuntimeError:
        kind, index = "", 0
    if kind not in ("cpu", "cuda"):
        raise BadInput(f"device {device!r}: write cpu or cuda")
    if kind == "cuda" and index >= torch.cuda.device_count():
        raise BadInput(f"device {device!r}: torch does not find it here; use a machine that has it, or cpu")


def interleave_levels(ids: Iterable[str]) -> Iterator[str]:
    """Yield one id of each level, then the next one of each: the measured tokens may end before the ids do.

    The ids of a level (or depth, or subject) differ in their last part alone.
    """
    levels: dict[str, list[str]] = {}
    for problem_id in ids:
        levels.setdefault(problem_id.rpartition("/")[0], []).append(problem_id)
    return (problem_id for turn in zip_longest(*levels.values()) for problem_id in turn if problem_id is not None)


def generate_traces(
    model: LoadedModel, problems: Iterator[Problem], max_new_tokens: int, prompt_digests: dict[str, str]
) -> Iterator[Text]:
    """Yield prompts with the model's own greedy answers; the end token of an answer is left out.

    Adds the digest of each prompt to `prompt_digests`, in the form of a study's records.
    """
    full_cache = policies.get("full")
    while True:
        batch = list(islice(problems, BATCH_SIZE))
        if not batch:
            return
        requests = []
        for problem in batch:
            context, _ = prompting.render(problem, model.tokenizer, "inside")
            lane = engine.Lane(problem.id, full_cache, None, seed=0)
            requests.append(engine.Request(problem.id, engine.Prompt(tuple(context), ()), (lane,)))
        result = engine.run(model, requests, max_new_tokens=max_new_tokens)
        for request, answers in zip(requests, result.answers, strict=True):
            (outcome,) = answers.outcomes
            if isinstance(outcome, engine.LaneFailure):
                raise BadInput(f"problem {request.problem}: {outcome.reason}")
            prompt_digests[request.problem] = prompting.digest(request.prompt.context, request.prompt.query)
            text = request.prompt.context + outcome.token_ids
            yield Text(text, len(request.prompt.context))
