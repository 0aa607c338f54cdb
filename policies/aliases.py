"""Names that papers and other libraries use for policies of the catalogue, and hints for what is none.

An alias of a policy stands with its facts, in its file.
"""

from collections.abc import Mapping
from types import MappingProxyType

from protocol.formats.policy_facts import read_policy_facts

READ_SELECTION = (
    "it selects what a decode step reads and evicts nothing, so that it is not a policy here; choose "
    "one from kv-prereg policies"
)
ORACLE = (
    "it keeps the slots that the labels of kv-prereg anatomy mark as needed, which no policy can know; "
    "choose another policy"
)
ALIASES: Mapping[str, str] = MappingProxyType(
    {
        **{alias: name for name, facts in read_policy_facts().items() for alias in facts.aliases},
        **dict.fromkeys(("sliding-window", "window"), 'write "streaming": the first slots and the latest'),
        **dict.fromkeys(("oracle-occlusion", "oracle"), ORACLE),
        **dict.fromkeys(("quest", "infinigen", "minference", "nsa", "shadowkv"), READ_SELECTION),
    }
)
