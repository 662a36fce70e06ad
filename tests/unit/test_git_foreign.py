"""Git directories that an agent may have created: no program in their configuration runs."""

import asyncio
import contextlib
import os
from pathlib import Path

import pytest
from rametd.domain.errors import GitFailedError, WorktreeChangedError
from rametd.domain.trust import item_digest
from rametd.git.process import GitProcess
from rametd.git.registrations import verify_worktree

from tests.support import repositories


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "ran"


@pytest.fixture
def process(tmp_path: Path) -> GitProcess:
    return GitProcess(
        repositories.git_environment(tmp_path / "home"), trusted={(tmp_path / "repo/.git").resolve(): frozenset()}
    )


async def make(process: GitProcess, directory: Path, *evil: tuple[str, str]) -> Path:
    """Create a repository with a file, and with settings that run a program."""
    directory.mkdir(parents=True, exist_ok=True)
    await process.write(directory, "init", "-q")
    (directory / "file.txt").write_text("text\n")
    (directory / ".gitattributes").write_text("* filter=evil\n")
    for key, value in evil:
        await process.write(directory, "config", key, value)
    return directory / ".git"


def add(file: Path, text: str) -> None:
    file.write_text(file.read_text() + text)


async def touched(process: GitProcess, directory: Path, git_dir: Path) -> None:
    """Read and fill a worktree as snapshots, diffs and checkouts do."""
    there = (f"--git-dir={git_dir}", f"--work-tree={directory}")
    await process.write(directory, *there, "add", "-A")
    (directory / "file.txt").write_text("other\n")
    await process.read(directory, *there, "status", "--porcelain")
    await process.write(directory, *there, "add", "-A")
    (directory / "file.txt").unlink()
    await process.write(directory, *there, "checkout-index", "-a", "-f")


CARRIERS = [
    "config",
    "included",
    'included if "gitdir:**"',
    'included if "onbranch:**"',
    'included if "hasconfig:remote.*.url:**"',
    "config.worktree",
]


def plant(git_dir: Path, mark: Path, carrier: str, driver: str = "evil") -> None:
    """Configure a filter that leaves a mark."""
    evil = f'[filter "{driver}"]\n\tclean = touch {mark}; cat\n\tsmudge = touch {mark}; cat\n\tprocess = touch {mark}\n\trequired = true\n'
    if carrier.startswith("included"):
        (git_dir / "more").write_text(evil)
        condition = carrier.removeprefix("included").replace(" if", "If", 1)
        add(git_dir / "config", f'[remote "o"]\n\turl = x\n[include{condition}]\n\tpath = more\n')
    elif carrier == "config.worktree":
        add(git_dir / "config", "[extensions]\n\tworktreeConfig = true\n")
        (git_dir / "config.worktree").write_text(evil)
    else:
        add(git_dir / "config", evil)


@pytest.mark.parametrize("where", ["repo/nested", "repo/.git/modules/x", "elsewhere"])
@pytest.mark.parametrize("carrier", CARRIERS)
async def test_the_filters_of_a_nested_repository_do_not_run(
    tmp_path: Path, process: GitProcess, mark: Path, where: str, carrier: str
) -> None:
    await make(process, tmp_path / "repo")
    nested = tmp_path / where
    git_dir = await make(process, nested)
    plant(git_dir, mark, carrier)
    await touched(process, nested, git_dir)
    assert not mark.exists()
    assert (nested / "file.txt").read_text() == "other\n"


async def test_no_name_of_a_driver_hides_it(tmp_path: Path, process: GitProcess, mark: Path) -> None:
    await make(process, tmp_path / "repo")
    for number, driver in enumerate(("a=b", "a.clean=b", "a.b", "\u2028")):
        nested = tmp_path / f"repo/{number}"
        git_dir = await make(process, nested)
        (nested / ".gitattributes").write_text(f"* filter={driver}\n")
        plant(git_dir, mark, "config", driver)
        await touched(process, nested, git_dir)
        assert not mark.exists(), driver


async def test_git_finds_no_filters_by_itself_either(tmp_path: Path, process: GitProcess, mark: Path) -> None:
    await make(process, tmp_path / "repo")
    nested = tmp_path / "repo/nested"
    plant(await make(process, nested), mark, "config")
    (nested / "below").mkdir()
    for where in (nested, nested / "below"):
        await process.write(where, "add", "-A", "--", ":/")
    assert not mark.exists()


@pytest.mark.parametrize(
    ("key", "replacement"),
    [
        ("filter.x.clean", ""),
        ("filter.x.required", "false"),
        ("merge.x.driver", "git merge-file %A %O %B"),
        ("core.sshCommand", ""),
        ("core.alternateRefsCommand", ""),
        ("credential.helper", ""),
        ("credential.https://example.org.helper", ""),
        ("gpg.ssh.program", "false"),
        ("gpg.ssh.defaultKeyCommand", ""),
        ("gpg.format", "openpgp"),
        ("lfs.customtransfer.x.path", ""),
        ("lfs.extension.x.clean", ""),
        ("lfs.extension.x.smudge", ""),
        ("remote.o.promisor", "false"),
    ],
)
async def test_programs_that_git_starts_see_no_command_of_a_nested_repository(
    tmp_path: Path, process: GitProcess, key: str, replacement: str
) -> None:
    await make(process, tmp_path / "repo")
    nested = tmp_path / "repo/nested"
    await make(process, nested, (key, "evil"))
    assert await process.read(nested, "config", "--get", key) == f"{replacement}\n".encode()
    await process.write(tmp_path, "config", "--global", key, "own")
    assert await process.read(nested, "config", "--get", key) == b"own\n"


@pytest.mark.parametrize("verb", ["fetch", "push", "ls-remote"])
@pytest.mark.parametrize("key", ["uploadpack", "receivepack"])
async def test_git_connects_for_no_repository_that_names_the_other_ends_program(
    tmp_path: Path, process: GitProcess, mark: Path, verb: str, key: str
) -> None:
    await make(process, tmp_path / "repo")
    nested = tmp_path / "repo/nested"
    await make(
        process, nested, ("remote.o.url", f"{tmp_path}/repo"), (f"remote.o.{key}", f"touch {mark}; git-upload-pack")
    )
    with pytest.raises(GitFailedError, match=key):
        await process.write(nested, verb, "o", environment={"GIT_ALLOW_PROTOCOL": "file"})
    assert not mark.exists()


@pytest.mark.parametrize("condition", ["", 'if "onbranch:**"'])
@pytest.mark.parametrize("name", ["../.gitconfig", "{top}/.gitconfig", "~/../repo/.gitconfig", "../conf/.gitconfig"])
async def test_git_configuration_in_the_checkout_runs_only_as_it_was_trusted(
    tmp_path: Path, mark: Path, condition: str, name: str
) -> None:
    top, trusted = tmp_path / "repo", dict[Path, frozenset[str]]()
    process = GitProcess(repositories.git_environment(tmp_path / "home"), trusted=trusted)
    common = await make(process, top)
    add(common / "config", f"[include{condition}]\n\tpath = {name.format(top=top)}\n".replace("includeif", "includeIf"))
    evil, tree = f'[filter "evil"]\n\tclean = touch {mark}; cat\n', tmp_path / "tree"
    item = "conf/.gitconfig" if "conf/" in name else ".gitconfig"
    (tmp_path / "elsewhere").mkdir()
    (top / "conf").symlink_to(tmp_path / "elsewhere")
    await commit(process, top)
    await process.write(top, "worktree", "add", "-q", "-b", "tree", str(tree))
    (tmp_path / "beyond").write_text(evil)
    for text, known, runs in (
        (evil, "", False),
        (evil, evil, True),
        (f"{evil}# changed\n", evil, False),
        (f"[include]\n\tpath = {tmp_path}/beyond\n", evil, False),
    ):
        (top / item).write_text(text)
        trusted[common.resolve()] = frozenset({item_digest(item, known)})
        for each in (top, tree):
            mark.unlink(missing_ok=True)
            (each / "file.txt").write_text(f"{text}{runs}")
            await process.write(each, "add", "-A")
            assert mark.exists() == runs, (each, text)
            for words in (("fetch", str(tmp_path)), ("lfs", "push", "o", "HEAD")):
                with contextlib.nullcontext() if runs else pytest.raises(GitFailedError, match=r"\.gitconfig"):
                    await process.run(each, *words)


@pytest.mark.parametrize(
    ("own", "included", "words"),
    [
        pytest.param(
            (
                ("core.repositoryFormatVersion", "1"),
                ("extensions.partialClone", "o"),
                ("remote.o.promisor", "true"),
                ("remote.o.url", "https://example.invalid/"),
            ),
            '[protocol "ext"]\n\tallow = always\n[url "ext::touch {mark}"]\n\tinsteadOf = https://example.invalid/\n',
            ("cat-file", "-p", "1" * 40),
            id="partial clone",
        ),
        pytest.param(
            (("commit.gpgSign", "true"), ("gpg.program", "false")),
            '[gpg]\n\tformat = ssh\n[gpg "ssh"]\n\tdefaultKeyCommand = touch {mark}\n',
            ("commit", "--allow-empty", "-qm", "x"),
            id="signing",
        ),
    ],
)
async def test_git_configuration_in_the_checkout_redirects_no_setting_of_the_person(
    tmp_path: Path, mark: Path, own: tuple[tuple[str, str], ...], included: str, words: tuple[str, ...]
) -> None:
    top, trusted = tmp_path / "repo", dict[Path, frozenset[str]]()
    process = GitProcess(repositories.git_environment(tmp_path / "home"), trusted=trusted)
    common = await make(process, top, *own, ("include.path", "../.gitconfig"))
    text = included.format(mark=mark)
    (top / ".gitconfig").write_text(text)
    for known in ("", text):
        trusted[common.resolve()] = frozenset({item_digest(".gitconfig", known)})
        await process.run(top, *IDENTITY, *words)
        assert mark.exists() == bool(known)


@pytest.mark.parametrize("place", ["sub", "sub/deeper"])
@pytest.mark.parametrize(
    "words",
    [
        ("add", "-A"),
        ("status", "--porcelain"),
        ("diff", "--name-only"),
        ("diff-files",),
        ("commit", "-qam", "x"),
        ("checkout", "-q", "HEAD"),
        ("reset", "-q", "--hard"),
    ],
    ids=lambda words: words[0],
)
async def test_git_enters_a_submodule_without_its_filters(
    tmp_path: Path, process: GitProcess, mark: Path, place: str, words: tuple[str, ...]
) -> None:
    identity = ("-c", "user.name=x", "-c", "user.email=x")
    for each in ("repo/sub/deeper", "repo/sub", "repo"):
        await make(process, tmp_path / each, ("submodule.recurse", "true"))
        await process.write(tmp_path / each, *identity, "add", "-A")
        await process.write(tmp_path / each, *identity, "commit", "-qm", "x")
    (tmp_path / "repo/.gitmodules").write_text('[submodule "sub"]\n\tpath = sub\n\turl = ./sub\n')
    plant(tmp_path / "repo" / place / ".git", mark, "config")
    tree = tmp_path / "repo"
    (tree / place / "file.txt").write_text("next\n")  # of the same size: git must read it
    await process.run(tree, f"--git-dir={tree}/.git", f"--work-tree={tree}", *identity, *words)
    assert not mark.exists()


@pytest.mark.parametrize("where", ["repo/nested", "elsewhere"])
async def test_a_nested_repository_fetches_nothing(tmp_path: Path, process: GitProcess, mark: Path, where: str) -> None:
    await make(process, tmp_path / "repo")
    evil = (("remote.o.url", str(tmp_path)), ("remote.o.promisor", "true"), ("remote.o.uploadpack", f"touch {mark};"))
    git_dir = await make(
        process,
        tmp_path / where,
        ("core.repositoryFormatVersion", "1"),
        ("extensions.partialClone", "o"),
        *evil,
    )
    for options in ((f"--git-dir={git_dir}",), ()):
        done = await process.run(git_dir, *options, "cat-file", "-p", "1" * 40)
        assert done.returncode
        done = await process.run(git_dir.parent, *options, "for-each-ref", f"--contains={'1' * 40}")
        assert done.returncode
    assert not mark.exists()


async def test_a_repository_runs_its_own_filters_and_a_nested_one_the_persons(
    tmp_path: Path, process: GitProcess, mark: Path
) -> None:
    filters = (
        ("filter.evil.clean", f"touch {mark}; cat"),
        ("filter.evil.smudge", "cat"),
        ("filter.evil.required", "true"),
    )
    outer = await make(process, tmp_path / "repo", *filters)
    await touched(process, tmp_path / "repo", outer)
    assert mark.exists()

    own = tmp_path / "own"
    for key, value in (("filter.evil.clean", f"touch {own}; cat"), ("filter.evil.smudge", "cat")):
        await process.write(tmp_path, "config", "--global", key, value)
    mark.unlink()
    nested = await make(process, tmp_path / "repo/nested", *filters)
    await touched(process, tmp_path / "repo/nested", nested)
    assert own.exists()
    assert not mark.exists()


async def test_a_worktree_is_one_of_a_registered_repository(tmp_path: Path, process: GitProcess) -> None:
    common = await make(process, tmp_path / "repo")
    await process.write(tmp_path / "repo", "add", "-A")
    await process.write(tmp_path / "repo", "-c", "user.name=x", "-c", "user.email=x", "commit", "-qm", "x")
    tree = tmp_path / "tree"
    await process.write(tmp_path / "repo", "worktree", "add", "-q", str(tree))
    trusted = {common.resolve()}
    assert verify_worktree(tree, None, trusted).parent == common.resolve() / "worktrees"
    assert verify_worktree(tmp_path / "repo", None, trusted) == common.resolve()

    other = await make(process, tmp_path / "other")
    entry = tree / ".evil"
    entry.mkdir()
    (entry / "HEAD").write_text("ref: refs/heads/tree\n")
    (entry / "commondir").write_text(f"{common}\n")
    (entry / "gitdir").write_text(f"{tree}/.git\n")
    for leads_to in (other, entry):
        (tree / ".git").write_text(f"gitdir: {leads_to}\n")
        with pytest.raises(WorktreeChangedError, match="belongs to another repository"):
            verify_worktree(tree, None, trusted)


IDENTITY = ("-c", "user.name=x", "-c", "user.email=x")


async def commit(process: GitProcess, directory: Path) -> None:
    await process.write(directory, *IDENTITY, "add", "-A")
    await process.write(directory, *IDENTITY, "commit", "-qm", "x")


async def test_a_linked_git_directory_hides_no_filter(tmp_path: Path, process: GitProcess, mark: Path) -> None:
    sub = tmp_path / "repo/sub"
    for each in (sub, tmp_path / "repo"):
        await make(process, each)
        await commit(process, each)
    real = (sub / ".git").rename(tmp_path / "repo/.real")
    (sub / ".git").symlink_to("../.real")
    plant(real, mark, f'included if "gitdir:{sub}/.git"')
    for where, words in ((tmp_path / "repo", ("status",)), (tmp_path / "repo", ("add", "-A")), (sub, ("add", "-A"))):
        (sub / "file.txt").write_text(f"{words[0]:4}\n")
        await process.run(where, *words)
        assert not mark.exists(), (where, words)


async def test_a_module_that_git_uses_again_runs_nothing(tmp_path: Path, process: GitProcess, mark: Path) -> None:
    inner, repo, tree = tmp_path / "inner", tmp_path / "repo", tmp_path / "tree"
    await make(process, inner)
    await commit(process, inner)
    await make(process, repo)
    files = {"GIT_ALLOW_PROTOCOL": "file"}
    await process.write(repo, "submodule", "--quiet", "add", str(inner), "sub", environment=files)
    await commit(process, repo)
    await process.write(repo, "worktree", "add", "-q", str(tree))
    update = ("submodule", "--quiet", "update", "--init", "--checkout", "--", "sub")
    await process.write(tree, *update, environment=files)
    module = repo / ".git/worktrees/tree/modules/sub"
    plant(module, mark, "config")
    (inner / "file.txt").write_text("next\n")
    await commit(process, inner)
    new = (await process.read(inner, "rev-parse", "HEAD")).decode().strip()
    await process.write(tree, "update-index", "--cacheinfo", f"160000,{new},sub")
    for name in (".git", "file.txt", ".gitattributes"):
        (tree / "sub" / name).unlink()
    await process.write(tree, *update, environment=files)
    assert (tree / "sub/file.txt").read_text() == "next\n"
    assert not mark.exists()
    add(module / "config", f'[remote "origin"]\n\tuploadpack = touch {mark}; git-upload-pack\n')
    with pytest.raises(GitFailedError, match="uploadpack"):
        await process.write(tree, *update, environment=files)
    assert not mark.exists()


@pytest.mark.parametrize("trap", ["links", "index", "config", "commondir", "directory", "loop"])
async def test_no_submodule_blocks_git_or_fails_but_as_git(tmp_path: Path, process: GitProcess, trap: str) -> None:
    repo, sub = tmp_path / "repo", tmp_path / "repo/sub"
    for each in (sub, repo):
        await make(process, each)
        await commit(process, each)
    inner = sub / ".git"
    if trap == "links":
        head = (await process.read(sub, "rev-parse", "HEAD")).decode().strip()
        for name in "ab":
            (sub / name).symlink_to(".")
            await process.write(sub, "update-index", "--add", "--cacheinfo", f"160000,{head},{name}")
    elif trap == "loop":
        inner.rename(repo / ".real")
        inner.symlink_to(".git")
    else:
        name = "index" if trap == "directory" else trap
        (inner / name).unlink(missing_ok=True)
        (inner / name).mkdir() if trap == "directory" else os.mkfifo(inner / name)
    words = (f"--git-dir={repo}/.git", f"--work-tree={repo}", "status", "--porcelain")
    async with asyncio.timeout(30):
        with contextlib.suppress(GitFailedError):
            await process.read(repo, *words)
