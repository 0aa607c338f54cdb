"""lm-eval's tasks through this project against lm-eval itself, on rows in the original schemas: the prompts
that a model would be asked, and the official scores of the same texts. Run by `make peers`.
"""

import importlib
import json

import pytest

pytest.importorskip("lm_eval", reason="run by `make peers`")

import datasets
from lm_eval import evaluator
from lm_eval.api.model import LM
from lm_eval.api.task import ConfigurableTask
from lm_eval.tasks import _yaml_loader

from protocol import grading
from protocol.formats.refusals import BadInput
from protocol.harness import Harness, shared_harness
from protocol.tasks.lm_eval_task import CRYSTALCACHE, LmEvalTask
from protocol.tasks.middle_cut import MaxLength
from protocol.tasks.ruler import GENERATED, Ruler

pytestmark = pytest.mark.filterwarnings("ignore:Using slow pure-python SequenceMatcher")
CLASSES = ["Description of something", "Description of a person", "Food", "Other location"]


def longbench(number, **other):
    """A row as LongBench publishes it."""
    return {
        "input": f"Where does she live, {number}?",
        "context": f"Passage 1:\nShe lives in Paris, at number {number}.\n\nPassage 2:\nHe does not.\n",
        "answers": ["Paris", f"at number {number}"],
        "length": 14,
        "language": "en",
        "all_classes": None,
        "_id": f"q{number}",
    } | other


ROWS = {  # subset: (rows, texts)
    "qasper": (
        [longbench(1), longbench(2), longbench(3)],
        ["In Paris.", "<think>Rome or Paris</think>At number 2", "It is, as I said, the town of Paris\n\nParis"],
    ),
    "trec": (
        [longbench(n, answers=["Description of a person"], all_classes=CLASSES) for n in range(3)],
        ["Description of a person", "\nFood", "Food or Description of a person\nQuestion: x"],
    ),
    "gov_report": (
        [longbench(n, answers=["She lives in Paris. He lives in Rome."]) for n in range(2)],
        ["He lives in Rome. She does not.", "She lives in Paris, he in Rome"],
    ),
    "passage_count": ([longbench(1, answers=["12"])], ["12, since 3 of 15 are copies"]),
    "passage_retrieval_en": ([longbench(1, answers=["Paragraph 7"])], ["Paragraph 7 or 17"]),
    "lcc": ([longbench(1, answers=["x = 1  # one"])], ["# next\nx = 1  # one\nx = 2"]),
}


class Canned(LM):
    """A model that answers with these texts, and keeps what it was asked."""

    def __init__(self, texts):
        super().__init__()
        self.texts, self.asked, self.settings = texts, [], []

    def generate_until(self, requests):
        self.asked = [request.args[0] for request in requests]
        self.settings = [request.args[1] for request in requests]
        return [self._stopped(text) for text in self.texts]

    def _stopped(self, text):
        for stop in self.settings[0]["until"]:
            text = text.split(stop)[0]
        return text

    def loglikelihood(self, requests):
        raise NotImplementedError

    def loglikelihood_rolling(self, requests):
        raise NotImplementedError


def theirs(name, rows, texts):
    """(prompts, scores by text) of lm-eval's own evaluation; its copy of LongBench renames one field."""
    folder = _yaml_loader.__file__.rpartition("/")[0]
    subset = name.removeprefix("longbench_")
    config = _yaml_loader.load_yaml(f"{folder}/longbench/{subset}.yaml")
    renamed = [{"question" if key == "input" else key: value for key, value in row.items()} for row in rows]
    config["custom_dataset"] = lambda **_: {"test": datasets.Dataset.from_list(renamed)}
    return evaluated(name, ConfigurableTask(config=config), texts)


def evaluated(name, task, texts):
    model = Canned(texts)
    done = evaluator.evaluate(lm=model, task_dict={name: task}, bootstrap_iters=0, log_samples=True)
    return model.asked, done["samples"][name]


@pytest.fixture
def task(tmp_path):
    def made(subset, rows, longest=None):
        path = tmp_path / f"{subset}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return LmEvalTask("mine", f"longbench_{subset}", path, longest)

    return made


def prompt(problem):
    return f"{problem.context}\n{problem.question}" if problem.question else problem.context


@pytest.mark.parametrize("subset", ROWS)
def test_prompts_and_official_scores_are_those_of_lm_eval_itself(task, subset):
    rows, texts = ROWS[subset]
    ours = task(subset, rows)
    problems = [ours.build(item, len) for item in ours.ids()]
    asked, samples = theirs(f"longbench_{subset}", rows, texts)
    assert [prompt(problem) + problem.prefix for problem in problems] == asked
    grader = grading.get_grader(ours.grader)
    grades = [grader.grade(problem.gold, text) for problem, text in zip(problems, texts, strict=True)]
    assert [grade.status for grade in grades] == ["scored"] * len(texts)
    assert [float(grade.score) for grade in grades] == pytest.approx([sample["score"] for sample in samples], abs=5e-7)


def test_rulers_scores_are_those_of_lm_eval_itself(tmp_path, monkeypatch):
    """Its own problems of 4,096 tokens, by a tokenizer in a folder, and texts with some of the values."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(tmp_path)
    module, scoring = (importlib.import_module(f"lm_eval.tasks.ruler.{name}_utils") for name in ("vt", "common"))
    folder = _yaml_loader.__file__.rpartition("/")[0]
    config = _yaml_loader.load_yaml(f"{folder}/ruler/vt.yaml", resolve_func=False)  # which is slow, for another
    config |= {"custom_dataset": module.get_vt_dataset, "process_results": scoring.process_results}
    config["metric_list"] = [{"metric": "4096", "aggregation": scoring.aggregate_metrics, "higher_is_better": True}]
    config["metadata"] |= {"tokenizer": str(tmp_path), "max_seq_lengths": [4096]}
    make = module.sys_vartrack_w_noise_random
    four = {"num_samples": 4}  # of 500
    monkeypatch.setattr(module, "sys_vartrack_w_noise_random", lambda **given: make(**given | four))
    task = ConfigurableTask(config=config)
    rows = list(task.dataset["test"])
    texts = [" ".join(rows[number]["outputs"][:number]).lower() for number in range(4)]
    _, samples = evaluated("ruler_vt", task, texts)
    grader = grading.get_grader("lm_eval:ruler_vt")
    golds = [{"input": "", "gen_prefix": "", **{key: row[key] for key in ("outputs", "max_length")}} for row in rows]
    grades = [grader.grade(json.dumps(gold), text) for gold, text in zip(golds, texts, strict=True)]
    assert [float(grade.score) for grade in grades] == pytest.approx([sample["4096"] for sample in samples])
    assert [grade.score for grade in grades] == ["0.000000", "0.200000", "0.400000", "0.600000"]


ENGLISH = ("gov_report", "qmsum", "multi_news", "lcc", "repobench-p")
OTHERS = {
    "gsm8k_cot": ({"question": "1+1?", "answer": "It is. #### 2"}, "The answer is 2.", "1.000000"),
    "gsm8k_cot_zeroshot": ({"question": "1+1?", "answer": "It is. #### 2"}, "The answer is 2.", "1.000000"),
    "gsm8k_cot_llama": ({"question": "1+1?", "answer": "It is. #### 2"}, "The final answer is 2", "1.000000"),
    "aime24": ({"ID": "2024-I-1", "Problem": "1+1?", "Answer": 2}, r"So \boxed{2}", "1.000000"),
    "aime25": ({"id": "0", "problem": "1+1?", "answer": "2"}, r"So \boxed{3}", "0.000000"),
    "babilong_qa1": ({"input": "Mary is here.", "question": "Where?", "target": "here"}, "here", "1.000000"),
    **{
        f"infinitebench_{kind}": (
            {"id": 0, "context": "a long text", "input": "q", "answer": ["123"], "options": []},
            "123",
            "1.000000",
        )
        for kind in ("passkey", "kv_retrieval", "number_string", "longbook_qa_en", "longbook_sum_en")
    },
    **{
        f"infinitebench_{kind}": (
            {"id": 0, "context": "a long text", "input": "q", "answer": ["y"], "options": ["x", "y", "z", "w"]},
            "B",
            "1.000000",
        )
        for kind in ("longbook_choice_en", "code_debug")
    },
}


@pytest.mark.parametrize("name", sorted({*CRYSTALCACHE, *(f"longbench_{subset}" for subset in ENGLISH)}))
def test_every_english_subset_of_longbench_is_asked_and_scored_twice(task, name):
    subset = name.removeprefix("longbench_")
    answer = {"trec": "Food", "passage_count": "12", "passage_retrieval_en": "Paragraph 7"}.get(subset, "Paris")
    ours = task(subset, [longbench(1, answers=[answer], all_classes=CLASSES)])
    problem = ours.build(ours.ids()[0], len)
    assert "at number 1" in problem.context
    for grader in (grading.get_grader(ours.grader), grading.second_grader(ours.grader)):
        assert grader.grade(problem.gold, f"{answer}<|im_end|>").score == "1.000000"
        assert grader.grade(problem.gold, "").score == "0.000000"


@pytest.mark.parametrize("name", OTHERS)
def test_other_generative_tasks_are_asked_and_scored(tmp_path, name):
    row, text, score = OTHERS[name]
    path = tmp_path / "data.jsonl"
    path.write_text(json.dumps(row) + "\n")
    ours = LmEvalTask("mine", name, path)
    problem = ours.build(ours.ids()[0], len)
    asked = [row[key] for key in ("context", "input", "question", "problem", "Problem") if key in row]
    assert asked[0] in prompt(problem)
    assert grading.get_grader(ours.grader).grade(problem.gold, text).score == score


def test_a_long_prompt_loses_its_middle_and_keeps_instruction_and_question(task):
    rows = [longbench(1, context=" ".join(f"w{place}" for place in range(5000)) + "\n")]
    ours = task("qasper", rows, MaxLength(words=500))
    problem = ours.build(ours.ids()[0], len)
    assert len(prompt(problem).split()) == 500
    assert problem.context.startswith("You are given a scientific article")
    assert problem.question.endswith("Question: Where does she live, 1?\n\nAnswer:")


# What the official scores say where our second opinion says 1, or 0 for the last two.
WRONG = [
    ("gov_report", {"answers": [" ".join(f"w{n}" for n in range(1200))]}, None, "0.000000", "1.000000"),
    (
        "trec",
        {"answers": CLASSES[1:2], "all_classes": ["Description", *CLASSES[1:2]]},
        CLASSES[1],
        "1.000000",
        "1.000000",
    ),
    ("trec", {"answers": ["Food"], "all_classes": CLASSES}, "\nFood", "0.000000", "1.000000"),
    ("lcc", {"answers": ["x = 1  # one"]}, "x = 1  # one", "0.000000", "1.000000"),
    ("qasper", {"answers": ["Paris"]}, "<think>No, no</think> Paris", "0.500000", "1.000000"),
    ("passage_count", {"answers": ["12"]}, "12, as 3 of 15 are copies", "0.333333", "1.000000"),
    ("passage_count", {"answers": ["12"]}, "10 11 12 13", "0.250000", "0.000000"),
    ("passage_retrieval_en", {"answers": ["Paragraph 7"]}, "Paragraph 8 or 7", "0.500000", "0.000000"),
]


@pytest.mark.parametrize(("subset", "fields", "text", "official", "corrected"), WRONG)
def test_where_the_two_scores_part(task, subset, fields, text, official, corrected):
    ours = task(subset, [longbench(1, **fields)])
    gold, said = ours.gold(ours.ids()[0]), fields["answers"][0] if text is None else text
    assert grading.get_grader(ours.grader).grade(gold, said).score == official
    assert grading.second_grader(ours.grader).grade(gold, said).score == corrected


@pytest.mark.parametrize("name", GENERATED)
def test_rulers_problems_depend_on_id_seed_and_tokenizer_and_their_answers_not_on_the_last(name):
    ours, item = Ruler("r", name, (2048,)), f"{name}/2048/007"

    def characters(each):
        return lambda text: len(text) // each

    problem = ours.build(item, characters(4))
    assert problem == ours.build(item, characters(4))
    other = ours.build(item, characters(3))
    assert problem.gold == ours.gold(item) == other.gold
    assert len(other.context) < len(problem.context)
    assert len(prompt(problem)) // 4 <= 2048
    assert len(prompt(problem)) // 4 > 1500  # and the filler fills it
    assert problem.gold != ours.gold(f"{name}/2048/008") != ours.redrawn(7).gold(f"{name}/2048/008")
    values = json.loads(problem.gold)["outputs"]
    assert all(value in problem.context for value in values)
    assert "\n" not in problem.question
    for grader in (grading.get_grader(ours.grader), grading.second_grader(ours.grader)):
        assert grader.grade(problem.gold, ", ".join(values)).score == "1.000000"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("longbench_qaspr", "unknown task of lm-eval 'longbench_qaspr'; did you mean 'longbench_qasper'"),
        ("hellaswag", "asks for multiple_choice"),
        ("gsm8k", "shows 5 examples from its train split"),
        ("humaneval", "runs code that a model wrote"),
        ("minerva_math500", "use kv-prereg's own task math500"),
    ],
)
def test_a_task_that_cannot_run_here_is_refused_with_the_reason(name, says):
    with pytest.raises(BadInput, match=says) as refusal:
        grading.get_grader(f"lm_eval:{name}")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", ["niah_single_2", "niah_multivalue", "ruler_qa_squad"])
def test_a_task_of_ruler_that_needs_the_hub_is_refused_by_name(name):
    with pytest.raises(BadInput, match=f"lm_eval task '{name}': its problems need"):
        Ruler("r", name, (4096,)).build(f"{name}/4096/000", len)


@pytest.mark.parametrize("name", ["ruler_vt", "ruler_cwe"])
def test_a_length_in_which_no_problem_fits_is_refused(name):
    with pytest.raises(BadInput, match="length 200 is too short for every problem of this task"):
        Ruler("r", name, (200,)).build(f"{name}/200/000", lambda text: len(text) // 4)


@pytest.mark.parametrize("text", ["{{ 7 * 7 }}", "{% raw %}", "__import__('os')._exit(1)", "\x00\ud800", "\n" * 9])
def test_a_text_is_scored_as_text_and_nothing_else(task, text):
    ours = task("qasper", [longbench(1, answers=["49"])])
    assert grading.get_grader(ours.grader).grade(ours.gold(ours.ids()[0]), text).score == "0.000000"


def test_a_score_that_takes_too_long_is_a_timeout_and_the_next_text_is_scored(task, monkeypatch):
    ours = task("gov_report", [longbench(1, answers=["a b. " * 1500])])
    grader, gold = grading.get_grader(ours.grader), ours.gold(ours.ids()[0])
    monkeypatch.setattr(shared_harness(), "_deadline", 0.05)
    assert grader.grade(gold, "a b. " * 1500).status == "timeout"
    monkeypatch.setattr(shared_harness(), "_deadline", 120)
    assert grader.grade(gold, "a b.").status == "scored"


def test_a_row_that_does_not_fit_the_task_is_refused_with_the_missing_field():
    with Harness() as lm_eval, pytest.raises(BadInput, match=r"lm_eval task .*: .*context"):
        lm_eval.prompt("longbench_qasper", {"input": "Who?", "answers": ["A"]})
