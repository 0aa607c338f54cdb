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
from analysis.output.phases import At, Tell, phase
from policies import Signal
from policies.thinkv import SEGMENT, Sparsity, segment_means
from protocol import engine, tasks
from protocol.engine import observation, prefill, rotation
from protocol.engine.prefill import Prefilled
from protocol.evidence.refusals import BadInput
from protocol.models import bases, calibration, query_statistics, routes, sources, stored, thresholds
from protocol.models.load import LoadedModel, load
from protocol.tasks import prompting
from protocol.tasks.problem import Problem

__all__ = ["Measured", "Source", "calibrate"]

AT_ONCE = 16
"""Number of problems that are answered in one batch."""


class Source(NamedTuple):
    """The source of statistics: problems of a task with the model's own answers, or a plain text."""

    task: str | None
    split: str
    ids: Sequence[str]
    text: bytes


class Text(NamedTuple):
    """A text to measure. prompt: how many of its tokens are the prompt, which the model's own answer follows;
    all of a plain text.
    """

    token_ids: Sequence[int]
    prompt: int


class Found(NamedTuple):
    """A measured value, the number of tokens, and details that the value does not contain."""

    value: Any
    tokens: int
    how: dict[str, str]


class Measured(NamedTuple):
    path: Path
    tokens: int
    problems: int


def calibrate(
    model: str, name: str, source: Source, *, tokens: int, max_new_tokens: int, device: str, dtype: str
) -> Measured:
    """tokens: the most tokens to measure; max_new_tokens: of an answer. Raises BadInput for a device that is
    not available, Drifted for damaged weights.
    """
    refuse_device(device)
    transformers.utils.logging.disable_progress_bar()
    home = sources.home()
    path = calibration.statistics_paths(model, home)[name]
    with phase(f"loading {model}"):
        loaded = load(model, home, dtype=dtype, device=device)
    if calibration.OF_NAME[name] in (policies.Statistics, policies.Routes):
        refuse_unturned(loaded)
    if calibration.OF_NAME[name] is policies.Routes:
        scored_by(loaded)
    used: dict[str, str] = {}
    if source.task:
        count = prompting.counter(loaded.tokenizer)
        built = (tasks.build(source.task, problem, count) for problem in in_turn(source.ids))
        texts = traces(loaded, built, max_new_tokens, used)
        about = {"task": source.task, "split": source.split, "max_new_tokens": str(max_new_tokens)}
    else:
        token_ids = loaded.tokenizer(source.text.decode(), add_special_tokens=False)["input_ids"]
        texts = iter([Text(token_ids, len(token_ids))])
        about = {"text": hashlib.sha256(source.text).hexdigest()}
    path.parent.mkdir(parents=True, exist_ok=True)
    # Created before measuring, so that an unwritable folder is refused before the work is done.
    with tempfile.TemporaryDirectory(dir=path.parent.parent) as beside:
        with phase(f"measuring {name}") as tell:
            found = measure(loaded, name, counted(texts, tokens, tell), tokens)
        about |= found.how | {
            "model": model,
            "weights": calibration.weights_digest(model, home),
            "dtype": dtype,
            "tokens": str(found.tokens),
            "problems": json.dumps(used, sort_keys=True),
        }
        whole = Path(beside, path.name)
        calibration.write(whole, found.value, about)
        os.link(whole, path)  # unlike a rename, a link does not overwrite
    if sources.embedded(model):
        stored.write_sums(path.parent)  # loading the model has just verified the other files
    return Measured(path, found.tokens, len(used))


def counted(texts: Iterable[Text], tokens: int, tell: Tell) -> Iterator[Text]:
    """Yield the texts and report the progress."""
    done = 0
    for text in texts:
        done = min(tokens, done + len(text.token_ids))
        tell(At(f"{done:,} of at most {tokens:,} tokens", done, tokens))
        yield text


def measure(model: LoadedModel, name: str, texts: Iterable[Text], tokens: int) -> Found:
    """Measure what is calibrated under this name, on the first `tokens` tokens. Raises BadInput if these do
    not suffice.
    """
    if calibration.OF_NAME[name] is policies.Thresholds:
        return thoughts(model, texts, tokens)
    if calibration.OF_NAME[name] is policies.Routes:
        return routed(model, texts, tokens)
    if calibration.OF_NAME[name] is policies.Bases:
        return directions(model, texts, tokens)
    value, counted = query_statistics.measure(model.network, (text.token_ids for text in texts), tokens)
    return Found(value, counted, {})


def thoughts(model: LoadedModel, texts: Iterable[Text], tokens: int) -> Found:
    """Measure thresholds of the sparsity of whole segments of answers, with the full cache; one forward per
    text.
    """
    means, counted = [], 0
    for text, fed in prefilled(model, texts, tokens, [Sparsity()]):
        sparse = torch.cat(fed.signals[Sparsity()])
        means.append(segment_means(sparse[:, text.prompt :], SEGMENT))
        counted += sparse.shape[-1]
    if not means:
        raise BadInput("texts: hold no token; give at least one")
    segments = torch.cat(means, -1)
    found = thresholds.found(segments)
    how = {"thresholds": found.how, "segments": str(segments.shape[-1])}
    return Found(found.thresholds, counted, how)


def routed(model: LoadedModel, texts: Iterable[Text], tokens: int) -> Found:
    """Measure which heads capture more attention by their scores, with the full cache; one forward per text.
    """
    statistics, found, counted = scored_by(model), [], 0
    for text, fed in prefilled(model, texts, tokens, [], recent=tokens):
        found.append(routes.captured(fed.recent, fed.keys, fed.scale, text.prompt, statistics, fed.sinks))
        counted += fed.keys[0].shape[1]
    queries = sum(own.queries for own in found)
    routes.refuse_none(queries)
    by_score, evenly = (torch.stack(ways).sum(0) / queries for ways in list(zip(*found, strict=True))[:2])
    how = {"queries": str(queries)} | {
        way: json.dumps([[round(head, 4) for head in layer] for layer in share.tolist()])
        for way, share in (("by_score", by_score), ("evenly", evenly))
    }
    return Found(routes.chosen(by_score, evenly), counted, how)


def directions(model: LoadedModel, texts: Iterable[Text], tokens: int) -> Found:
    """Measure bases of the values of whole texts, prompt and answer, with the full cache; one forward per
    text.
    """
    moments = None
    for _, fed in prefilled(model, texts, tokens, []):
        values = torch.stack(fed.values)
        moments = (moments or bases.none(values)).added(values)
    if moments is None:
        raise BadInput("texts: hold no token; give at least one")
    found = bases.found(moments)
    return Found(found.bases, moments.tokens, {"variance in a quarter": f"{found.quarter:.4f}"})


def prefilled(
    model: LoadedModel, texts: Iterable[Text], tokens: int, signals: Sequence[Signal], recent: int = 0
) -> Iterator[tuple[Text, Prefilled]]:
    """Yield the texts up to so many tokens in all, the last one cut, each with the results of its forward.
    recent: how many of its last queries are returned, at most.
    """
    left = tokens
    for text in texts:
        own = text.token_ids[: min(left, model.network.config.max_position_embeddings)]
        with observation.observed(model.network), torch.no_grad():
            fed = prefill.feed(model, own, signals, chunk=None, recent=recent)
        yield text, fed
        left -= len(own)
        if not left:
            return


def scored_by(model: LoadedModel) -> policies.Statistics:
    """Return the statistics that the scores use with which routes are measured. Raises BadInput if there are
    none.
    """
    (read,) = policies.get("1d-per-head").calibrated
    statistics: policies.Statistics | None = model.statistics.get(read.name)
    if statistics is None:
        raise BadInput(
            f"model {model.name}: routes are measured with its {read.name!r}, which are not there; run: "
            f"kv-prereg calibrate {model.name} {read.name}"
        )
    return statistics


def refuse_unturned(model: LoadedModel) -> None:
    """Refuse models with another rotation: scores of a mean query ahead of its keys support only one kind."""
    if not rotation.by_halves(model.network):
        raise BadInput(
            f"model {model.name}: does not turn the halves of a head in every layer, as the scores that read "
            "these statistics take it; choose another model"
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


def in_turn(ids: Iterable[str]) -> Iterator[str]:
    """Yield one id of each level, then the next one of each: the measured tokens may end before the ids do.

    The ids of a level (or depth, or subject) differ in their last part alone.
    """
    levels: dict[str, list[str]] = {}
    for one in ids:
        levels.setdefault(one.rpartition("/")[0], []).append(one)
    return (one for turn in zip_longest(*levels.values()) for one in turn if one is not None)


def traces(
    model: LoadedModel, built: Iterator[Problem], max_new_tokens: int, used: dict[str, str]
) -> Iterator[Text]:
    """Yield prompts with the model's own greedy answers; the end token of an answer is left out.

    Adds the digest of each prompt to `prompt_digests`, in the form of a study's records.
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
            used[request.problem] = prompting.digest(request.prompt.context, request.prompt.query)
            text = request.prompt.context + outcome.token_ids
            yield Text(text, len(request.prompt.context))
