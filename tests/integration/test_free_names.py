"""Names for new branches among very many: the same result as a search of all."""

from pathlib import Path

import pytest
from rametd.domain.errors import BranchTakenError
from rametd.git import branches, names
from rametd.git.repository import discover

from tests.support import repositories
from tests.support.repositories import Sample


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    sample = repositories.plain(tmp_path / "repo", repositories.git_environment(tmp_path / "home"))
    for name in ("ramet/one", "ramet/Two", "ramet/two-2", "ramet/deep/er", "flat", "other/x"):
        sample.git("branch", name)
    sample.git("pack-refs", "--all")
    for name in ("ramet/loose", "loose/below"):
        sample.git("branch", name)
    return sample


@pytest.mark.parametrize(
    "text", ["ramet/one", "ramet/two", "ramet/deep", "ramet/loose", "flat/y", "loose", "new", "ramet", "…"]
)
def test_a_free_name_is_the_one_that_all_branches_would_lead_to(sample: Sample, text: str) -> None:
    repo = discover(sample.path)
    everything = branches.branch_names(repo) | {"ramet/mine"}
    found = branches.free_name(repo, text, fallback="ramet/id", taken={"ramet/mine"})
    assert found == names.branch_name(text, fallback="ramet/id", taken=everything)
    branches.require_free(repo, found, new=True)


@pytest.mark.parametrize(
    ("name", "other"),
    [("ramet/deep", "ramet/deep/er"), ("loose", "loose/below"), ("flat/y", "flat"), ("ramet/loose/z", "ramet/loose")],
)
def test_a_branch_that_cannot_exist_beside_another_is_refused_with_its_name(
    sample: Sample, name: str, other: str
) -> None:
    with pytest.raises(BranchTakenError, match=f"beside {other}"):
        branches.require_free(discover(sample.path), name, new=True)
