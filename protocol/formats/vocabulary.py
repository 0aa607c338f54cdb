"""Names that protocols, records and judgements share: arms and budgets with a meaning of their own, and verdicts."""

AS_RUN = "as run"  # the budget of cells that another harness runs: nothing here saw what they hold
FULL = "full"  # the comparator that never evicts, and the budget of its cells
OF_FULL = " of full"  # suffix of a budget that is a share of what the full cache holds
BYTES_OF = "bytes of "  # prefix of a budget that is the bytes of that many slots as computed
READS = "reads"  # of `decision.memory`: arms are compared by the slots that new tokens read
ISO_CACHE = "iso-cache"  # how unmatched memory is judged: by the comparator's measurements around it
OFFICIAL = "lm_eval:"  # prefix of the graders that are official scorers of lm-eval
RANDOMNESS = "randomness"  # the field of a protocol and of a claim about a value of after the lock
LATE_CITED = "cited"  # the source of that value that is the claim of a cited study
LATE_SOURCES = ("nonce", "beacon", "anchor", "local", LATE_CITED)  # what brings that value
CURRENT_JUDGING = 3  # the rules of judging of every new study but those with `slip`
SHARED_ALPHA_JUDGING = 4  # these: as 3, and its questions share one alpha with that of the chosen signal
RERUN_SUFFIX = " (again)"  # suffix of the name of an arm that a probe runs a second time
VERDICT_WORDS = ("CONFIRMED", "REFUTED", "INCONCLUSIVE", "SCREENED", "DEVIATED", "RE-USED")  # of the judge
# Characters that print nothing: Hangul fillers, Khmer vowels, a joiner, blank Braille.
BLANKS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
