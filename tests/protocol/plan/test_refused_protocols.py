"""What a person may get wrong in protocol.toml, and what is said of it: the field, and the fix. The commonest
mistakes are in wrong_inputs.toml.
"""

from types import SimpleNamespace

import pytest
from studies import PROTOCOL, SWEEP

from policies import Blockwise, Policy
from policies.scissorhands import scissorhands
from protocol.formats.refusals import BadInput
from protocol.plan import checks, toml_reader

END = "the end of the file"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" + 43 * "x"


def changed(text: str, changes: dict[str, str]) -> str:
    for old, new in changes.items():
        assert old == END or old in text, old
        text = text + new if old == END else text.replace(old, new)
    return text


PLAIN = PROTOCOL.format(model="/nowhere")
SWEPT = changed(PLAIN, SWEEP)
LOSSLESS = changed(PLAIN, {"at_least = 1": "margin = 0.03", 'method = "sign-flip"': 'method = "t"'})
BRANCH = {'rule = "superior"': 'rule = "branch"\nprimary_model = "a"\ntransfer_model = "b"', "at_least = 1\n": ""}
DECISION = PLAIN[PLAIN.index("[decision]") :]
ARMS = PLAIN[PLAIN.index("[arms]") : PLAIN.index("[generation]")]
TASKS = PLAIN[PLAIN.index("[[tasks]]") : PLAIN.index("[arms]")]
DRAWS = "draws = 10000\nseed = 7\n"

SAMPLED = {"temperature = 0\n": "temperature = 0.6\n"}
TOP_P = "generation.top_p: write a number from 0.0001 to 1"

# A protocol that is right, what is changed in it, and what is said then.
REFUSED = [
    (
        PLAIN,
        {'policy = "crystal-token-level"': 'policy = "cristal"'},
        "arms.crystal.policy: unknown policy 'cristal'; did you mean 'crystal'?",
    ),
    (PLAIN, {"seeds = [0]": "seeds = [0]\nseed = 1"}, "seed: unknown field 'seed'; did you mean 'seeds'?"),
    (PLAIN, {"seeds = [0]": "seeds = [0]\nseeds = [1]"}, "line 6: invalid TOML: seeds = [1]; it stands twice"),
    (PLAIN, {"budgets = [0.8]": "budgets = [0.0]"}, "budgets[0]: a share"),
    (PLAIN, {"budgets = [0.8]": "budgets = [-3]"}, "budgets[0]: -3 slots"),
    (PLAIN, {"budgets = [0.8]": "budgets = [nan]"}, "budgets[0]: a share"),
    (PLAIN, {"budgets = [0.8]": "budgets = []"}, "budgets: write a list with at least one entry"),
    (PLAIN, {"budgets = [0.8]": "budgets = [0.8, 0.80]"}, "budgets: 0.8 stands twice"),
    (PLAIN, {"alpha = 0.05": "alpha = inf"}, "decision.alpha: write a number"),
    (PLAIN, {'subject = "crystal"': 'subject = "full"'}, "decision.subject: unknown evicting arm 'full'"),
    (PLAIN, {'against = ["random", "streaming"]': 'against = ["crystal"]'}, "decision.against: crystal is the subject"),
    (PLAIN, {"at_least = 1": "at_least = 9"}, "decision.at_least: 9 of 4 contrasts never hold"),
    (PLAIN, {"seed = 7": "seed = 9007199254740992"}, "decision.seed: write a whole number"),
    (PLAIN, {"A study for the test suite": "e\u0301tude"}, "title: text is not NFC"),
    (PLAIN, {'query = "inside"': 'query = "insde"'}, "tasks[0].query: unknown query 'insde'; did you mean 'inside'?"),
    (PLAIN, {"threads = 1": "threads = 1\nprefill_chunk = 0"}, "generation.prefill_chunk: write a whole number from 1"),
    (PLAIN, {"threads = 1": "threads = 1\nlanes_per_batch = 1.5"}, "generation.lanes_per_batch: write a whole number"),
    (
        PLAIN,
        {"threads = 1": "threads = 1\nlanes_per_bach = 4"},
        "generation.lanes_per_bach: unknown field 'lanes_per_bach'; did you mean 'lanes_per_batch'?",
    ),
    (
        PLAIN,
        {'full = { policy = "full" }': '"random (again)" = { policy = "full" }'},
        "arms.random (again): a name ending in ' (again)' is a probe's second run; rename it",
    ),
    (
        PLAIN,
        {"threads = 1": 'threads = 1\ninterval = 8\ncadence = "exakt"'},
        "generation.cadence: unknown cadence 'exakt'; did you mean 'exact'?",
    ),
    (LOSSLESS, {}, "decision.at_least: missing"),
    (LOSSLESS, {"margin = 0.03": "at_least = 1\nmargin = 0.03"}, "decision.margin: unknown field"),
    (LOSSLESS, {'"superior"': '"equivalent"', "margin = 0.03": ""}, "decision.margin: missing"),
    (
        LOSSLESS,
        {'"superior"': '"equivalent"', "margin = 0.03": "margin = 3"},
        "decision.margin: write 0.03 (a number from 0.001 to 0.5), not 3",
    ),
    (LOSSLESS, {'"superior"': '"equivalent"', "margin = 0.03": "margin = 0"}, "decision.margin: write a number"),
    (
        LOSSLESS,
        {'"superior"': '"equivalent"', '"t"': '"bootstrap"'},
        "decision.method: bootstrap has no test of a margin here",
    ),
    (
        LOSSLESS,
        {'"superior"': '"non_inferior"', '"t"': '"max-t"'},
        "decision.method: max-t has no test of a margin here; write t",
    ),
    (SWEPT, {'name = "chosen"': 'name = "full"'}, "sweep.name: 'full' is an arm; give the winner a name"),
    (SWEPT, {'name = "chosen"': 'name = "h2o (again)"'}, "sweep.name: h2o (again): a name ending in ' (again)'"),
    (SWEPT, {'subject = "chosen"': 'subject = "h2o"'}, "a sweep confirms its winner, 'chosen'"),
    (SWEPT, {'["h2o", "random"]': '["h2o", "radom"]'}, "sweep.candidates: unknown evicting arm 'radom'"),
    (SWEPT, {'["h2o", "random"]': '["h2o", "full"]'}, "sweep.candidates: unknown evicting arm 'full'"),
    (SWEPT, {'["h2o", "random"]': '["h2o"]'}, "sweep.candidates: name at least two"),
    (SWEPT, {'["h2o", "random"]': '["h2o", "h2o"]'}, "sweep.candidates: h2o stands twice"),
    (SWEPT, {'baseline = "streaming"': 'baseline = "full"'}, "sweep.baseline: unknown evicting arm 'full'"),
    (SWEPT, {'baseline = "streaming"': 'baseline = "h2o"'}, "sweep.baseline: h2o is a candidate"),
    (SWEPT, {"seeds = [3, 4]": "seeds = [3, 3]"}, "sweep.seeds: 3 stands twice"),
    (SWEPT, {"tolerance = 0.005": "tolerance = 0.5"}, "sweep.tolerance: write a number from 0 to 0.1"),
    (SWEPT, {"tolerance = 0.005": "tolerence = 0.005"}, "sweep.tolerance: missing; 'tolerence' is unknown"),
    (SWEPT, {"seeds = [3, 4]": "seeds = [3]\nsplit = 1"}, "sweep.split: unknown field 'split'"),
    (SWEPT, {'against = ["streaming"]': 'against = ["random"]'}, "decision.against: unknown evicting arm 'random'"),
    (SWEPT, {'beside = ["snapkv"]': 'beside = ["h2o"]'}, "decision.beside: unknown evicting arm 'h2o'"),
    (SWEPT, {'beside = ["snapkv"]': 'beside = ["streaming"]'}, "decision.beside: streaming is in the family"),
    (SWEPT, {'memory = "slots"': 'memory = "heads"'}, "decision.memory: unknown value 'heads'"),
    (SWEPT, {"threads = 1": 'threads = 1\nprompt = "pined"'}, "did you mean 'pinned'?"),
    (PLAIN, {END: f'\n[randomness]\nsource = "nonce"\nauditor = "{KEY} me"'}, "without a comment"),
    (PLAIN, {END: f'\n[randomness]\nsource = "nonce"\nauditor = "{KEY[:-1]}"'}, "write the auditor's public key"),
    (PLAIN, {END: '\n[randomness]\nsource = "nonce"\nauditor = "ssh-rsa AAAA"'}, "ssh-ed25519 AAAA..."),
    (PLAIN, {END: f'\n[randomness]\nsource = "nonce"\nauditor = "{KEY}"\nround = 1'}, "unknown field 'round'"),
    (PLAIN, {END: '\n[randomness]\nsource = "beacon"\nname = "drand"'}, "randomness.round: missing"),
    (PLAIN, {END: '\n[randomness]\nsource = "beacon"\nname = "drand"\nround = 0'}, "round: write a whole number"),
    (PLAIN, {END: '\n[randomness]\nsource = "beacon"\nround = 1'}, "randomness.name: missing"),
    (PLAIN, {END: '\n[randomness]\nsource = "anchor"\nname = "x"'}, "randomness.name: unknown field 'name'"),
    (PLAIN, {END: "\n[exclude]\nprompt_tokens_above = 0"}, "exclude.prompt_tokens_above: write a whole number from 1"),
    (PLAIN, {END: '\n[exclude]\nprompt_tokens_above = 9\ngrade = "wrong"'}, "exclude.grade: unknown field"),
    # A number in quotes, text without them, a table with the brackets of another kind.
    (
        PLAIN,
        {"threads = 1": 'threads = "1"'},
        'generation.threads: write 1 (a whole number from 1 to 1024), not the text "1" (line 24)',
    ),
    (PLAIN, {'title = "A study for the test suite"': "title = 1.5"}, 'title: write "1.5" (text), not 1.5 (line 2)'),
    (PLAIN, {'device = "cpu"': "device = 0"}, "generation.device: write one of cpu, cuda, not 0"),
    (
        PLAIN,
        {'against = ["random", "streaming"]': 'against = "random"'},
        'decision.against: write ["random"] (a list with at least one entry), not the text "random"',
    ),
    (PLAIN, {DECISION: "", "seeds = [0]": "seeds = [0]\ndecision = 3"}, "decision: write a table, not 3"),
    (PLAIN, {TASKS: ""}, "tasks: missing; add a table [[tasks]] with name, query, max_new_tokens"),
    (PLAIN, {ARMS: ""}, "arms: missing; add the table [arms], and in it NAME = { policy }"),
    (PLAIN, {ARMS: "[arms]\n"}, "arms: define at least one arm"),
    # A hint only where a name is near; else what there is.
    (
        PLAIN,
        {'policy = "crystal-token-level"': 'policy = "zzz"'},
        "arms.crystal.policy: unknown policy 'zzz'; kv-prereg policies lists all ",
    ),
    (
        PLAIN,
        {'subject = "crystal"': 'subject = "zzz"'},
        "decision.subject: unknown evicting arm 'zzz'; write one of crystal, random, streaming",
    ),
    # A field that stands with other words of another field.
    (
        PLAIN,
        {'method = "sign-flip"': 'method = "exact-bootstrap"'},
        "decision.draws: unknown field 'draws' where method is 'exact-bootstrap'; leave it out",
    ),
    (PLAIN, {DRAWS: "", 'method = "sign-flip"': 'method = "bootstrap"'}, "decision.draws: missing"),
    (
        PLAIN,
        BRANCH
        | {'models = ["path:/nowhere"]': 'models = ["chain-llama", "chain-qwen2", "smollm2-135m"]'}
        | {'"a"': '"chain-llama"', '"b"': '"chain-qwen2"'},
        "models: smollm2-135m is neither primary_model nor transfer_model of branch; leave it out",
    ),
    (
        PLAIN,
        BRANCH | {'method = "sign-flip"': 'method = "max-t"'},
        "decision.method: max-t is for whole families, and branch",
    ),
    (
        PLAIN,
        {"threads = 1": "threads = 1\ninterval = 8", 'policy = "crystal-token-level"': 'policy = "scissorhands"'},
        "generation.interval: NeglectCounts, which arm 'crystal' needs, cannot",
    ),
    (
        PLAIN,
        {"threads = 1": "threads = 1\nworkers = 0"},
        "generation.workers: write a whole number from 1 to 256, not 0",
    ),
    *(
        (PLAIN, SAMPLED | {"threads = 1": f"threads = 1\ntop_p = {top_p}"}, f"{TOP_P}, not {said}")
        for top_p, said in (("0", "0"), ("-0.5", "-0.5"), ("1.01", "1.01"), ("nan", "nan"), ("true", "true"))
    ),
    (
        PLAIN,
        {"threads = 1": "threads = 1\ntop_p = 0.9"},
        "generation.top_p: needs a temperature above 0, at which tokens are drawn; leave top_p out",
    ),
    (
        PLAIN,
        {"threads = 1": "threads = 1\nthink_only = true"},
        "generation.think_only: no arm has events while decoding; give an interval or leave it out",
    ),
    (
        PLAIN,
        {"threads = 1": "threads = 1\ninterval = 4\nthink_only = false"},
        "generation.think_only: write true, or leave it out, not false",
    ),
    (
        PLAIN,
        {'dtype = "float32"': 'dtype = "bfloat16"\nkernel = "native"'},
        'generation.kernel: "native" needs device = "cpu" and dtype = "float32"; write "eager", or leave it out',
    ),
    *(
        (
            PLAIN,
            {"threads = 1": f'threads = 1\npreserve = {{ prompt = true, recent = 4 }}\nprompt = "{prompt}"'},
            "generation.preserve: says what becomes of the prompt; leave generation.prompt out",
        )
        for prompt in ("pinned", "competes")
    ),
    *(
        (
            PLAIN,
            {"threads = 1": f"threads = 1\npreserve = {{ prompt = true, recent = {recent} }}"},
            'generation.preserve.recent: write a whole number of slots, "K/4" or "min(128, K/4)", where K is '
            f"the budget, not {said}",
        )
        for recent, said in (("-1", "-1"), ('"K/0"', 'the text "K/0"'), ('"4*K"', 'the text "4*K"'), ("true", "true"))
    ),
    (PLAIN, {"threads = 1": "threads = 1\npreserve = { prompt = true }"}, "generation.preserve.recent: missing"),
    (
        PLAIN,
        {"threads = 1": "threads = 1\npreserve = { prompt = 1, recent = 4 }"},
        "generation.preserve.prompt: write true or false, not 1",
    ),
    (
        PLAIN,
        {"threads = 1": "threads = 1\npreserve = { prompt = true, recent = 4, sinks = 4 }"},
        "generation.preserve.sinks: unknown field 'sinks'",
    ),
    (
        PLAIN,
        {'full = { policy = "full" }': 'full = { policy = "full-subspace" }'},
        "arms.full.policy: never evicts and stores its slots otherwise than computed, so that it is no full",
    ),
    (PLAIN, {'missing = "inconclusive"': 'missing = "dropped"'}, "decision.missing: unknown value 'dropped'"),
]


@pytest.mark.parametrize(("right", "changes", "said"), REFUSED, ids=[row[2] for row in REFUSED])
def test_a_mistake_is_refused_by_field_with_the_fix(right, changes, said):
    with pytest.raises(BadInput) as refusal:
        toml_reader.parse(changed(right, changes).encode(), "protocol.toml")
    assert str(refusal.value).startswith("protocol.toml: ")
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("right", [PLAIN, SWEPT], ids=["plain", "swept"])
def test_what_these_mistakes_are_made_in_is_right(right):
    assert toml_reader.parse(right.encode(), "protocol.toml").title == "A study for the test suite"


def test_a_policy_whose_signals_stop_with_the_prompt_is_refused_where_it_reads_in_blocks():
    """None of the catalogue does; one of another distribution may."""
    policy = Policy(scissorhands().scoring, cadence=Blockwise())
    generation = SimpleNamespace(first_event=None, think_only=False, preserve=None)
    design = SimpleNamespace(arms=[SimpleNamespace(name="own")], generation=generation, policy=lambda name: policy)
    assert list(checks._intervals(design)) == [
        "arms.own.policy: NeglectCounts, which it needs, cannot be measured from block to block; choose a "
        "policy without blocks"
    ]
