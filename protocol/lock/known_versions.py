"""Known older versions of this project's code, by the digests of their locked sources.

Only a known version is an excuse for a lock or a verdict that differs from today's; an author's claim is not.
The versions are those that the studies shipped under registrations/ were locked with; today's tree needs no
entry. A registration that is shipped from now on adds its own line.
"""

from collections.abc import Mapping

from protocol.formats import canonical
from protocol.lock import closure

__all__ = ["is_known_version", "package_digest"]

KNOWN_DIGESTS = frozenset(
    {
        (  # quickstart, retrieval
            "64e2fc6c4e907e96d9071dc9a8bdee8f9f0339aa57acc7099404db397272b437",
            "a7fe6daae9629b9fd7ee68fecc46f82c93a154f8cbe81d7cf29c4243cd05561d",
        ),
        (  # crystal-ablations
            "5c6847354957a3c9ac62f9738992cfc97f5dcc5eac0b290d1da63101f3132844",
            "4a9df2f829de1fbccd3436a2d640610750f78803455252dbb36a701e74d680f6",
        ),
        (  # crystal-long, crystal-retrieval
            "4f91199444a3fefc89bd2d1d020408ac5af8f0fffab28fbd1a24603431c042cc",
            "4a9df2f829de1fbccd3436a2d640610750f78803455252dbb36a701e74d680f6",
        ),
        (  # alpha-chain
            "8fc4b395dd0c0cfa0ca0e58c82ee65a635b27292b7ce07c2a91695497e8b9799",
            "ef3a03a79b6d615c165bc39459f1e7a7d5c3be297d417cb3e6617e66268496fa",
        ),
        (  # lossless-chain
            "88c1d682799e1e113c988c765b3a55bb4ca0f93dab3c08eb3d1d1424a5784bce",
            "254de2deae8a0d274686e3432b5c687c7652f94a6044283b8acda8a0c93d02ef",
        ),
        (  # reasoning-field
            "1088cbf7ba3d72f499f22eaa90463d6cdd4e8d9adcc7e2d34b0339c0c46205c1",
            "9a66aa07806ddcf2874fa04ce2a93e7e5c9b06f1b41bd5a9d011571c5ec61f8c",
        ),
        (  # gates-chain, crystal-retrieval-2
            "b0717a6870b153fe48c189bcc5e99cac7c88c2006b6e3240d946b6e6be608471",
            "438f0ebd5e39ddbf427406ab5d2d10d93c364216cfa66731553793e2026fe53f",
        ),
        (  # anatomy-chain
            "dca7277407c096d36c2d8e4a40b6af845292c60280d97f5d50bc9dc22a09eca7",
            "bfcc2c7ff569932b78dd6b52525b75c88c1197d1c21a2f0bc27c36821830265f",
        ),
        (  # lrfu-grid
            "e7d83c20b683211e2ca777379e03b9fcc7db8032047700c6ed9ff1bc61d48f57",
            "9a66aa07806ddcf2874fa04ce2a93e7e5c9b06f1b41bd5a9d011571c5ec61f8c",
        ),
    }
)
"""Digests of the files of `protocol` and of those of `analysis`, in pairs of one version."""


def is_known_version(sources: Mapping[str, str]) -> bool:
    """Whether these locked sources are a known older version.

    sources: SHA-256 by path, as in a lock; the bundle ties them to the files.
    """
    return (package_digest(sources, "protocol"), package_digest(sources, "analysis")) in KNOWN_DIGESTS


def package_digest(sources: Mapping[str, str], package: str) -> str:
    """Return the digest of the files of a package, e.g. "analysis"; empty if a path is not ASCII."""
    assert package in closure.PACKAGES
    files = {path: sha256 for path, sha256 in sources.items() if path.startswith(f"{package}/")}
    return canonical.digest(files) if all(map(str.isascii, files)) else ""
