"""The process that runs lm-eval: a line of JSON comes in, one goes out. Imports nothing else of ours.

Started by protocol.harness as `python -P worker.py BYTES SECONDS`. BYTES limits its address space where the
system can. SECONDS ends it for certain, should its parent have died while it computed. What a model wrote
reaches lm-eval as the text that it scores and in no other way; tasks that run it as code are refused.
"""

import hashlib
import importlib
import json
import os
import random
import re
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

NAME = re.compile(rb"^task:[ \t]*[\"']?([\w.+-]+)", re.MULTILINE)
NIAH = ("niah_single_1", "niah_multikey_2", "niah_multikey_3")
GENERATED = (*NIAH, "ruler_vt", "ruler_cwe", "ruler_fwe")
REQUIRED_DATA = {
    "niah_single_2": "essays from the Hugging Face hub",
    "niah_single_3": "essays from the Hugging Face hub",
    "niah_multikey_1": "essays from the Hugging Face hub",
    "niah_multivalue": "essays from the Hugging Face hub",
    "niah_multiquery": "essays from the Hugging Face hub",
    "ruler_qa_squad": "the data of SQuAD",
    "ruler_qa_hotpot": "the data of HotpotQA",
}


class Refused(Exception):
    """This task cannot run here; the message says why."""


class Unknown(Exception):
    """lm-eval has no task of this name."""


def main() -> None:
    size, seconds = int(sys.argv[1]), float(sys.argv[2])
    limit_memory(size)
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # generators print to it

    def count(text: str) -> int:
        print(json.dumps({"count": text}), file=replies)
        return int(json.loads(sys.stdin.readline())["counted"])

    lm_eval = LmEval(count)
    print(json.dumps({"ready": True}), file=replies)
    while line := sys.stdin.readline():
        signal.setitimer(signal.ITIMER_REAL, seconds)  # no handler: the system ends the process
        print(json.dumps(answer_question(lm_eval, json.loads(line))), file=replies)
        signal.setitimer(signal.ITIMER_REAL, 0)


def limit_memory(size: int) -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (size, size))
    except (ImportError, ValueError, OSError):  # not available on this system
        return


def answer_question(lm_eval: "LmEval", question: Mapping[str, Any]) -> dict[str, Any]:
    task = question["task"]
    try:
        match question["do"]:
            case "facts":
                return lm_eval.facts(task)
            case "prompt":
                return lm_eval.prompt(task, question["row"])
            case "scores":
                return lm_eval.scores(task, question["row"], question["text"])
            case "ruler":
                return lm_eval.ruler(task, question["length"], question["key"])
    except Unknown:
        return {"unknown": lm_eval.names()}
    except Refused as refusal:
        return {"refused": str(refusal)}
    except MemoryError:
        os._exit(1)
    except Exception as error:  # from a task file, a template or data that do not fit it
        return {"refused": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
    raise AssertionError(question["do"])


def list_task_files(root: Path) -> dict[str, Path]:
    """Return the file of every task. lm-eval's own TaskManager reads the same folders and takes 40 s."""
    files_by_task: dict[str, Path] = {}
    for folder, _, files in os.walk(root):
        for name in sorted(files):
            if name.endswith((".yaml", ".yml")):
                path = Path(folder, name)
                if match := NAME.search(path.read_bytes()):
                    files_by_task.setdefault(match.group(1).decode(), path)
    return files_by_task


class LmEval:
    """The installed lm-eval. count: tokens of a text, requested from the parent."""

    def __init__(self, count: Callable[[str], int]):
        import nltk
        from lm_eval.api.instance import Instance
        from lm_eval.api.task import ConfigurableTask
        from lm_eval.tasks import _yaml_loader

        nltk.download = lambda *_, **__: False  # RULER's generators would fetch essays
        self._instance, self._task, self._yaml = Instance, ConfigurableTask, _yaml_loader
        self._root = Path(_yaml_loader.__file__).parent
        self._files = list_task_files(self._root)
        self._cached_task = lru_cache(maxsize=4)(self._build_task)
        self._count = count

    def names(self) -> list[str]:
        return sorted(self._files)

    def facts(self, task: str) -> dict[str, Any]:
        config = self._config(task)
        settings = config.get("generation_kwargs") or {}
        until = settings.get("until") or []
        return {
            "version": str((config.get("metadata") or {}).get("version", "")),
            "metric": str(config["metric_list"][0]["metric"]),
            "until": [until] if isinstance(until, str) else list(until),
            "longest": settings.get("max_gen_toks"),
            "shots": int(config.get("num_fewshot") or 0),
        }

    def prompt(self, task: str, row: Mapping[str, Any]) -> dict[str, Any]:
        shots = self.facts(task)["shots"]
        built = self._cached_task(task, json.dumps(row))
        document = built.eval_docs[0]
        prefix = built.resolve_field(document, built.config.gen_prefix) if built.config.gen_prefix else ""
        built.set_fewshot_seed(1234)  # as lm-eval does by default
        return {"text": built.fewshot_context(document, num_fewshot=shots), "prefix": prefix or ""}

    def scores(self, task: str, row: Mapping[str, Any], text: str) -> dict[str, Any]:
        facts = self.facts(task)
        for stop in facts["until"]:
            text = text.split(stop)[0] if stop else text
        built = self._cached_task(task, json.dumps(row))
        document = built.eval_docs[0]
        instance = self._instance(request_type="generate_until", doc=document, arguments=("", {}), idx=0)
        instance.resps = [text]
        built._instances = [instance]
        built.apply_filters()
        values = {
            f"{name}/{metric}": float(value)
            for name, response in instance.filtered_resps.items()
            for metric, value in built.process_results(document, [response]).items()
            if isinstance(value, (int, float)) or hasattr(value, "item")
        }
        return {"values": values, "answer": text}

    def ruler(self, task: str, length: int, key: str) -> dict[str, Any]:
        if task in REQUIRED_DATA:
            raise Refused(
                f"its problems need {REQUIRED_DATA[task]}, which is not available offline; write one of "
                f"{', '.join(GENERATED)}"
            )
        if task not in GENERATED:
            raise Refused(f"is not a generated task of RULER; write one of {', '.join(GENERATED)}")
        return dict(draw_problem(task, length, key, self._count))

    def _config(self, task: str) -> dict[str, Any]:
        if task not in self._files:
            raise Unknown
        config: dict[str, Any] = self._yaml.load_yaml(self._files[task], resolve_func=False)
        if (kind := config.get("output_type", "generate_until")) != "generate_until":
            raise Refused(f"asks for {kind}, which cannot be measured on an evicted cache; write a generative task")
        if task.startswith("minerva_math") and not version("antlr4-python3-runtime").startswith("4.11"):
            raise Refused(
                "needs antlr4-python3-runtime 4.11, but kv-prereg's math-verify needs another version; use "
                "kv-prereg's own task math500"
            )
        if config.get("unsafe_code"):
            raise Refused("runs code that a model wrote")
        if config.get("doc_to_image") or config.get("doc_to_audio"):
            raise Refused("asks about pictures or sound")
        metrics = config.get("metric_list") or []
        if not metrics or not metrics[0].get("higher_is_better", True):
            raise Refused("has no metric for which higher is better")
        if any(metric.get("hf_evaluate") for metric in metrics):
            raise Refused("downloads its metric")
        split = (config.get("fewshot_config") or {}).get("split") or config.get("fewshot_split")
        fixed = (config.get("fewshot_config") or {}).get("samples")
        if config.get("num_fewshot") and not fixed:
            raise Refused(
                f"shows {config['num_fewshot']} examples from its {split or 'training'} split, which is not "
                "available; write a task that brings its own examples, such as gsm8k_cot, or one without "
                "examples"
            )
        return config

    def _build_task(self, task: str, row: str) -> Any:
        """Return lm-eval's task over this one row."""
        import datasets

        config, document = self._config(task), json.loads(row)
        if task.startswith("longbench_") and "question" not in document:
            document["question"] = document.pop("input", "")  # LongBench's field name -> that of lm-eval's copy
        split = config.get("test_split") or config.get("validation_split")
        if split is None:
            raise Refused("has neither a test nor a validation split")
        unused = ("training_split", "fewshot_split", "dataset_kwargs")
        config = {name: value for name, value in config.items() if name not in unused or value == split}
        config["custom_dataset"] = lambda **_: {split: datasets.Dataset.from_list([document])}
        built: Any = self._task(config=self._resolve_functions(config))
        if len(built.eval_docs) != 1:
            raise Refused("drops this row in its process_docs; remove the row")
        return built

    def _resolve_functions(self, value: Any) -> Any:
        """Replace function names in a task file by functions. lm-eval would also import those that generate
        data, which for RULER takes 11 s and a gigabyte.
        """
        match value:
            case dict():
                return {name: self._resolve_functions(item) for name, item in value.items()}
            case list():
                return [self._resolve_functions(item) for item in value]
            case str() if value.startswith(f"{self._root}{os.sep}"):
                return self._yaml._import_fun_from_str(value)
        return value


def draw_problem(task: str, length: int, key: str, count: Callable[[str], int]) -> Mapping[str, Any]:
    """Return one problem from the generator of the installed lm-eval, run for one sample.

    The generator first searches how much filler fits, with random texts, then draws the sample. Each text is
    drawn from `key` and its purpose alone, so that the sample's answers do not depend on the length of the
    search, that is on the tokenizer.
    """

    def tokens(text: str) -> SimpleNamespace:
        """A stand-in for a tokenizer, of which the generators only use the number of ids."""
        return SimpleNamespace(input_ids=range(count(text)))

    make: Callable[[], Any]
    if task in NIAH:
        generators: Any = importlib.import_module("lm_eval.tasks.ruler.niah_utils")
        module: Any = importlib.import_module("lm_eval.tasks.ruler.prepare_niah")
        settings: dict[str, Any] = {}
        generators.generate_samples = lambda haystack, **given: settings.update(given, haystack=haystack) or []
        generators.get_tokenizer, generators.download_dataset = lambda *_: None, list
        getattr(generators, task)(max_seq_lengths=[length])
        make = lambda: module.generate_samples(**settings | {"num_samples": 1, "TOKENIZER": tokens})  # noqa: E731
    elif task == "ruler_vt":
        module = importlib.import_module("lm_eval.tasks.ruler.vt_utils")
        sample: Any = module.sys_vartrack_w_noise_random

        def make() -> Any:
            example = sample(tokenizer=tokens, num_samples=1, max_seq_length=500, incremental=5)[0]
            return sample(tokenizer=tokens, num_samples=1, max_seq_length=length, icl_example=example)
    elif task == "ruler_cwe":
        module = importlib.import_module("lm_eval.tasks.ruler.cwe_utils")
        make = lambda: module.sys_word_pair_random(1, length, tokens)  # noqa: E731
    else:
        module = importlib.import_module("lm_eval.tasks.ruler.fwe_utils")
        make = lambda: module.sys_kwext(tokens, length, num_samples=1)  # noqa: E731
    with SeededGeneration(module, f"{length}|{task}", key):
        (row,) = make()
    return {name: value.item() if hasattr(value, "item") else value for name, value in row.items()}


class SeededGeneration:
    """Inside the context, a generator module draws every text from its purpose and key alone.

    The sample is what is drawn after its progress bar began.
    """

    def __init__(self, module: Any, search_key: str, key: str):
        self._module, self._search_key, self._key = module, search_key, key
        self._originals = {name: getattr(module, name) for name in ("generate_input_output", "tqdm", "random")}

    def __enter__(self) -> None:
        module, original = self._module, self._originals["generate_input_output"]
        purpose, attempts = self._search_key, list[Any]()

        def on_progress_bar(items: Iterable[Any], **_: Any) -> Iterable[Any]:
            nonlocal purpose
            purpose = self._key
            attempts.clear()
            return items

        def generate(*arguments: Any, **keywords: Any) -> Any:
            import numpy

            if purpose == self._key and (arguments, keywords) in attempts:
                os._exit(1)  # the length is too short, and two of the generators would repeat this for ever
            attempts.append((arguments, keywords))
            seed = f"{purpose}|{keywords.get('is_icl', False)}"
            number = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4])
            random.seed(seed)
            numpy.random.seed(number)
            if hasattr(module, "RNG"):
                module.RNG.seed(seed)
            return original(*arguments, **keywords)

        module.generate_input_output, module.tqdm = generate, on_progress_bar
        if hasattr(module, "RNG"):
            module.random = PrefixSampler()

    def __exit__(self, *_: object) -> None:
        for name, value in self._originals.items():
            setattr(self._module, name, value)


class PrefixSampler:
    """A `random.sample` whose first items do not depend on the sample size, as each is drawn in turn."""

    def sample(self, items: Sequence[Any], k: int) -> list[Any]:
        remaining = list(items)
        for index in range(k):
            other = random.randrange(index, len(remaining))
            remaining[index], remaining[other] = remaining[other], remaining[index]
        return remaining[:k]


if __name__ == "__main__":
    main()
