"""CrystalCache: trunks of text that are dissolved from the lowest score up.

Po-Ting Lin, "CrystalCache: Cross-Domain Transfer from Cognitive Memory Crystallization to KV Cache Eviction
in Long-Context LLMs". Equations, sections and tables cited here are of that paper. Its stages S1-S6:
`coattention` S1, `trunks` S2, `impact` S3, `graph` S4, `dissolution` S5 and S6. While decoding (section 3.8):
`breath`, on the `table` that `scoring` keeps between eviction steps.

May import: policies, protocol.formats; torch.
"""

from policies.crystal.dissolution import BranchDissolution
from policies.crystal.policy import CrystalConfig, crystal

__all__ = ["BranchDissolution", "CrystalConfig", "crystal"]
