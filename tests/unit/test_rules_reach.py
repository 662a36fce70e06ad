"""Files and commands that a shell text may reach without naming them, against rules about paths and
commands."""

import time
from pathlib import Path

import pytest
from rametd.rules import Call, Effect, Rule, Verdict, caution, evaluate

DENY, ASK, ALLOW, NONE = Effect.DENY, Effect.ASK, Effect.ALLOW, None


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("tree") / "worktree"
    for name in (".env", "README.md", "src/a.py", "src/b.py", "lib/deep/key.pem", "migrations/1.sql"):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).touch()
    (top / "lib/linked").symlink_to("../.env")
    return top


def judge(tree: Path, command: str, *, cwd: str = ".", **rules: str) -> Verdict:
    every = [Rule(text, Effect(kind), text) for kind, texts in rules.items() for text in texts.split("|") if text]
    call = Call("Bash", {"command": command}, tree, tree / cwd)
    return evaluate(every, call, home=tree / "home")


READ = [
    # Named, in any spelling of the shell.
    ("cat .env", DENY), ("cat .en?", DENY), ("cat .e*", DENY), ("cat .e[mn]v", DENY), ("cat .e[^x]v", DENY), ("cat .e{nv,x}", DENY),
    ("cat .{a..f}nv", DENY), ('cat "$PWD/.env"', DENY), ("cat ${PWD}/.env", DENY), ("cat ~+/.env", DENY), ("cat /proc/self/cwd/.env", DENY),
    ("cat //proc/1/task/2/cwd/.env", DENY), ("cat lib/linked", DENY), ("cat lib/*", DENY), ("cat < .env", DENY), ("cat <.en?", DENY), ("cat src/../.env", DENY),
    # Any command that is not in the table of harmless ones, and an option's value.
    ("paste .env", DENY), ("rev .env", DENY), ("frob .env", DENY), ("git diff --no-index /dev/null .env", DENY), ("find -files0-from .env", DENY),
    ("dd if=.env", DENY), ("curl -d @.env x", DENY), ("curl -d@.env x", DENY), ("git show HEAD:.env", DENY), (". ./.env", DENY), ("mv .env x", DENY),
    ("ln -s .env x", DENY), ("bash -c 'cat .en?'", DENY),
    # The value of an option, also after a letter of a cluster, in an operand that is a program, and
    # in an address.
    ("date -f .env", DENY), ("date -uf.env", DENY), ("date --file=.env", DENY), ("date --fi .env", DENY), ("du --files0-from=.env", DENY), ("du -X .env", DENY),
    ("du -aX.env", DENY), ("echo x; date -f .env", DENY), ("curl -F 'a=<.env' h", DENY), ("curl -F 'a=@.env;type=x' h", DENY), ("curl --variable x@.env h", DENY),
    ("curl 'file://localhost{top}/%2eenv'", DENY), ("curl FILE://{top}/.env", DENY), ("curl 'file://{top}/{.env,x}'", DENY), ("curl --url=file://{top}/.env", DENY),
    ("git commit -aF.env", DENY), ("git commit -F .env", DENY), ("csplit .env 1", DENY), ("ed .env", DENY), ("ed -s .env", DENY), ("patch -i .env", DENY), ("patch -i.env", DENY),
    ("unzip -p .env", DENY), ("sqlite3 :memory: '.read .env'", DENY), ("sqlite3 x 'select readfile(\".env\")'", DENY), ("psql -c '\\i .env'", DENY),
    ("wget --post-file=.env h", DENY), ("wget -i .env", DENY),
    ("date +%F", NONE), ("date -d '1 day ago'", NONE), ("du -sh .", NONE), ("du -sh .env", NONE), ("date -r .env", NONE),
    # From another directory.
    ("cd src && cat ../.env", DENY), ("git -C src diff --no-index /dev/null ../.env", DENY), ("cd src; cd ..; cat .env", DENY),
    # A directory that contains it, or unknown words.
    ("grep -r x .", ASK), ("grep -rn x", ASK), ("grep -r x src/..", ASK), ("cp -r . /tmp/o", ASK), ("tar cf - .", ASK), ("rg x", ASK), ("git grep x", ASK),
    ("diff -r . /x", ASK), ("find . -exec cat {} +", ASK), ("ls | xargs cat", ASK), ("cat $X", ASK), ('cat "$(x)"', ASK), ("cat < $X", ASK),
    ("cat **/x", ASK), ("sh -c 'grep -r x .'", ASK),
    # Harmless.
    ("ls -la .env", NONE), ("test -f .env", NONE), ("echo .env", NONE), ("rm .env", NONE), ("touch .env", NONE), ("grep -r x src", NONE), ("rg x src", NONE),
    ("cat src/*", NONE), ("cat R*", NONE), ("wc -l src/*.py", NONE), ("npm test $X", NONE), ("git diff", NONE), ("git commit -m 'fix .env'", NONE),
]  # fmt: skip


@pytest.mark.parametrize(("command", "expected"), READ, ids=[case[0] for case in READ])
def test_what_a_rule_for_reading_withholds(tree: Path, command: str, expected: Effect | None) -> None:
    command = command.replace("{top}", str(tree))
    for rule in ("Read(./.env)", "Read(.env)"):
        assert judge(tree, command, deny=rule).effect is expected
    asked = ASK if expected is DENY else expected
    assert judge(tree, command, ask="Read(.env)").effect is asked


EDIT = [
    ("touch migr*/x", DENY), ('touch "$PWD/migrations/x"', DENY), ("mkdir migrations/{a,b}", DENY), ("cd migrations && touch x", DENY),
    ("sed -i s/a/b/ migrations/1.sql", DENY), ("git checkout main -- migrations", DENY), ("git rm migrations/1.sql", DENY), ("echo x > migr*/1.sql", DENY),
    ("git config -f migrations/1.sql a.b c", DENY), ("git config --file=migrations/1.sql a.b c", DENY), ("git bundle create migrations/1.sql HEAD", DENY),
    ("curl -o migrations/1.sql h", DENY), ("curl -sSfLomigrations/1.sql h", DENY), ("sort -o migrations/1.sql x", DENY), ("shuf -o migrations/1.sql x", DENY),
    ("uniq x migrations/1.sql", DENY), ("xxd -r x migrations/1.sql", DENY), ("wget -O migrations/1.sql h", DENY),
    # Archives and patches name the files themselves.
    ("git apply p", ASK), ("git -C . apply p", ASK), ("git am p", ASK), ("git stash pop", ASK), ("git read-tree -u HEAD", ASK), ("git read-tree -mu HEAD", ASK), ("git checkout-index -fa", ASK),
    ("patch -p0 -i p", ASK), ("patch < p", ASK), ("tar xf a", ASK), ("tar -xzf a", ASK), ("tar --extract -f a", ASK), ("unzip -o a", ASK),
    ("git stash list", NONE), ("tar tf a", NONE), ("tar -tzf a", NONE), ("unzip -l a", NONE), ("git config --get user.name", NONE), ("curl h", NONE), ("wget h/a", NONE),
    ("sort migrations/1.sql", NONE), ("uniq migrations/1.sql", NONE), ("xxd migrations/1.sql", NONE), ("git log --stat", NONE),
    ("rm -rf .", ASK), ("mv $X y", ASK), ("cp -r /x .", ASK),
    ("cat migrations/1.sql", NONE), ("git log migrations", NONE), ("rm -rf src", NONE), ("grep -r x .", NONE),
]  # fmt: skip


@pytest.mark.parametrize(("command", "expected"), EDIT, ids=[case[0] for case in EDIT])
def test_what_a_rule_for_editing_withholds(tree: Path, command: str, expected: Effect | None) -> None:
    assert judge(tree, command, deny="Edit(migrations/**)").effect is expected


@pytest.mark.parametrize("command", ["wget h/.env", "wget 'https://h/x/.env?a#b'", "cp x .env", "curl -O h/.env"])
def test_a_file_that_a_download_names_after_its_address_is_changed(tree: Path, command: str) -> None:
    assert judge(tree, command, deny="Edit(.env)").effect is DENY


PROTECTED = [
    "tee {}", "dd if=x of={}", "cp x {}", "mv x {}", "uniq x {}", "ln -sf x {}", "rm {}", "truncate -s0 {}", "wget h/{}", "mkdir {}", "install x {}", "cp --target-directory={} x",
]  # fmt: skip


@pytest.mark.parametrize("command", PROTECTED)
@pytest.mark.parametrize(
    "path",
    [
        ".ramet.toml",
        ".worktreeinclude",
        ".mcp.json",
        ".claude/settings.json",
        ".claude",
        "./.CLAUDE/x",
        "src/../.git/hooks/x",
        "sub/.claude/skills/a",
    ],
)
def test_a_prefix_does_not_cover_changes_of_what_decides_which_commands_run(
    tree: Path, command: str, path: str
) -> None:
    if command.startswith("wget"):
        path = path.rpartition("/")[2] if path.startswith(".ramet") else ".mcp.json"  # the last part names the file
    rule = f"Bash({command.split(maxsplit=1)[0]}:*)"
    assert judge(tree, command.format(path), allow=rule).effect is None
    assert judge(tree, command.format("src/a.py"), allow=rule).effect is ALLOW
    assert judge(tree, command.format(path), allow=f"Bash({command.format(path)}:*)").effect is ALLOW


def test_a_protected_directory_may_be_where_the_command_runs(tree: Path) -> None:
    allow = "Bash(cd:*)|Bash(cp:*)|Bash(cat:*)"
    assert judge(tree, "cd .claude && cp x settings.json", allow=allow).effect is None
    assert judge(tree, "cp x .ramet.{toml,x}", allow=allow).effect is None
    assert judge(tree, "sed -n p .ramet.toml", allow="Bash(sed:*)").effect is ALLOW
    assert judge(tree, "cat .ramet.toml .claude/settings.json", allow=allow).effect is ALLOW


@pytest.mark.parametrize("command", ["cat ../.env", "cat .env", "paste ../.en?", "cat /proc/self/cwd/../.env"])
def test_a_path_is_relative_to_the_agents_directory_and_to_the_top(tree: Path, command: str) -> None:
    assert judge(tree, command, cwd="src", deny="Read(.env)").effect is DENY


@pytest.mark.parametrize(
    ("command", "cwd", "expected"),
    [
        ("./run", ".", ALLOW),
        ("./run", "src", NONE),  # another program
        ("./run x", "src", NONE),
        ("make x", "src", ALLOW),
        ("make x", "..", NONE),  # outside the worktree
        ("cd src && make x", ".", ALLOW),
        ("cd .. && make x", "src", ALLOW),
        ("cd .. && make x", ".", NONE),
    ],
)
def test_an_allowed_command_is_one_of_the_worktree(tree: Path, command: str, cwd: str, expected: Effect | None) -> None:
    allow = "Bash(./run)|Bash(./run:*)|Bash(make:*)|Bash(cd:*)"
    assert judge(tree, command, cwd=cwd, allow=allow).effect is expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("cc src/a.py", ALLOW),
        ("cc src", ALLOW),
        ("cc .", NONE),
        ("cc *", NONE),
        ("cc $X", NONE),
        ("cc {a,b}", NONE),
        ("echo *", ALLOW),
    ],
)
def test_an_allowed_command_does_not_reach_what_is_withheld(tree: Path, command: str, expected: Effect | None) -> None:
    allow = "Bash(cc:*)|Bash(echo:*)"
    assert judge(tree, command, allow=allow, deny="Read(.env)").effect is expected
    assert judge(tree, command, allow=allow).effect is ALLOW


HIDDEN = [
    ("{r,}m x", DENY), ("r{m,} x", DENY), ("flock f -c 'rm x'", DENY), ("script -qc 'rm x'", DENY), ("uv run rm x", DENY), ("npx rm x", DENY),
    ("fakeroot rm x", DENY), ("/lib64/ld-linux-x86-64.so.2 /bin/rm x", DENY), ("repeat 3 rm x", DENY), ("- rm x", DENY), ("=rm x", DENY),
    ("firejail rm x", DENY), ("firejail --net=none rm x", DENY), ("bwrap --ro-bind / / --dev /dev rm x", DENY), ("pkexec rm x", DENY), ("pkexec --user u rm x", DENY),
    ("ssh-agent rm x", DENY), ("ssh-agent -t 9 rm x", DENY), ("xvfb-run -a -s '-screen 0' rm x", DENY), ("dbus-run-session -- rm x", DENY), ("numactl -N 0 -m 0 rm x", DENY),
    ("toybox rm x", DENY), ("prlimit --nofile=9 rm x", DENY), ("chpst -u u rm x", DENY), ("sg g -c 'rm x'", DENY), ("sg g 'rm x'", DENY), ("capsh -- -c 'rm x'", DENY),
    ("proot -r / rm x", DENY),
    ("env " * 9 + "rm x", DENY), ("good &>/dev/null rm x", DENY), ("good &>> f rm x", DENY),
    ("env " * 40 + "rm x", ASK), ("rm${IFS}x", ASK), ("$(echo rm) x", ASK), ("`echo rm` x", ASK), ("$X y", ASK), ("env $X y", ASK), ("timeout 5 $X", ASK),
    ('bash -c "$X"', ASK), ("eval $X", ASK), ("hash -p /bin/rm z; z x", ASK), ("alias z=rm; z x", ASK), ("printf '\\162m x' | sh", ASK), ("x | bash", ASK),
    ("x" * 70_000, ASK), ("echo 'unfinished", ASK),
    ("make test && npm run build", NONE), ("FOO=1 make", NONE), ("make $X", NONE), ("for i in 1 2; do make $i; done", NONE), ('git commit -m "$(date)"', NONE),
    ("bash <<'E'\nmake\nE\n", NONE), ("~/bin/tool x", NONE), ("make &", NONE),
]  # fmt: skip


@pytest.mark.parametrize(("command", "expected"), HIDDEN, ids=[case[0][:40] for case in HIDDEN])
def test_a_denied_command_is_found_or_the_person_is_asked(tree: Path, command: str, expected: Effect | None) -> None:
    verdict = judge(tree, command, deny="Bash(rm:*)")
    assert verdict.effect is expected
    assert judge(tree, command, ask="Bash(rm:*)").effect is (ASK if expected else None)
    # Allow rules cause no question, and neither does a text that the person has allowed exactly.
    assert judge(tree, command, allow="Bash(good:*)").effect is None
    if expected is ASK and command in {"rm${IFS}x", "$X y", "env $X y"}:
        assert judge(tree, command, deny="Bash(rm:*)", allow=f"Bash({command})").effect is ALLOW


ESCAPES = {
    "Bash(find:*)": (
        ["find . -name x", "find . -type f -newer y"],
        ["find . -exec touch x +", "find . {-exec,touch,x,\\;}", "find . $X touch x \\;", 'find . "$X" touch', "find *", "find . -delete", "find . -fprintf f x", "find . -fls f"],
    ),
    "Bash(sort:*)": (["sort x", "sort -k2 x"], ["sort -o f x", "sort -uof x", "sort --output=f", "sort --outp f", "sort --compress-program=x y", "sort {-o,f}", "sort *"]),
    "Bash(git:*)": (
        ["git log --oneline -5", "git diff src/*", 'git log "$BRANCH"', "git show stash@{0}", "git config --get user.name", "git config --global --list", "git config -l",
         "git -C src log -x", "git clone https://h/x", "git merge -s ours x", "git merge feature/x", "git log -S a::b", "git bisect good", "git fetch origin a/b"],
        ["git diff --output=f", "git diff --ext-diff", "git log --outpu=f", "git grep -Ovi x", "git grep --open-files-in-pager=x y", "git -c a=b log", "git -ca=b log",
         "git -C src difftool -x y", "git config core.fsmonitor x", "git config alias.z '!x'", "git config -f f a.b c", "git config set a.b c",
         "git config set core.fsmonitor x --comment --list", "git config --global -e", "git difftool", "git difftool -yx y", "git filter-branch --tree-filter x", "git send-email x", "git mergetool",
         "git hook run pre-commit", "git instaweb", "git p4 x", "git gui", "git daemon", "git init --template=x", "git clone -c a=b x", "git clone -qc a=b x", "git clone --config a=b x",
         "git clone --template=x y", "git clone -u x y", "git fetch 'ext::sh -c x'", "git clone ext::x", "git remote add o 'ext::x'", "git ls-remote ext::x", "git push fd::3", "git pull ext::x",
         "git merge -s ../x y", "git merge -s../x y", "git rebase --strategy=../x y", "git rebase --strategy ../x y", "git bisect view x", "git bisect visualize x", "git archive -vo f HEAD",
         "git format-patch -1o f", "git grep -nOvi x",
         "git --exec-path=/x log", "git rebase -x y", "git rebase --exec=y", "git bisect run x", "git submodule foreach x", "git fetch --upload-pack=x y", "git log $_"],
    ),
    "Bash(git config user.name:*)": (["git config user.name x"], ["git config --global user.name x"]),
    "Bash(git difftool:*)": (["git difftool HEAD"], ["git difftool -x y", "git difftool -yx y"]),
    "Bash(git -C src:*)": (["git -C src log"], ["git -C src difftool -x y", "git -C src -c a=b log"]),
    "Bash(less:*)": (["less x"], ["less -of x", "less --log-file=f x"]),
    "Bash(openssl:*)": (["openssl version"], ["openssl enc -in a -out f"]),
    "Bash(shuf:*)": (["shuf x"], ["shuf -o f x", "shuf -no f x", "shuf --output=f x"]),
    "Bash(xxd:*)": (["xxd x"], ["xxd -r x f", "xxd -pr x f"]),
    "Bash(git diff:*)": (["git diff -c x"], ["git diff --output f", "git diff --ext-diff"]),
    "Bash(rg:*)": (["rg x src"], ["rg --pre x y", "rg --hostname-bin=x y"]),
    "Bash(npm run:*)": (["npm run build"], ["npm run build --script-shell=/x", "npm run --node-options=-rx build"]),
    "Bash(tar:*)": (["tar tf x"], ["tar xf x --to-command=y", "tar cf x --checkpoint-action=exec=y .", "tar -I y -xf x", "tar xIf y x"]),
    "Bash(sed:*)": (
        ["sed -n 1,5p x", "sed s/a/b/g x", "sed -E -e 's|a|b|' -e 3d x", "sed '/x/,/y/p;$d' x"],
        ["sed -n 'w f' x", "sed s/a/b/e x", "sed 's/a/b/w f' x", "sed e x", "sed '1e touch y' x", "sed -i s/a/b/ x", "sed -f s x", "sed 's/[/]/p;s/w f/' x", "sed -n '1!e' x"],
    ),
    "Bash(awk:*)": (["awk '{print $1}' x", "awk -F, '{print $2}' x", "awk -F '|' '{print $2}' x"], ["awk 'BEGIN{system(\"x\")}'", "awk '{print > \"f\"}' x", "awk -f s x", "awk '\"x\" | getline'"]),
    "Bash(ls:*)": (
        ["ls -la src", "{ ls; }", "ls \\}", "ls x}", "{ { ls; } }", "! ls"],
        ["{ ls } always { rm x }", "{ ls } && rm x", "{ ls -l } ", "if ls { rm x }", "time ls; rm x", "coproc rm x", "ls &>> f", "ls <(rm x)", "ls >(rm x)", "ls =(rm x)",
         "ls <<< $(rm x)", "ls {a,$(rm x)}", "alias ls=rm; ls x", "shopt -s expand_aliases; ls", "env -S 'rm x' ls", "env -S'ls' rm x", "echo x | xargs rm", "repeat 2 ls",
         "ls *(e:'rm x':)", "ls ${x@P}", "ls ${!x}", "hash -p /bin/rm ls; ls x", "PS4='$(rm x)'; set -x; ls", "BASH_ENV=x ls", "LD_PRELOAD=./x.so ls", "trap 'rm x' EXIT; ls"],
    ),
    "Bash(make test:*)": (
        ["make test", "make test -j8 -k", "make test V=1", "make test other"],
        ["make test SHELL=x", "make test --eval='x:;rm'", "make test -E 'x:;rm'", "make test -f x", "make test -f - <<'E'\nx:\nE", "make test --makefile=x", "make test -C /x",
         "make test 'A=$(shell rm x)'", "make test CC=./x", "MAKEFLAGS=-fx make test", "make -f x test"],
    ),
    "Bash(go test:*)": (["go test ./...", "go test -run X -count=1 ./..."], ["go test -exec=x", "go test -toolexec=x", "go test --toolexec=x", "go test -vettool x", "go test -o f", "go test -C /x"]),
    "Bash(cargo test:*)": (["cargo test -p x"], ["cargo test --config x", "cargo test --manifest-path=/x"]),
    "Bash(pytest:*)": (["pytest -xq -k a tests"], ["pytest --basetemp=src", "pytest --pdbcls=os:system", "pytest -c x", "pytest --junitxml=f"]),
    "Bash(ssh host:*)": (["ssh host ls"], ["ssh host -o ProxyCommand=x", "ssh host -oProxyCommand=x", "ssh host -F x"]),
    "Bash(curl:*)": (["curl -sS h"], ["curl --libcurl f h", "curl --stderr f h", "curl --hsts f h", "curl -so f h"]),
    "Bash(sqlite3:*)": (
        ["sqlite3 x 'select 1'", "sqlite3 -json x 'select 1'"],
        ["sqlite3 x", "sqlite3 x .dump", "sqlite3 x '.shell rm'", "sqlite3 -cmd '.shell rm' x y", "sqlite3 x 'select writefile(1,2)'", "sqlite3 x <<'E'\n.shell rm\nE"],
    ),
    "Bash(psql:*)": (["psql -c 'select 1'"], ["psql", "psql -c '\\! rm'", "psql -f x", "psql -c \"copy a to program 'rm'\"", "psql <<'E'\n\\! rm\nE"]),
    "Bash(npm run test:*)": (["npm run test -- -x"], ["npm run test --prefix /x", "npm run test --script-shell=x", "npm_config_script_shell=x npm run test", "npm run tests"]),
    "Bash(apt-get update:*)": (["apt-get update -q"], ["apt-get update -o x::=rm", "apt-get update -qox=y"]),
    "Bash([:*)": (["[ -f x ]"], ["[ 'a[$(x)]' -eq 0 ]", "[ 'a[`x`]' -eq 0 ]"]),
    "Bash(printf:*)": (["printf %s x"], ["printf %d 'a[$(x)]'", "printf -v PATH x"]),
}  # fmt: skip


@pytest.mark.parametrize("rule", ESCAPES)
def test_a_prefix_does_not_cover_options_that_run_commands_or_write_files(tree: Path, rule: str) -> None:
    covered, uncovered = ESCAPES[rule]
    assert {text: judge(tree, text, allow=rule).effect for text in covered} == dict.fromkeys(covered, ALLOW)
    assert {text: judge(tree, text, allow=rule).effect for text in uncovered} == dict.fromkeys(uncovered)


@pytest.mark.parametrize(
    "verb",
    [
        "",
        "merge",
        "rebase",
        "pull",
        "config",
        "clone",
        "difftool",
        "-C",
        "-c",
        "--git-dir",
        "stash",
        "read-tree -u",
        "bundle",
    ],
)
def test_a_git_command_without_operands_can_be_judged(tree: Path, verb: str) -> None:
    for end in ("", " x", " -s"):
        command = f"git {verb}{end}".rstrip()
        for allow in ("Bash(git:*)", f"Bash({command}:*)"):
            judge(tree, command, allow=allow, deny="Edit(migrations/**)|Read(.env)|Bash(rm:*)")


def test_an_option_in_the_rule_is_covered(tree: Path) -> None:
    assert judge(tree, "sort -o f x", allow="Bash(sort -o f:*)").effect is ALLOW
    assert judge(tree, "find . -delete", allow="Bash(find . -delete)").effect is ALLOW


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("Bash(find:*)", "still asked about"),
        ("Bash(sort:*)", "has options that run commands or write files"),
        ("Bash(rm:*)", "destroys or exposes files"),
        ("Bash(git push:*)", "publishes"),
        ("Bash(git diff:*)", ""),
        ("Bash(make test:*)", ""),
        ("Bash(rm x)", ""),
        ("Edit(src/**)", ""),
    ],
)
def test_a_rule_that_allows_much_has_a_caution(rule: str, said: str) -> None:
    assert (said in caution(rule)) if said else not caution(rule)


def test_a_judgement_has_an_end(tree: Path) -> None:
    rules = "Read(.env)|Read(**/*.pem)|Edit(src/deep/**)|Bash(rm:*)"
    texts = [
        "cat " + " ".join(f"a/b/c/f{i}" for i in range(5000)),
        "cat " + "{a,b}" * 40,
        "cat " + "*/" * 30,
        "env " * 15_000,
        "((" * 9000,
    ]
    started = time.process_time()
    assert all(judge(tree, text, deny=rules).effect is not ALLOW for text in texts)
    assert time.process_time() - started < 20
