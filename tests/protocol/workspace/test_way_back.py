"""Code that moved on after a lock: the refusal names the commit, and what it says to type works."""

import re
import subprocess
from types import SimpleNamespace

import outside_studies
import pytest
import studies

from protocol.workspace import run_inputs

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def git(folder, *arguments):
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.mark.soak  # every command compiles the tree that it locked
def test_outputs_are_read_in_a_worktree_of_the_commit_that_was_locked(tmp_path):
    tree = studies.copy_tree(tmp_path / "tree")
    git(tree, "init", "--quiet")
    git(tree, "add", ".")
    git(tree, "commit", "--quiet", "--message", "code")
    folder = outside_studies.write(tree / "registrations" / "sums")
    assert studies.command("register", folder, tree=tree).returncode == 0
    assert studies.command("confirm", folder, tree=tree).returncode == 6
    released = studies.json.loads((folder / "outside/released.json").read_text())["sums_test"]
    outputs = tmp_path / "outputs"
    for arm in ("none", "h2o"):
        outputs.mkdir(exist_ok=True)
        wrong = {item: float(number >= 4 * (arm == "h2o")) for number, item in enumerate(released)}
        outside_studies.write_csv(outputs / f"{arm}.csv", wrong)
    with (tree / "analysis/judge.py").open("a") as file:
        file.write("# moved on\n")
    git(tree, "commit", "--quiet", "--all", "--message", "later")
    refused = studies.command("confirm", folder, "--outputs", outputs, tree=tree)
    assert refused.returncode == 3
    (message,) = (line for line in refused.stderr.splitlines() if "since the lock" in line)
    added = re.search(r"git worktree add --detach (\S+) [0-9a-f]{12}(?=;)", message)
    assert added[0] in studies.command("status", folder, tree=tree).stdout
    subprocess.run(added[0].split(), cwd=tree, check=True, capture_output=True)
    named = re.search(r"python -m protocol COMMAND (\S+)", message)[1]
    assert named == str(folder)
    done = studies.command("confirm", named, "--outputs", outputs, tree=tree / added[1])
    assert done.returncode == 0, done.stderr
    assert (folder / "verdict.json").exists()


@pytest.mark.parametrize(
    ("differences", "commit", "is_named"),
    [
        (["analysis/judge.py: changed"], {"commit": COMMIT, "differs": []}, True),
        (["analysis/judge.py: missing", "environment/python: changed"], {"commit": COMMIT, "differs": []}, True),
        (["environment/python: changed"], {"commit": COMMIT, "differs": []}, False),
        (["analysis/judge.py: changed"], {"commit": COMMIT, "differs": ["analysis/judge.py"]}, False),
        (["analysis/judge.py: changed"], None, False),
    ],
)
def test_a_commit_is_named_only_where_it_has_the_sources(tmp_path, differences, commit, is_named):
    content = {"sources": {"analysis/judge.py": "0" * 64}, "git": commit}
    study = SimpleNamespace(folder=tmp_path, lock=SimpleNamespace(content=content))
    message = run_inputs.describe_way_back(study, differences)
    assert message.startswith("restore the locked files")
    assert (COMMIT in message) is is_named
