"""Completion in shells."""

import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ramet.v1 import daemon_pb2, repo_pb2

from tests.support.client import Terminal, World
from tests.support.client import world as make_world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with make_world(tmp_path) as made:
        yield made


def program(world: World) -> Path:
    """Write a program ``rametctl``; return its directory."""
    file = world.cwd / "bin" / "rametctl"
    file.parent.mkdir()
    file.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m rametctl "$@"\n')
    file.chmod(0o755)
    return file.parent


def shell_on(world: World, shell: str) -> Terminal:
    """Start a shell on a terminal, with its completion script where people put it."""
    script = world.run("completion", shell).out
    config = world.home / "config" / "fish" / "completions"
    config.mkdir(parents=True)
    files = {
        "bash": {world.home / "bashrc": f"{script}\nPS1='ready$ '"},
        "zsh": {
            world.home / "functions" / "_rametctl": script,
            world.home / ".zshrc": "fpath=($HOME/functions $fpath); autoload -Uz compinit; compinit -u -D; PS1='ready$ '",
        },
        "fish": {
            config / "rametctl.fish": script,
            config.parent / "config.fish": "function fish_prompt; echo -n 'ready$ '; end; set -g fish_greeting",
        },
    }  # fmt: skip
    for file, text in files[shell].items():
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    arguments = {"bash": ["--rcfile", str(world.home / "bashrc"), "-i"], "zsh": ["-i"], "fish": ["-i"]}
    environ = {**world.environ, "PATH": f"{program(world)}:{world.environ['PATH']}"}
    return Terminal([sys.executable, "-c", ON_TERMINAL, shell, *arguments[shell]], environ, world.cwd, 100, 30)


ON_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # the terminal of the process's session, as fish requires
os.execvp(sys.argv[1], sys.argv[1:])
"""


def complete(terminal: Terminal, typed: str, completed: str) -> None:
    """Type and press Tab once; then empty the line."""
    terminal.type(f"{typed}\t")
    terminal.shows(f"ready$ {completed}")
    terminal.type("\x15")


TYPED = {
    "rametctl sho": "rametctl show",
    "rametctl show fix-lo": "rametctl show fix-login",
    "rametctl show wi": r"rametctl show with\ space",
    "rametctl approve as": "rametctl approve asks",
    "rametctl plan apply pl": "rametctl plan apply plan.toml",
    "rametctl new -f my": r"rametctl new -f my\ file.md",
    "rametctl adopt di": "rametctl adopt directory/",
    "rametctl ls --repo sh": "rametctl ls --repo shop",
    "rametctl ls --repo di": "rametctl ls --repo directory/",
    "rametctl ls --state=wo": "rametctl ls --state=working",
    "rametctl ls --repo=sh": "rametctl ls --repo=shop",
    "rametctl new --file=pl": "rametctl new --file=plan.toml",
    "rametctl ls --state=idle --re": "rametctl ls --state=idle --repo",
}


@pytest.mark.parametrize("shell", ["zsh", "fish", "bash"])
def test_a_shell_completes_verbs_names_options_and_paths(world: World, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}: install it with your package manager")
    for name in ("fix-login", "with space", "asks", "docs"):
        world.state.session(name)
    world.state.request(next(each for each in world.state.sessions.values() if each.name == "asks"))
    world.state.repos["r1"] = repo_pb2.Repo(id="r1", name="shop", root="/src/shop")
    (world.cwd / "directory").mkdir()
    for file in ("plan.toml", "my file.md"):
        (world.cwd / file).touch()
    with shell_on(world, shell) as terminal:
        terminal.shows("ready$")
        for typed, completed in TYPED.items():
            complete(terminal, typed, completed)


def test_fish_keeps_commas_of_values_and_descriptions(world: World) -> None:
    if shutil.which("fish") is None:
        pytest.skip("needs fish: install it with your package manager")
    world.state.session("com,ma")
    with shell_on(world, "fish") as terminal:
        terminal.shows("ready$")
        complete(terminal, "rametctl show com", "rametctl show com,ma")
        terminal.type("rametctl plan \t")
        terminal.shows("Apply a plan, or the changes in it.")


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["rametctl", "set", "a"], "a\\ b"),
        (["rametctl", "set", "'a"], "a b"),
        (["rametctl", "set", "a\\ "], "a\\ b"),
    ],
)
def test_bash_completes_a_name_with_a_space_to_one_word(world: World, words: list[str], completed: str) -> None:
    world.state.session("a b")
    typed = " ".join(map(shlex.quote, words))
    script = f"""{world.run("completion", "bash").out}
        COMP_WORDS=({typed}); COMP_CWORD=2; _rametctl_completion {program(world)}/rametctl; printf '%s\\n' "${{COMPREPLY[@]}}" """
    done = subprocess.run(
        ["bash", "-c", script], env=world.environ, cwd=world.cwd, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{completed}\n"


def test_session_names_are_completed_from_a_daemon_that_runs_and_none_is_started(world: World) -> None:
    world.state.session("fix-login")
    world.state.session("docs")
    complete = {"_RAMETCTL_COMPLETE": "fish_complete", "COMP_WORDS": "rametctl stop fi", "COMP_CWORD": "fi"}
    assert world.run(env=complete).out == "plain,fix-login\n"
    world.state.agents["codex"] = daemon_pb2.KindOfAgent(name="codex")
    agent = {**complete, "COMP_WORDS": "rametctl new --agent co", "COMP_CWORD": "co"}
    assert world.run(env=agent).out == "plain,codex\n"
    world.daemon.stop()
    assert world.run(env={**complete, "RAMET_AUTOSTART": "1"}).out.strip() == ""
    assert not world.daemon.socket.exists()


def test_modes_that_the_settings_forbid_are_not_completed(world: World) -> None:
    complete = {"_RAMETCTL_COMPLETE": "fish_complete", "COMP_CWORD": ""}
    for verb in ("new", "set fix", "adopt tree", "approve fix"):
        words = {**complete, "COMP_WORDS": f"rametctl {verb} --mode "}
        for value, offered in (("true", True), ("false", False)):
            world.state.settings = [daemon_pb2.Setting(key="permissions.allow_bypass", value_json=value)]
            modes = world.run(env=words).out.split()
            assert "plain,default" in modes
            assert {"plain,bypassPermissions", "plain,auto"}.issubset(modes) == offered, (verb, value, modes)


def test_branches_are_completed_without_a_daemon(world: World) -> None:
    commands = """
        git init -q -b main && git -c user.name=n -c user.email=e@example.org commit -q --allow-empty -m x
        git update-ref refs/remotes/origin/topic main
        git symbolic-ref refs/remotes/origin/HEAD refs/remotes/origin/topic
    """
    subprocess.run(["sh", "-e", "-c", commands], cwd=world.cwd, env=world.environ, check=True)
    world.daemon.stop()
    local, remote = ["plain,main"], ["plain,origin/topic"]
    for verb, branches in {
        "new --base": local + remote,
        "new --existing": local + remote,
        "land fix --target": local,  # no other can be landed on
        "pr create fix --base": local + remote,
        "sync fix --base": local + remote,
        f"new --repo {world.home} --base": [],  # no repository
    }.items():
        complete = {"_RAMETCTL_COMPLETE": "fish_complete", "COMP_WORDS": f"rametctl {verb} ", "COMP_CWORD": ""}
        assert world.run(env=complete).out.split() == branches, verb
