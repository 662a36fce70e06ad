import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rametd.agents.presets import PRESETS, presets_of
from rametd.config import SETTINGS, AgentSettings, Config, Source, check, combine, effective, load
from rametd.config.files import LARGEST
from rametd.config.kinds import KNOWN_AGENTS
from rametd.domain.errors import BadConfigError
from rametd.domain.models import Mode

HOME = Path("/home/a")

COMPLETE = """
editor = ["code", "-n"]
max_working = 3
setup = "make deps"
setup_files = ["deps.lock"]
setup_timeout = "5m"
teardown = ["a", "b"]
teardown_timeout = "5s"
carry = [".env", "config/*.local"]
carry_rewrite = [".env"]
carry_limit = "1GiB"

[permissions]
default_mode = "acceptEdits"
allow_bypass = true

[agents]
sleep_after = "2h"
sleep_after_background = "1d"
max_resumes = 0
nice = 19

[agents.claude]
path = "~/bin/claude"
pass_env = ["GH_TOKEN", "NPM_*"]
model = "opus"
effort = "high"
config_dir = "/srv/claude"

[agents.codex]
env = {CODEX_HOME = "/srv/codex"}

[agents.mine]
command = ["my-agent", "--acp"]
modes = {plan = "read-only"}

[worktrees]
root = "/fast/trees"
branch_prefix = "agents/x-"

[pool]
min_free = "4GiB"
size = 0
warm_agents = 1

[run]
dev = "npm run dev"

[ports]
base = 30000
per_session = 4

[caps]
depth = 1
children = 2
tree = 3
spawns_per_minute = 4

[budget]
session = 5
tree = 10.5
day = 100

[land]
max_returns = 3
check_timeout = "20m"
method = "squash"
check = "make test"
protected = ["main", "release/*"]

[pr]
draft = false
show_cost = true
remote = "fork"

[radar]
tell_agents = "always"

[notify]
on = ["waiting"]
min_age = "1m"
quiet = "22:00-07:00"
terminal = "bell"

[notify.desktop]
enabled = true
min_age = "5s"
on = ["failed"]
repos = ["a*"]

[notify.ntfy]
url = "https://ntfy.example/topic"
token = "tk_1"
include_text = true
min_age = "5s"
on = ["failed"]
repos = ["a*"]

[notify.webhook]
url = "https://hooks.example/T/secret"
format = "slack"
include_text = true
min_age = "5s"
on = ["failed"]
repos = ["a*"]

[notify.command]
argv = ["mine", "-x"]
min_age = "5s"
on = ["failed"]
repos = ["a*"]

[journal]
rotate_at = "16MiB"

[retention]
trash = "7d"
stale = "60d"
archive = "90d"

[log]
level = "debug"
"""


def owner(text: str) -> Config:
    return combine(Source("config.toml", text), home=HOME)


def both(owner_text: str, repository_text: str) -> Config:
    return combine(Source("config.toml", owner_text), Source(".ramet.toml", repository_text), home=HOME)


def refusal(text: str, repository_text: str | None = None) -> BadConfigError:
    with pytest.raises(BadConfigError) as caught:
        both(text, repository_text) if repository_text is not None else owner(text)
    return caught.value


def test_missing_files_give_the_defaults(tmp_path: Path) -> None:
    config = load(tmp_path / "none.toml", tmp_path / ".ramet.toml", home=HOME)
    assert config == owner("")
    assert config.max_working == 8
    assert config.permissions.default_mode is Mode.DEFAULT
    assert config.agents.sleep_after == 600
    assert config.worktrees.branch_prefix == "ramet/"
    assert {item.origin for item in effective(config)} == {"default"}


def test_a_complete_file_sets_everything() -> None:
    config = owner(COMPLETE)
    assert {item.origin for item in effective(config)} == {"owner file"}
    assert config.warnings == ()
    assert config.agents.claude.path == HOME / "bin" / "claude"
    assert config.agents.sleep_after == 7200
    assert config.setup == ("make deps",)
    assert config.teardown == ("a", "b")
    assert config.run == {"dev": "npm run dev"}
    assert config.budget.tree == 10.5
    assert config.agents.others == {
        "codex": AgentSettings(env={"CODEX_HOME": "/srv/codex"}),
        "mine": AgentSettings(("my-agent", "--acp"), modes={Mode.PLAN: "read-only"}),
    }
    assert config.journal.rotate_at == 16 << 20
    assert config.land.protected == ("main", "release/*")


def test_every_setting_has_a_meaning_and_a_default_that_it_accepts_itself() -> None:
    assert len({item.key for item in SETTINGS}) == len(SETTINGS)
    for item in effective(owner("")):
        assert item.setting.meaning.endswith(".")
        if item.value != "unset":
            text = f"value = {item.value}"
            assert item.setting.kind.parse(tomllib.loads(text)["value"]) == item.setting.default, item.setting.key


def test_what_is_shown_can_be_read_again() -> None:
    config = owner(COMPLETE)
    hidden = [item for item in effective(config) if item.setting.kind.shown is not None]
    shown = "".join(f"{item.setting.path} = {item.value}\n" for item in effective(config) if item not in hidden)
    notify, agents = config.notify, COMPLETE[COMPLETE.index("[agents.codex]") : COMPLETE.index("[worktrees]")]
    assert owner(f'{shown}\nnotify.ntfy.url = "{notify.ntfy.url}"\nnotify.ntfy.token = "{notify.ntfy.token}"\n'
                 f'notify.webhook.url = "{notify.webhook.url}"\n{agents}') == config  # fmt: skip
    assert {item.setting.key: item.value for item in hidden} == {
        "notify.ntfy.url": '"https://ntfy.example/…"',
        "notify.ntfy.token": '"…"',
        "notify.webhook.url": '"https://hooks.example/…"',
        "agents.NAME": '{codex = {env = {CODEX_HOME = "…"}}, mine = {command = ["my-agent", "--acp"], modes = {plan = "read-only"}}}',
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[agents.mine]\nenv = {}", "agents.mine: command is missing; without one it must be one of opencode, codex,"),
        ("[agents.mine]\ncommand = 'my-agent'", "agents.mine.command: expected a program and its arguments, as a list"),
        ("[agents.mine]\ncommand = []", "agents.mine.command: expected a program and its arguments"),
        ("[agents.codex]\nmodel = 'x'", "agents.codex: an agent has command, env and modes, not model"),
        ("[agents.codex]\nenv = {PORT = 1}", "agents.codex.env: expected a table of texts"),
        ("[agents.codex]\nenv = {'A B' = ''}", "agents.codex.env: 'A B' is not the name of a variable"),
        ("[agents.codex]\nenv = {RAMET_TOKEN = ''}", "agents.codex.env: RAMET_TOKEN is never passed on"),
        ("[agents.codex]\nmodes = {careful = ''}", "agents.codex.modes: careful is not a permission mode; those are default,"),
        ("[agents.codex]\nmodes = {plan = 1}", "agents.codex.modes: expected a table of texts"),
        ("[agents.'My Agent']\ncommand = ['a']", "an agent's name has only lower-case letters, digits and -, not 'My Agent'"),
        ("agents.codex = 1", "there is no such setting"),
        ("agents = 1", "expected a table of agents"),
    ],
)  # fmt: skip
def test_an_agent_that_cannot_be_is_refused_with_its_key(text: str, said: str) -> None:
    assert said in str(refusal(text))


def test_a_repository_adds_and_changes_no_agent() -> None:
    for text in (
        "[agents.mine]\ncommand = ['evil']",
        "[agents.codex]\nenv = {PATH = '/evil'}",
        "agents.pi.modes.plan = ''",
    ):
        assert "only the owner may set this, not a repository" in str(refusal("", text))


def test_the_agents_that_need_no_command_are_those_with_a_preset() -> None:
    assert tuple(preset.name for preset in PRESETS) == KNOWN_AGENTS
    changed = {each.name: each for each in presets_of(owner(COMPLETE).agents.others)}
    assert changed["mine"].command == ("my-agent", "--acp")
    assert changed["mine"].modes[Mode.PLAN] == "read-only"
    assert changed["codex"].command == ("codex-acp",)
    assert changed["codex"].env["CODEX_HOME"] == "/srv/codex"


def test_the_repositorys_settings_win_if_allowed_with_their_origin() -> None:
    config = both("pool.size = 5\nsetup = 'mine'", "pool.size = 1\n[permissions]\ndefault_mode = 'plan'")
    assert (config.pool.size, config.setup, config.permissions.default_mode) == (1, ("mine",), Mode.PLAN)
    origins = {item.setting.key: item.origin for item in effective(config)}
    assert origins["pool.size"] == "repository file"
    assert origins["setup"] == "owner file"
    assert origins["max_working"] == "default"


def test_the_owners_named_commands_stay_beside_the_repositorys() -> None:
    config = both("[run]\ndev = 'mine'\nnotes = 'vi notes'", "[run]\ndev = 'theirs'")
    assert config.run == {"dev": "theirs", "notes": "vi notes"}


@pytest.mark.parametrize("item", [item for item in SETTINGS if not item.repository], ids=lambda item: item.key)
def test_a_repository_cannot_set_what_is_the_owners(item: Any) -> None:
    error = refusal("", f"{item.path} = 1")
    assert "only the owner may set this" in error.message
    assert error.message.startswith(".ramet.toml:1: ")


def test_exactly_the_settings_marked_for_repositories_may_be_set_by_them() -> None:
    assert {item.key for item in SETTINGS if item.repository} == {
        *("permissions.default_mode", "worktrees.branch_prefix", "pool.size", "pool.warm_agents", "setup", "teardown"),
        *("setup_files", "setup_timeout", "teardown_timeout", "carry_rewrite", "carry_limit"),
        *(
            "run.NAME",
            "carry",
            "ports.per_session",
            "land.method",
            "land.check",
            "land.protected",
            "radar.tell_agents",
            "agents.claude.model",
            "agents.claude.effort",
        ),
        *("land.check_timeout", "pr.draft", "pr.remote"),
    }


def test_a_typo_is_named_with_file_line_and_what_was_meant() -> None:
    error = refusal("max_working = 1\n\n[agents]\nsleep_afer = '1m'\n")
    assert error.message == "config.toml:4: agents.sleep_afer: there is no such setting"
    assert error.hint == "did you mean agents.sleep_after?"
    assert error.data == {"file": "config.toml", "key": "agents.sleep_afer", "line": "4"}


def test_a_wrong_table_is_named_too() -> None:
    assert refusal("[permission]\nallow_bypass = true").hint == "did you mean permissions?"
    assert "expected a table" in refusal("pool = 3").message


@pytest.mark.parametrize(
    "text",
    [
        "max_working = 0",
        "max_working = '8'",
        "max_working = true",
        "permissions.allow_bypass = 'yes'",
        "agents.sleep_after = '10 minutes'",
        "agents.sleep_after = 0",
        "agents.sleep_after = nan",
        "agents.claude.path = 'claude'",
        "agents.claude.pass_env = 'A'",
        "agents.claude.pass_env = ['A=B']",
        "agents.claude.pass_env = ['RAMET_TOKEN']",
        "agents.claude.pass_env = ['GIT_DIR']",
        "worktrees.branch_prefix = '-x'",
        "worktrees.branch_prefix = 'a//b'",
        "worktrees.branch_prefix = 'a/../b'",
        "worktrees.branch_prefix = '/a'",
        "pool.size = 65",
        "ports.base = 80",
        "budget.day = 0",
        "budget.day = inf",
        "setup = ''",
        "setup = [1]",
        "run = 'x'",
        "run.'a b' = 'x'",
        "run.dev = ['x']",
        "carry = ['/etc/passwd']",
        "carry = ['a/../../b']",
        "carry = ['.git/config']",
        "land.method = 'octopus'",
        "land.protected = ['']",
        "journal.rotate_at = '1K'",
        "retention.trash = 'never'",
        "log.level = 'loud'",
    ],
)
def test_a_value_that_is_not_accepted_is_refused_with_its_place(text: str) -> None:
    error = refusal(text)
    assert error.message.startswith(f"config.toml:1: {error.data['key']}: ")
    assert "expected " in error.message or "never passed on" in error.message
    assert error.hint


def test_the_line_is_found_under_tables_and_in_inline_ones() -> None:
    assert refusal('# max_working = "x"\n[agents]\n"sleep_after" = "x"').data["line"] == "3"
    assert refusal("\npool = { size = 99 }").data["line"] == "2"
    assert refusal("[agents.claude]\npath = 1\n[pool]\nsize = 1").data["line"] == "2"


@pytest.mark.parametrize("value", ["'yolo'", "3", "[]", "{}"])
@pytest.mark.parametrize("by_repository", [False, True])
def test_an_unknown_mode_becomes_the_strictest_and_is_said(value: str, by_repository: bool) -> None:
    text = f"permissions.default_mode = {value}"
    config = both("", text) if by_repository else owner(text)
    assert config.permissions.default_mode is Mode.PLAN
    assert len(config.warnings) == 1
    assert "the strictest" in config.warnings[0]


def test_bypass_needs_the_owners_permission_and_is_never_a_repositorys_default() -> None:
    assert "allow_bypass" in refusal("permissions.default_mode = 'bypassPermissions'").message
    allowed = "permissions.allow_bypass = true"
    assert owner(f"{allowed}\npermissions.default_mode = 'bypassPermissions'").permissions.default_mode is Mode.BYPASS
    assert "repository" in refusal(allowed, "permissions.default_mode = 'bypassPermissions'").message


def test_check_lists_every_problem_and_load_names_the_first() -> None:
    text = "a = 1\nmax_working = 0\npermissions.default_mode = 'x'\n"
    problems = check(Source("config.toml", text), Source(".ramet.toml", "caps.depth = 1"), home=HOME)
    assert [(problem.line, problem.key, problem.fatal) for problem in problems] == [
        (1, "a", True),
        (2, "max_working", True),
        (3, "permissions.default_mode", False),
        (1, "caps.depth", True),
    ]
    assert refusal(text).message.endswith("(and 1 more: rametctl config check)")


def test_a_file_that_is_not_toml_is_refused_with_its_line() -> None:
    error = refusal("max_working = 1\nmax_working = 2\nx = = 3")
    assert error.message.startswith("config.toml:2: not TOML") or error.message.startswith("config.toml:3: not TOML")
    assert "\n" not in error.message


def test_a_file_that_cannot_be_read_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "binary").write_bytes(b"max_working = 1 # \xff")
    for name in ("directory", "binary"):
        with pytest.raises(BadConfigError, match=name):
            load(tmp_path / name, home=HOME)


@pytest.mark.parametrize(
    "target", ["../pipe", "/dev/zero", "../large", "../outside", "loop", "pipe", "large", "directory"]
)
def test_a_repositorys_file_is_a_small_file_inside_it(tmp_path: Path, target: str) -> None:
    top = tmp_path / "repository"
    (top / "directory").mkdir(parents=True)
    (tmp_path / "outside").write_text("max_working = 1")
    for directory in (top, tmp_path):
        os.mkfifo(directory / "pipe")
        (directory / "large").write_bytes(b"#" * (LARGEST + 1))
    (top / "loop").symlink_to("loop")
    (top / ".ramet.toml").symlink_to(target)
    with pytest.raises(BadConfigError, match=r"\.ramet\.toml"):
        Source.read(top / ".ramet.toml", inside=top)


def test_a_repositorys_file_may_be_a_link_within_it_and_the_owners_one_to_anywhere(tmp_path: Path) -> None:
    top = tmp_path / "repository"
    (top / "conf").mkdir(parents=True)
    (top / "conf/ramet.toml").write_text("x")
    (top / ".ramet.toml").symlink_to("conf/ramet.toml")
    assert Source.read(top / ".ramet.toml", inside=top).text == "x"
    (tmp_path / "config.toml").symlink_to(top / "conf/ramet.toml")
    assert Source.read(tmp_path / "config.toml").text == "x"


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(SETTINGS), junk)
def test_every_kind_of_setting_parses_or_refuses_any_value(item: Any, value: object) -> None:
    try:
        parsed = item.kind.parse(value)
    except ValueError:
        return
    assert isinstance(parsed, object)


@given(st.floats(min_value=1, max_value=3e5), st.sampled_from([("s", 1), ("m", 60), ("h", 3600), ("d", 86400)]))
def test_durations_are_seconds(amount: float, unit: tuple[str, int]) -> None:
    amount = round(amount / 100, 2) + 1
    assert owner(f'retention.trash = "{amount:.2f}{unit[0]}"').retention.trash == pytest.approx(amount * unit[1])


@pytest.mark.parametrize(
    ("written", "value"),
    [("true", "running"), ("false", "never"), ("'running'", "running"), ("'always'", "always"), ("'never'", "never")],
)
def test_the_setting_tell_agents_accepts_booleans_too(written: str, value: str) -> None:
    config = owner(f"radar.tell_agents = {written}")
    assert config.radar.tell_agents == value


def test_manual_is_a_name_of_the_default_mode_and_auto_needs_the_owners_permission() -> None:
    def mode(text: str) -> Mode:
        return owner(text).permissions.default_mode

    assert mode("permissions.default_mode = 'manual'") == Mode.DEFAULT
    assert "auto needs allow_bypass" in refusal("permissions.default_mode = 'auto'").message
    assert mode("permissions.default_mode = 'auto'\npermissions.allow_bypass = true") == Mode.AUTO
