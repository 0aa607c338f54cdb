"""The ids that a model is fed, and where the prompt is cut."""

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from protocol import tasks
from protocol.formats.refusals import BadInput
from protocol.tasks import prompting

PROBLEM = tasks.Problem("p", "The team met. The code is 7. What is next?", "What is the code?", "The code is", "7")


CHAT = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture
def tokenizer():
    """A token a byte, so that every text survives, and a chat template."""
    names = ["<|im_start|>", "<|im_end|>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    raw = Tokenizer(models.BPE({name: number for number, name in enumerate(names)}, []))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens(names[:2])
    made = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<|im_end|>")
    made.chat_template = CHAT
    return made


def test_the_chat_template_surrounds_the_text_and_the_answer_is_begun(tokenizer):
    context, query = prompting.render(PROBLEM, tokenizer, "inside")
    assert query == []
    assert tokenizer.decode(context) == (
        "<|im_start|>user\nThe team met. The code is 7. What is next?\nWhat is the code?<|im_end|>\n"
        "<|im_start|>assistant\nThe code is"
    )


def test_outside_cuts_where_the_question_starts(tokenizer):
    context, query = prompting.render(PROBLEM, tokenizer, "outside")
    assert tokenizer.decode(context).endswith("What is next?\n")
    assert tokenizer.decode(query).startswith("What is the code?<|im_end|>")


def test_both_ways_feed_the_same_ids(tokenizer):
    context, query = prompting.render(PROBLEM, tokenizer, "outside")
    assert (context + query, []) == prompting.render(PROBLEM, tokenizer, "inside")


def test_a_tokenizer_without_a_chat_template_gets_plain_text_after_its_first_token(tokenizer):
    tokenizer.chat_template = None
    plain = "The team met. The code is 7. What is next?\nWhat is the code?\nAnswer: The code is"
    assert tokenizer.decode(prompting.render(PROBLEM, tokenizer, "inside")[0]) == plain
    tokenizer.bos_token = "<|im_start|>"
    assert tokenizer.decode(prompting.render(PROBLEM, tokenizer, "inside")[0]) == f"<|im_start|>{plain}"


def test_special_tokens_are_added_by_the_template_alone(tokenizer):
    opening = tokenizer.convert_tokens_to_ids("<|im_start|>")
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<|im_start|> $A", special_tokens=[("<|im_start|>", opening)]
    )
    assert tokenizer("a")["input_ids"][0] == opening  # as Llama's tokenizer does
    context, _ = prompting.render(PROBLEM, tokenizer, "inside")
    assert context[0] == opening
    assert context.count(opening) == 2


def test_a_question_that_also_stands_in_the_context_is_cut_at_its_last_place(tokenizer):
    again = PROBLEM._replace(context="What is the code? Nobody knew.")
    context, query = prompting.render(again, tokenizer, "outside")
    assert tokenizer.decode(context).endswith("Nobody knew.\n")
    assert tokenizer.decode(query).startswith("What is the code?<|im_end|>")


@pytest.mark.parametrize(
    ("question", "prefix"),
    [("What is the code?", "What is the code? It is"), ("assistant", ""), ("Answer:", ""), ("s", "")],
)
def test_a_question_that_the_prefix_or_the_template_repeats_is_cut_where_it_is_asked(question, prefix, tokenizer):
    problem = PROBLEM._replace(question=question, prefix=prefix)
    for template in (CHAT, None):
        tokenizer.chat_template = template
        context, query = prompting.render(problem, tokenizer, "outside")
        assert tokenizer.decode(context).endswith("The code is 7. What is next?\n")
        assert tokenizer.decode(query).startswith(question)
        assert tokenizer.decode(query).endswith(prefix or ("assistant\n" if template else "Answer: "))


def test_a_template_that_prints_the_date_prints_one_date(tokenizer):
    """As Llama 3.2 asks for it, gpt-oss within a macro, and in words; the rest of the template stays as it is."""
    tokenizer.chat_template = (
        "\n{%- if strftime_now is defined %}{%- set today = strftime_now('%d %b %Y') %}{%- endif %}"
        "{% macro iso() %}{{ strftime_now('%Y-%m-%d') }}{% endmacro %}"
        "{{ today }}, {{ iso() }}, {{ strftime_now('%A %-d %B, %H:%M') }}\n{{ messages[0]['content'] }}"
    )
    text = tokenizer.decode(prompting.render(PROBLEM, tokenizer, "inside")[0])
    dates = "26 Jul 2024, 2024-07-26, Friday 26 July, 00:00"
    assert text == f"{dates}\n{PROBLEM.context}\n{PROBLEM.question}{PROBLEM.prefix}"


@pytest.mark.parametrize(
    "template", ["{{ raise_exception('no user') }}", "{{ messages[7]['content'] + 1 }}", "{% if %}"]
)
def test_a_template_that_fails_is_refused_in_one_line(tokenizer, template):
    tokenizer.chat_template = template
    with pytest.raises(BadInput, match="its chat template fails: ") as refused:
        prompting.render(PROBLEM, tokenizer, "inside")
    assert "\n" not in str(refused.value)


def test_a_template_that_changes_the_text_is_refused(tokenizer):
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] | upper }}{% endfor %}"
    with pytest.raises(BadInput, match="chat template changes its text"):
        prompting.render(PROBLEM, tokenizer, "inside")


ALONE = tasks.Problem("p", "Add 2 and 3.\n\nBox it.", "", "<think>\n", "5")


def knows_thinking(tokenizer):
    tokenizer.add_special_tokens({"additional_special_tokens": ["<think>"]})
    return tokenizer


def test_a_problem_without_a_question_is_all_inside(tokenizer):
    context, query = prompting.render(ALONE, tokenizer, "inside")
    assert query == []
    assert tokenizer.decode(context) == ("<|im_start|>user\nAdd 2 and 3.\n\nBox it.<|im_end|>\n<|im_start|>assistant\n")
    with pytest.raises(BadInput, match='no separate question; write query = "inside"'):
        prompting.render(ALONE, tokenizer, "outside")


def test_thinking_is_begun_once_whether_or_not_the_template_does(tokenizer):
    knows_thinking(tokenizer)
    begun = "<|im_end|>\n<|im_start|>assistant\n<think>\n"
    context, _ = prompting.render(ALONE, tokenizer, "inside")
    assert tokenizer.decode(context).endswith(begun)
    assert context.count(tokenizer.convert_tokens_to_ids("<think>")) == 1
    tokenizer.chat_template = CHAT.replace("assistant\n{% endif", "assistant\n<think>\n{% endif")
    assert prompting.render(ALONE, tokenizer, "inside")[0] == context


def test_a_tokenizer_without_a_template_gets_a_lone_problem_as_plain_text(tokenizer):
    tokenizer.chat_template = None
    context, _ = prompting.render(ALONE, tokenizer, "inside")
    assert tokenizer.decode(context) == "Add 2 and 3.\n\nBox it.\nAnswer: "


def test_a_query_place_that_does_not_exist_is_refused(tokenizer):
    with pytest.raises(BadInput, match="query 'beside': write inside or outside"):
        prompting.render(PROBLEM, tokenizer, "beside")


@pytest.mark.parametrize("name", ["needle-768", "association-768"])
def test_cutting_does_not_change_how_smollm2_tokenises_a_prompt(name, smollm_tokenizer):
    task = tasks.get(name)
    for item in task.ids()[::9]:
        problem = task.build(item, lambda text: len(smollm_tokenizer(text)["input_ids"]))
        context, _ = prompting.render(problem, smollm_tokenizer, "inside")
        assert smollm_tokenizer(smollm_tokenizer.decode(context))["input_ids"] == context


@pytest.mark.parametrize("query", ["inside", "outside"])
def test_what_an_arm_asks_ends_the_message_and_belongs_to_the_question(tokenizer, query):
    context, fed = prompting.render(PROBLEM, tokenizer, query, "Say it.")
    assert tokenizer.decode(context + fed) == (
        "<|im_start|>user\nThe team met. The code is 7. What is next?\nWhat is the code?\nSay it.<|im_end|>\n"
        "<|im_start|>assistant\nThe code is"
    )
    plain = prompting.render(PROBLEM, tokenizer, query)
    assert prompting.render(PROBLEM, tokenizer, query, "") == plain
    if query == "outside":
        assert context == plain[0]


def test_without_a_template_or_a_question_what_is_asked_stands_on_a_line_of_its_own(tokenizer):
    tokenizer.chat_template = None
    context, _ = prompting.render(PROBLEM, tokenizer, "inside", "Say it.")
    assert tokenizer.decode(context).endswith("What is the code?\nSay it.\nAnswer: The code is")
    context, fed = prompting.render(ALONE, tokenizer, "inside", "Say it.")
    assert "\nSay it.\nAnswer: " in tokenizer.decode(context)
    assert fed == []
