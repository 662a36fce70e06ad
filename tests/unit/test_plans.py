"""Plans as text: parsed with lines and keys, ordered, checked against a given world."""

import json
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import ramet
from hypothesis import given
from hypothesis import strategies as st
from rametd.domain.errors import InvalidInputError, RefNotFoundError
from rametd.domain.models import STRICTNESS, Mode
from rametd.git import Tree
from rametd.plans import Known, Problem, World, check, owning, read, resolve
from rametd.plans.keys import KEYS, PLAN, THREAD, keys_of
from rametd.plans.positions import lines_of
from rametd.plans.schema import schema, text

from tests.support.plans import PARALLEL_SESSIONS
from tests.unit.test_documentation import table_under

SHIPPED = Path(ramet.__path__[0]) / "plan.schema.json"


def problems(plan: str, world: World | None = None) -> list[Problem]:
    reading = read(plan)
    return list(check(reading, resolve(reading.plan, {}, ()), world or World()))


def errors(plan: str, world: World | None = None) -> list[tuple[str, int, str]]:
    return [(each.code, each.line, each.key) for each in problems(plan, world) if each.severity == "error"]


def order_of(plan: str) -> list[str]:
    return [thread.id for thread in resolve(read(plan).plan, {}, ())]


# Reading


def test_the_plan_of_parallel_sessions_is_valid_unchanged() -> None:
    reading = read(PARALLEL_SESSIONS)
    one, two = resolve(reading.plan, {}, ())

    assert (one.id, one.name, one.branch, one.merge_order) == ("1", "extract-auth", "extract-auth", 1)
    assert one.prompt == "Move auth middleware out of services/api into services/auth"
    assert (two.id, two.name, two.merge_order) == ("2", "thread-2", 2)
    assert errors(PARALLEL_SESSIONS) == []
    assert {each.code for each in problems(PARALLEL_SESSIONS)} == {"no-prompt", "no-owns"}


def test_what_the_plan_says_holds_for_threads_that_say_nothing() -> None:
    plan = read(
        """
        [plan]
        name = "all"
        goal = "the whole"
        model = "opus"
        budget = 2
        check = ["make a", "make b"]
        [[threads]]
        id = "a"
        [[threads]]
        id = "b"
        model = "haiku"
        check = []
        """
    ).plan
    a, b = plan.threads
    assert (a.model, a.budget, a.check, a.name, a.goal) == ("opus", 2.0, ("make a", "make b"), "", "")
    assert (b.model, b.budget, b.check) == ("haiku", 2.0, ())
    assert (plan.name, plan.goal) == ("all", "the whole")


@pytest.mark.parametrize(
    ("plan", "code", "line", "key", "hint"),
    [
        ('[[threads]]\nid = "a"\nown = []\n', "unknown-key", 3, "threads[0].own", "did you mean owns?"),
        ("[plans]\n[[threads]]\nid = 1\n", "unknown-key", 1, "plans", "did you mean plan?"),
        ("[plan]\nmerge_order = 1\n[[threads]]\nid = 1\n", "unknown-key", 2, "plan.merge_order", "there are "),
        ('[[threads]]\nid = 1\n[[threads]]\nid = 2\nmode = "yolo"\n', "bad-value", 5, "threads[1].mode", ""),
        ("[[threads]]\nid = 1\nbudget = 0\n", "bad-value", 3, "threads[0].budget", ""),
        ("[[threads]]\nid = 1\nowns = [\n  'a',\n  3]\n", "bad-value", 3, "threads[0].owns", ""),
        ("[[threads]]\nid = 1\nmerge_order = 2.5\n", "bad-value", 3, "threads[0].merge_order", ""),
        ("[[threads]]\nid = true\n", "bad-value", 2, "threads[0].id", ""),
        ("[[threads]]\nid = -1\n", "bad-value", 2, "threads[0].id", ""),
        ('[[threads]]\nid = "a b"\n', "bad-value", 2, "threads[0].id", ""),
        ("[[threads]]\ngoal = 'x'\n", "missing-id", 1, "threads[0]", "give it one"),
        ("[[threads]]\nid = 1\ntitle = '{nope}'\n", "bad-value", 3, "threads[0].title", "there are {plan}"),
        ("[[threads]]\nid = 1\ntitle = '{goal'\n", "bad-value", 3, "threads[0].title", "write {{"),
        (
            "[[threads]]\nid = 1\nprompt = 'x'\nprompt_file = 'y'\n",
            "bad-value",
            4,
            "threads[0].prompt_file",
            "keep one",
        ),
        ("threads = 3\n", "bad-value", 1, "threads", ""),
        ("threads = []\n", "empty", 1, "threads", "add a [[threads]]"),
        ("", "empty", 0, "", "add a [[threads]]"),
        ("[[threads]]\nid = 1\nid = 2\n", "not-toml", 3, "", ""),
        ("[[threads]\n", "not-toml", 1, "", ""),
        ("a = " + "[" * 5000, "not-toml", 1, "", ""),
    ],
)
def test_a_parse_error_has_line_and_key(plan: str, code: str, line: int, key: str, hint: str) -> None:
    (found,) = [each for each in read(plan).problems if each.code == code]
    assert (found.line, found.key) == (line, key)
    assert found.hint.startswith(hint)
    assert found.message


def test_a_plan_that_is_too_large_is_not_read() -> None:
    assert [each.code for each in read("#" * (1 << 20) + "\n").problems] == ["too-large"]


LINES = """\
# 1
plan.name = "x"

[plan.extra]
"quoted key" = '''
[[threads]]
id = 3
'''
other = {a = 1, b = [1,
  2]}

[[threads]] # twelve
id = "a"
owns = [ # fourteen
  "x]\\"[", # fifteen
  'y',

  "z" ]
[threads.deep]
k = 1
[[threads]]
id = 1e3
when = 1979-05-27 07:32:00
"""


def test_lines_are_found_however_the_text_is_written() -> None:
    lines = lines_of(LINES)
    tomllib.loads(LINES)
    assert lines["plan", "name"] == 2
    assert lines["plan", "extra", "quoted key"] == 5
    assert lines["plan", "extra", "other", "b", 1] == 10
    assert (lines["threads",], lines["threads", 0]) == (12, 12)
    assert [lines["threads", 0, "owns", item] for item in range(3)] == [15, 16, 18]
    assert lines["threads", 0, "deep", "k"] == 20
    assert (lines["threads", 1], lines["threads", 1, "when"]) == (21, 23)
    assert lines_of(LINES.replace("\n", "\r\n")) == lines


KEY = st.text("ab-_ .\"'#=[]{}é\\", min_size=1, max_size=6)
SCALAR = st.one_of(st.integers(), st.booleans(), st.text("ab \"'#[]{}\n\\,=é", max_size=12))
VALUE = st.recursive(SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEY, inner, max_size=3))


def toml_value(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case str():
            return json.dumps(value, ensure_ascii=False)
        case list():
            return "[" + ",\n".join(toml_value(item) for item in value) + "]"
        case dict():
            return "{" + ", ".join(f"{toml_value(key)} = {toml_value(item)}" for key, item in value.items()) + "}"
    raise AssertionError(value)


def paths_of(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from paths_of(item, (*path, key))


@given(st.dictionaries(KEY, VALUE, max_size=4), st.lists(st.dictionaries(KEY, VALUE, max_size=3), max_size=3))
def test_every_key_of_any_document_has_a_line_in_order(table: dict[str, Any], tables: list[dict[str, Any]]) -> None:
    written = [f"{toml_value(key)} = {toml_value(value)}\n" for key, value in table.items()]
    for each in tables:
        written.append('[["an array"]]\n')
        written += [f"{toml_value(key)} = {toml_value(value)}\n" for key, value in each.items()]
    document = tomllib.loads("".join(written))

    lines = lines_of("".join(written))

    expected = list(paths_of(document))
    assert set(expected) <= set(lines)
    assert [lines[path] for path in expected] == sorted(lines[path] for path in expected)
    assert all(1 <= line <= "".join(written).count("\n") for line in lines.values())


# The order of landing


def test_threads_land_by_merge_order_and_after_what_they_wait_for() -> None:
    plan = """
    threads = [{id="c", merge_order=3}, {id="a", merge_order=1}, {id="late", after=["c"]}, {id="b", merge_order=2}]
    """
    assert order_of(plan) == ["a", "b", "c", "late"]
    assert order_of('threads = [{id="x", after="y"}, {id="y"}, {id="z"}]') == ["y", "x", "z"]
    assert order_of("threads = [{id=3}, {id=1}, {id=2}]") == ["1", "2", "3"]


def test_a_thousand_threads_in_a_row_are_ordered() -> None:
    threads = ", ".join(f'{{id="t{n}", after=["t{n - 1}"]}}' if n else '{id="t0"}' for n in reversed(range(1000)))
    assert order_of(f"threads = [{threads}]") == [f"t{n}" for n in range(1000)]


def test_names_made_here_avoid_those_that_are_taken_and_names_given_do_not() -> None:
    plan = read('threads = [{id=1, branch="x/fix"}, {id=2, branch="y/fix"}, {id="docs"}, {id="a", name="docs"}]').plan
    assert [thread.name for thread in resolve(plan, {}, {"docs"})] == ["fix", "fix-2", "docs-2", "docs"]
    known = {"docs": Known("named before", "its/branch")}
    assert [(each.name, each.branch) for each in resolve(plan, known, {"named before"}) if each.id == "docs"] == [
        ("named before", "its/branch")
    ]


@given(st.lists(st.tuples(st.integers(0, 5), st.sets(st.integers(0, 7), max_size=3)), min_size=1, max_size=8))
def test_no_thread_lands_before_one_it_waits_for(drawn: list[tuple[int, set[int]]]) -> None:
    threads = [
        {"id": f"t{n}", "merge_order": order, "after": [f"t{m}" for m in sorted(after) if m < n]}
        for n, (order, after) in enumerate(drawn)
    ]
    found = order_of(f"threads = {toml_value(threads)}")
    assert sorted(found) == sorted(thread["id"] for thread in threads)  # type: ignore[type-var]
    assert all(found.index(m) < found.index(str(each["id"])) for each in threads for m in each["after"])  # type: ignore[attr-defined]


# Checking


def two(first: str, second: str) -> str:
    return f'[[threads]]\nid = "a"\ngoal = "x"\n{first}\n[[threads]]\nid = "b"\ngoal = "y"\n{second}\n'


FILES = World(bases={"": Tree(("src/api/main.py", "src/api/v1/old.py", "docs/guide.md"))})


@pytest.mark.parametrize(
    ("one", "other", "examples"),
    [
        ("src/", "src/api/", ["src/api/main.py", "src/api/v1/old.py"]),
        ("src/**/*.py", "src/api/v1/", ["src/api/v1/old.py"]),
        ("./docs/", "docs/x/../guide.md", ["docs/guide.md"]),
        ("new/", "new/there/", None),
    ],
)
def test_overlapping_paths_are_shown_by_files(one: str, other: str, examples: list[str] | None) -> None:
    found = problems(two(f'owns = ["{one}"]', f'owns = ["unrelated/", "{other}"]'), FILES)
    (problem,) = found
    assert (problem.code, problem.key, problem.line) == ("overlap", "threads[1].owns[1]", 8)
    assert problem.threads == ("a", "b")
    assert other in problem.message
    assert one in problem.message
    if examples is not None:
        assert list(problem.examples) == examples
    else:
        assert problem.examples[0].startswith("new/there/")


def test_what_is_left_out_does_not_overlap_and_threads_side_by_side_do_not() -> None:
    assert problems(two('owns = ["src/", "!src/api/"]', 'owns = ["src/api/"]'), FILES) == []
    assert problems(two('owns = ["src/auth/"]', 'owns = ["src/auth-v2/"]'), FILES) == []


def test_two_names_of_one_directory_are_one() -> None:
    linked = World(bases={"": Tree(("real/a.txt", "link"), {"link": "real"})})
    assert [code for code, _, _ in errors(two('owns = ["real/"]', 'owns = ["link/"]'), linked)] == ["overlap"]


def test_an_overlap_through_a_link_names_the_patterns_and_the_link() -> None:
    linked = World(bases={"": Tree(("services/a.py", "svc"), {"svc": "services"})})
    (problem,) = problems(two('owns = ["services/"]', 'owns = ["x/", "svc/"]'), linked)
    assert problem.key == "threads[1].owns[1]"
    assert problem.message == ("thread b owns svc/, which overlaps services/ of thread a; svc is a link to services")


def test_an_id_that_is_the_name_of_another_thread_is_warned_of() -> None:
    found = problems('threads = [\n{id="a", goal="x", owns=["a/"]},\n{id="d", name="a", goal="x", owns=["d/"]}]\n')
    assert [(each.code, each.severity, each.line) for each in found] == [("name-twice", "warning", 3)]
    assert "called 'a-2'" in found[0].message


def test_what_a_thread_was_applied_with_is_not_judged_again() -> None:
    plan = 'threads = [{id="a", goal="x", owns=["src/"]}]'
    owners = {"other": ("src/api/",)}
    assert [code for code, _, _ in errors(plan, World(owners=owners))] == ["overlap-session"]
    assert errors(plan, World(owners=owners, agreed={"a"})) == []


def test_case_counts_where_it_does() -> None:
    plan = two('owns = ["src/"]', 'owns = ["SRC/x"]')
    assert errors(plan) == []
    assert [code for code, _, _ in errors(plan, World(bases={"": Tree(ignore_case=True)}))] == ["overlap"]


def test_no_thread_is_forbidden_its_own_paths() -> None:
    plan = two('owns = ["src/"]\nforbids = ["docs/", "src/api/v1"]', 'owns = ["docs/"]')
    (problem,) = problems(plan, FILES)
    assert (problem.code, problem.key) == ("forbids-own", "threads[0].forbids[1]")
    assert problem.examples == ("src/api/v1/old.py",)


def test_a_pattern_without_effect_is_reported_with_its_line() -> None:
    assert errors(two('owns = ["a/", "../b"]', 'owns = ["c/"]')) == [("bad-pattern", 4, "threads[0].owns[1]")]
    many = [f"x{number}" for number in range(10_000)]
    assert errors(two(f"owns = {many}", 'owns = ["c/"]')) == [("bad-pattern", 4, "threads[0].owns")]


def test_ids_names_and_branches_are_given_once() -> None:
    plan = '[[threads]]\nid = 1\nname = "n"\nbranch = "x"\n[[threads]]\nid = "1"\nname = "n"\nbranch = "x"\n'
    assert errors(plan) == [
        ("duplicate-id", 6, "threads[1].id"),
        ("duplicate-name", 7, "threads[1].name"),
        ("duplicate-branch", 8, "threads[1].branch"),
    ]


def test_threads_that_wait_for_each_other_or_an_unknown_one_are_found() -> None:
    plan = """\
threads = [
  {id="a", after=["b", "f"]},
  {id="b", after=["c"]},
  {id="c", after=["a"]},
  {id="d", after=["d"]},
  {id="e", after=["a", "nobody"]},
  {id="f"},
]
"""
    found = problems(plan)
    cycles = [(each.threads, each.line) for each in found if each.code == "cycle"]
    assert cycles == [(("a", "b", "c"), 2), (("d",), 5)]
    assert [(each.key, each.line) for each in found if each.code == "unknown-thread"] == [("threads[4].after[1]", 6)]


def test_an_order_that_contradicts_after_is_found() -> None:
    plan = 'threads = [\n{id="a", merge_order=5},\n{id="b", merge_order=1, after="a"},\n{id="c", after="a"}]\n'
    assert errors(plan) == [("order", 3, "threads[1].merge_order")]


def test_what_the_world_has_already_or_has_not_is_found() -> None:
    world = World(
        branches={"main": "it is checked out at /r", "x/y": "it exists"},
        names={"old": "s1"},
        bases={"": Tree(), "nowhere": RefNotFoundError("'nowhere' names no commit")},
        target=RefNotFoundError("there is no branch 'prod' to land on"),
        prompt_files={"gone.md": InvalidInputError("/gone.md cannot be read")},
    )
    plan = """\
[plan]
target = "prod"
[[threads]]
id = 1
branch = "main"
[[threads]]
id = 2
branch = "x"
[[threads]]
id = 3
branch = "-x"
base = "nowhere"
[[threads]]
id = 4
name = "old"
agent = "nobody"
mode = "bypassPermissions"
prompt_file = "gone.md"
"""
    assert errors(plan, world) == [
        ("no-target", 2, "plan.target"),
        ("branch-taken", 5, "threads[0].branch"),
        ("branch-taken", 8, "threads[1].branch"),
        ("bad-branch", 11, "threads[2].branch"),
        ("no-base", 12, "threads[2].base"),
        ("name-taken", 15, "threads[3].name"),
        ("bad-agent", 16, "threads[3].agent"),
        ("bad-mode", 17, "threads[3].mode"),
        ("prompt-file", 18, "threads[3].prompt_file"),
    ]
    # Threads that were applied before have their branch and base.
    applied = World(branches=world.branches, names={"old": "s4"}, bases=world.bases, sessions={"3": "s3", "4": "s4"})
    assert [code for code, _, _ in errors('threads = [{id=3, base="nowhere"}, {id=4, name="old"}]', applied)] == []


def test_what_other_sessions_own_is_refused() -> None:
    (problem,) = problems('threads = [{id=1, goal="x", owns=["src/api/"]}]', World(owners={"other": ("src/",)}))
    assert (problem.code, problem.severity) == ("overlap-session", "error")


@pytest.mark.parametrize(
    ("pattern", "count", "code"), [("*{}*", 200, "overlap"), ("d{}/", 400, "tangled"), ("d{}/", 2000, "too-large")]
)
def test_a_plan_of_very_many_threads_is_refused_soon(
    pattern: str, count: int, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owning, "MOST_S", 0.05 if code == "tangled" else 60)
    threads = ", ".join(f'{{id="t{n}", goal="x", owns=["{pattern.format(n)}"]}}' for n in range(count))
    found = problems(f"threads = [{threads}]", World(bases={"": Tree(("f",))}))
    assert {each.code for each in found} - {"empty"} == {code}
    assert len(found) <= owning.MOST_OVERLAPS


@pytest.mark.parametrize("mode", STRICTNESS)
@pytest.mark.parametrize("default", STRICTNESS)
def test_a_plan_of_a_repository_may_not_loosen_modes_in_silence(mode: Mode, default: Mode) -> None:
    plan = f'threads = [{{id=1, goal="x", mode="{mode}"}}]'
    assert problems(plan, World(bypass=True, mode=default)) == []
    found = [(each.code, each.severity) for each in problems(plan, World(bypass=True, mode=default, own=False))]
    looser = STRICTNESS.index(mode) > STRICTNESS.index(default)
    severity = "error" if mode in {"auto", "bypassPermissions"} else "warning"
    assert found == ([("looser-mode", severity)] if looser else [])


def test_many_threads_over_many_files_are_checked_in_a_moment() -> None:
    files = tuple(f"dir{n % 100}/sub/file{n}.txt" for n in range(20000))
    threads = ", ".join(f'{{id="t{n}", goal="x", owns=["dir{n}/"]}}' for n in range(30))
    assert problems(f"threads = [{threads}]", World(bases={"": Tree(files)})) == []


# The schema, and the documentation


def test_the_schema_that_ships_is_that_of_the_keys() -> None:
    if os.environ.get("RAMET_UPDATE_GOLDEN"):
        SHIPPED.write_text(text())
    assert SHIPPED.read_text() == text()
    jsonschema.Draft202012Validator.check_schema(schema())


@pytest.mark.parametrize(
    "plan",
    [
        PARALLEL_SESSIONS,
        '[plan]\ncheck = "make"\nbudget = 1\nchain = true\n[[threads]]\nid = "a"\nafter = 1\n[[threads]]\nid = 1\n',
        "[[threads]]\nid = 'a'\nown = []\n",
        "[[threads]]\nid = true\n",
        "[[threads]]\nid = 'a b'\n",
        "[[threads]]\ngoal = ''\n",
        "[[threads]]\nid = 1\nbudget = 0\n",
        "[[threads]]\nid = 1\nmode = 'yolo'\n",
        "[[threads]]\nid = 1\nafter = [2.5]\n",
        "[plan]\nmerge_order = 1\n[[threads]]\nid = 1\n",
        "threads = []\n",
        "threads = 3\n",
        "",
    ],
)
def test_the_schema_accepts_what_is_read_and_nothing_else(plan: str) -> None:
    valid = jsonschema.Draft202012Validator(schema()).is_valid(tomllib.loads(plan))
    assert valid == (not read(plan).problems)


def test_every_key_is_documented_as_it_is() -> None:
    rows = [(row[0].strip("`"), row[2], row[3]) for row in table_under("## `plan.toml`")]
    assert rows == [(key.name, key.kind.accepts, key.meaning) for key in KEYS]
    assert set(keys_of(PLAN)) | set(keys_of(THREAD)) == {key.name for key in KEYS}
