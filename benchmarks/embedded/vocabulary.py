"""The vocabulary of the embedded models: whole words, separated by spaces."""

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from protocol.tasks.chain import DIGITS, OPERATORS, VARIABLES

__all__ = ["TEMPLATE", "tokenizer"]

SPECIAL = ("<pad>", "<unk>", "<s>", "</s>", "<think>")
PLAIN = ("find", "?", "starting", "from", "using", "gives", "=", ";")
# One user message, after which thinking begins; the form of the DeepSeek-R1-Distill templates.
TEMPLATE = "{{ bos_token }} {{ messages[0]['content'] }}{% if add_generation_prompt %} <think>{% endif %}"


def tokenizer() -> PreTrainedTokenizerFast:
    """A word of the task is one token; any other word is <unk>, so that every text can be fed."""
    words = [*SPECIAL, *PLAIN, *DIGITS, *OPERATORS, *(f"\\boxed{{{digit}}}" for digit in DIGITS)]
    words += [mark + name for mark in ("", ">", "@") for name in VARIABLES]
    backend = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, "<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        clean_up_tokenization_spaces=False,
        model_max_length=1024,
    )
    made.chat_template = TEMPLATE
    return made
