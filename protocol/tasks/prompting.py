"""Render a problem as the token ids that a model is fed."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from protocol.formats import canonical
from protocol.formats.refusals import BadInput
from protocol.tasks.problem import THINK, Problem

if TYPE_CHECKING:  # a protocol file is checked without transformers
    from transformers import PreTrainedTokenizerBase


DATE = {"%d": "26", "%-d": "26", "%m": "07", "%b": "Jul", "%B": "July", "%y": "24", "%Y": "2024"} | {
    **{"%a": "Fri", "%A": "Friday", "%j": "208"},
    **dict.fromkeys(("%H", "%I", "%M", "%S", "%f"), "00"),
}
"""The date of every prompt, by the directives of strftime: today's, which some templates print, would give each day
other prompts.
"""
FIXED_DATE = (
    "{%- macro strftime_now(format) -%}{{ format"
    + "".join(f"|replace('{directive}', '{text}')" for directive, text in DATE.items())
    + " }}{%- endmacro %}{{ '' }}"
)
"""What precedes a template that prints a date: transformers passes it no function, but a macro can have its name."""


def counter(tokenizer: "PreTrainedTokenizerBase") -> Callable[[str], int]:
    """Return a function that counts a text's tokens under this tokenizer, without special tokens: tasks
    measure length with it.

    The counts of recent texts are cached, since questions and prefixes repeat.
    """

    @lru_cache(maxsize=64)
    def count(text: str) -> int:
        return len(_tokenize(tokenizer, text))

    return count


def render(
    problem: Problem, tokenizer: "PreTrainedTokenizerBase", query: str, extra_prompt: str = ""
) -> tuple[list[int], list[int]]:
    """Return (context ids, query ids): the part that is compressed, and the part that is fed after the compression.

    query: "inside" compresses the whole prompt and leaves the query empty; "outside" compresses the prompt up
    to the question and feeds the question, the generation prompt and the answer's first words afterwards.

    The prompt is the tokenizer's chat template around one user message (the context, a line feed, the
    question), then the generation prompt and the problem's prefix. A template that prints today's date gets
    that of `DATE`. A tokenizer without a chat template gets plain text, "<context>\\n<question>\\nAnswer: <prefix>",
    after its beginning-of-sequence token if any. A problem without a question is compressed completely.
    extra_prompt: text of an arm on its own line at the end of the user message; it belongs to the question if that is
    outside. The prefix "<think>" is fed once, also if the template contains it, and never to a tokenizer that does not
    know it.

    The text is cut where the question starts and both parts are tokenized separately, so that "inside" and "outside"
    feed the same ids. A byte-level tokenizer gives these ids for the uncut text too, since a line feed before a letter
    ends a token; one that marks the beginning of a text (SentencePiece) may add a token at the cut.
    """
    if query not in ("inside", "outside"):
        raise BadInput(f"query {query!r}: write inside or outside")
    if query == "outside" and not problem.question:
        raise BadInput(f'problem {problem.id!r}: has no separate question; write query = "inside"')
    text = _prompt_text(problem, tokenizer, extra_prompt)
    start = text.find(_user_message(problem, extra_prompt))  # the prefix may repeat the question
    if start < 0:
        raise BadInput(f"problem {problem.id!r}: the chat template changes its text; use another tokenizer")
    cut = start + len(problem.context) + 1 if problem.question else len(text)
    context_ids, query_ids = (_tokenize(tokenizer, part) for part in (text[:cut], text[cut:]))
    return (context_ids + query_ids, []) if query == "inside" else (context_ids, query_ids)


def digest(context: Sequence[int], query: Sequence[int]) -> str:
    """Return the digest of the prompt that records contain."""
    return canonical.digest([list(context), list(query)])


def _tokenize(tokenizer: "PreTrainedTokenizerBase", text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _user_message(problem: Problem, extra_prompt: str) -> str:
    return "\n".join(part for part in (problem.context, problem.question, extra_prompt) if part)


def _prompt_text(problem: Problem, tokenizer: "PreTrainedTokenizerBase", extra_prompt: str) -> str:
    user_message = _user_message(problem, extra_prompt)
    if tokenizer.chat_template is None:
        prompt = f"{tokenizer.bos_token or ''}{user_message}\nAnswer: "
    else:
        messages = [{"role": "user", "content": user_message}]
        from jinja2 import TemplateError  # which transformers loads for a template

        dated = "strftime_now" in str(tokenizer.chat_template)
        template = FIXED_DATE + tokenizer.get_chat_template() if dated else None
        try:
            rendered = tokenizer.apply_chat_template(
                messages, chat_template=template, tokenize=False, add_generation_prompt=True
            )
        except (TemplateError, TypeError, ValueError, LookupError, ArithmeticError) as error:
            message = " ".join(str(error).split())[:160]
            raise BadInput(
                f"problem {problem.id!r}: its chat template fails: {message}; use another tokenizer"
            ) from None
        prompt = str(rendered)
    if problem.prefix != THINK:  # reading a vocabulary takes 20 ms
        return prompt + problem.prefix
    has_prefix = prompt.endswith(THINK) or THINK.strip() not in tokenizer.get_vocab()
    return prompt if has_prefix else prompt + THINK
