"""The vocabularies of the embedded models: whole words, separated by spaces."""

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from protocol.tasks import straight_line
from protocol.tasks.chain import DIGITS, OPERATORS, VARIABLES

SPECIAL = ("<pad>", "<unk>", "<s>", "</s>", "<think>")
PLAIN = ("find", "?", "starting", "from", "using", "gives", "=", ";")
# One user message, after which thinking begins; the form of the DeepSeek-R1-Distill templates.
TEMPLATE = "{{ bos_token }} {{ messages[0]['content'] }}{% if add_generation_prompt %} <think>{% endif %}"


def tokenizer() -> PreTrainedTokenizerFast:
    """That of the chain models."""
    words = [*SPECIAL, *PLAIN, *DIGITS, *OPERATORS, *(f"\\boxed{{{digit}}}" for digit in DIGITS)]
    words += [mark + name for mark in ("", ">", "@") for name in VARIABLES]
    return make_tokenizer({word: place for place, word in enumerate(words)}, 1024)


def programs_words() -> dict[str, int]:
    """The tokens of the models of straight-line programs."""
    return {word: place for place, word in enumerate([*SPECIAL, *straight_line.words()])}


def programs_tokenizer() -> PreTrainedTokenizerFast:
    return make_tokenizer(programs_words(), 2048)


def make_tokenizer(words: dict[str, int], longest: int) -> PreTrainedTokenizerFast:
    """A word of the task is one token; any other word is <unk>, so that every text can be fed."""
    backend = Tokenizer(models.WordLevel(words, "<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        clean_up_tokenization_spaces=False,
        model_max_length=longest,
    )
    made.chat_template = TEMPLATE
    return made
