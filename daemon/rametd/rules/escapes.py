"""Options by which a harmless command runs another one or writes a file: no prefix rule covers
them.

``Bash(sort:*)`` means sorting. But ``sort -o FILE`` overwrites a file, and ``sort
--compress-program=X`` runs X, so the person decides on both unless the rule names the option. The
table has only common commands; SECURITY.md describes the limits.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from rametd.rules.words import Word
from rametd.rules.wrappers import base

# Per command: long options (unambiguous prefixes count too), letters of short options, and whole
# words.
_OPTIONS: dict[str, tuple[frozenset[str], str, frozenset[str]]] = {
    name: (frozenset(long.split()), short, frozenset(words.split()))
    for name, long, short, words in (
        ("ack", "--output --pager", "", ""),
        ("ag", "--pager", "", ""),
        ("apt-get", "--option --config-file", "oc", ""),
        ("bat", "--config-file --pager", "", ""),
        ("cargo", "--config --manifest-path", "C", ""),
        ("ctest", "--build-and-test --script --script-new-process", "S", ""),
        (
            "curl",
            "--alt-svc --config --cookie-jar --dump-header --etag-save --hsts --libcurl --output --output-dir --remote-name --remote-name-all --stderr --trace",
            "oOKDc",
            "",
        ),
        ("fd", "--exec --exec-batch", "xX", ""),
        (
            "find",
            "",
            "",
            "-delete -exec -execdir -fls -fprint -fprint0 -fprintf -ok -okdir",
        ),
        ("file", "--compile", "C", ""),
        ("gh", "", "", "alias extension"),
        (
            "git",
            "--config-env --exec --exec-path --ext-diff --extcmd --open-files-in-pager --output --receive-pack --upload-pack",
            "",
            "",
        ),
        ("git archive", "", "o", ""),
        ("git bisect", "", "", "run view visualize"),
        ("git clone", "--config --template", "cu", ""),
        ("git difftool", "", "x", ""),
        ("git format-patch", "", "o", ""),
        ("git grep", "", "O", ""),
        ("git init", "--template", "", ""),
        ("git rebase", "--interactive", "xi", ""),
        ("git submodule", "", "", "foreach"),
        (
            "go",
            "",
            "",
            "-C -exec -modfile -o -outputdir -overlay -toolexec -vettool -coverprofile -cpuprofile -memprofile -trace",
        ),
        ("gradle", "--build-file --init-script --project-dir", "Ibp", ""),
        ("ip", "--batch", "", "-b -batch exec"),
        ("less", "--log-file --LOG-FILE", "oO", ""),
        ("make", "--directory --eval --file --include-dir --makefile", "CEIf", ""),
        ("man", "--html --pager --preprocessor", "HP", ""),
        ("mvn", "--file", "f", ""),
        ("mysql", "--init-command --pager --tee", "", ""),
        ("mypy", "--python-executable", "", ""),
        ("ninja", "", "Cf", ""),
        ("nm", "--plugin", "", ""),
        ("npm", "--node-options --prefix --script-shell --shell", "", ""),
        ("openssl", "", "", "-out -keyout -engine -provider"),
        ("pnpm", "--node-options --script-shell --shell-emulator", "", ""),
        ("psql", "--file --log-file --output", "fLo", ""),
        (
            "pytest",
            "--basetemp --config-file --debug --junit-xml --junitxml --log-file --override-ini --pdbcls",
            "",
            "-c -o",
        ),
        ("rg", "--hostname-bin --pre", "", ""),
        ("rsync", "--rsh --rsync-path", "e", ""),
        ("shuf", "--output", "o", ""),
        ("sort", "--compress-program --output", "o", ""),
        ("sqlite3", "", "", "-A -cmd --cmd -init --init"),
        ("ssh", "", "EFSo", ""),
        ("split", "--filter", "", ""),
        ("systemctl", "--host --machine", "HM", ""),
        (
            "tar",
            "--checkpoint-action --info-script --new-volume-script --rmt-command --rsh-command --to-command --use-compress-program",
            "FI",
            "",
        ),
        ("tcpdump", "", "wz", ""),
        ("tree", "--output", "o", ""),
        ("wget", "--config --execute --output-document --output-file --use-askpass", "eoO", ""),
        ("xxd", "--revert", "r", ""),
        ("yarn", "--node-options --script-shell", "", ""),
        ("yq", "--inplace --split-exp", "is", ""),
        ("zip", "--unzip-command", "T", ""),
    )
}
# Operands that run a command or write a file, in the language of the command.
_OPERANDS = {
    "make": re.compile(
        r"(?:SHELL|\.SHELLFLAGS|(?:GNU)?MAKEFLAGS|MAKEFILES)\s*[:?+!]*=|[^=]*=.*[$`/;|&(<>\s]", re.DOTALL
    ),
    "mysql": re.compile(r".*(?:\\|\bsystem\b|\boutfile\b|\bdumpfile\b|\bpager\b|\btee\b)", re.DOTALL | re.IGNORECASE),
    "psql": re.compile(r".*(?:\\|\bprogram\b)", re.DOTALL | re.IGNORECASE),
    "sqlite3": re.compile(r"\s*\.|.*\n\s*\.|.*\b(?:load_extension|writefile|edit)\b", re.DOTALL | re.IGNORECASE),
}
# Words with which a client of a database gets its statements, one group for each client. Without
# them it reads statements and commands from its input.
_STATEMENTS = {
    "mysql": re.compile(r"\n(?:-e|--execute)"),
    "psql": re.compile(r"\n(?:-c|--command)"),
    "sqlite3": re.compile(r"\n[^-](?:.|\n)*\n[^-]"),
}
_PROGRAMMED = frozenset({"awk", "gawk", "gsed", "mawk", "nawk", "sed"})  # their operands are programs
GUARDED = frozenset(_OPTIONS) | _PROGRAMMED
"""Commands with options or operands that a prefix rule never covers."""
# git commands that run a configured or given program with any options.
_GIT_RUNNERS = frozenset(
    [
        "citool", "cvsserver", "daemon", "difftool", "filter-branch", "for-each-repo", "gui", "hook", "instaweb", "mergetool",
        "p4", "remote-ext", "send-email", "shell", "svn", "web--browse"
    ]
)  # fmt: skip
_GIT_VALUED = frozenset(
    {"-C", "-c", "--config-env", "--git-dir", "--work-tree", "--namespace", "--super-prefix", "--attr-source"}
)
_CONFIG_READS = re.compile(r"--get(?:-.*)?|--list|-[lz]*l[lz]*|get|list")
_CONFIG_SCOPES = frozenset(
    {"--global", "--local", "--null", "--show-origin", "--show-scope", "--system", "--worktree", "-z"}
)
_GIT_REMOTES = frozenset({"archive", "clone", "fetch", "ls-remote", "pull", "push", "remote", "submodule"})
_HELPER = re.compile(r"(?:-[^=]*=)?[A-Za-z0-9][\w+.-]*::")  # `ext::COMMAND`: git runs `git-remote-ext COMMAND`
_GIT_MERGES = frozenset({"cherry-pick", "merge", "pull", "rebase", "revert"})
_SED_OPTIONS = re.compile(r"-[nErsuz]+|--(?:quiet|silent|regexp-extended|null-data|separate|unbuffered|posix|debug)")
_SED_ADDRESS = r"(?:\d+|\$|/[^/\\\n\[]*/)"
_SED_SAFE = re.compile(
    rf"\s*(?:{_SED_ADDRESS}(?:\s*,\s*[+~]?{_SED_ADDRESS})?)?\s*!?\s*(?:[pdqQ=GgHhxnND]?|s([/|,#@])(?:(?!\1)[^\\\n\[]|\\.)*\1(?:(?!\1)[^\\\n]|\\.)*\1[gpiI0-9]*)\s*"
)
_AWK_UNSAFE = re.compile(r"[|>@]|\bsystem\b|\bgetline\b")
_AWK_OPTIONS = re.compile(r"-F.*|-v|--field-separator=.*|--assign=.*|--version")


def escapes(words: Sequence[str], since: int = 1) -> str | None:
    """The first word from index ``since`` on that makes the command run another one or write a
    file; None if there is none."""
    name = base(words[0]) if words else ""
    more = list(words[max(since, 1) :])
    if name in {"sed", "gsed"}:
        return next((word for word in _sed(more) if word), None)
    if name in _PROGRAMMED:
        return next(_awk(more), None)
    if name == "git" and (found := _git(words, max(since, 1))):
        return found
    if name in _STATEMENTS and not _STATEMENTS[name].search("\n".join(["", *words[1:]])):
        return words[0]  # it would read commands from its input
    if name == "tar" and since < 2 and more and not more[0].startswith("-"):
        more[0] = f"-{more[0]}"  # the old style: `tar cIf`
    return _option(name, more)


def git_verb(words: Sequence[str]) -> int:
    """Index of git's command among the words of a call of git; their number if there is none."""
    at = 1
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in _GIT_VALUED else 1
    return min(at, len(words))


def _git(words: Sequence[str], since: int) -> str | None:
    at = git_verb(words)
    if found := next((word for word in words[since:at] if word.startswith("-c")), None):
        return found
    verb, rest = words[at] if at < len(words) else "", words[max(since, at + 1) :]
    if verb in _GIT_RUNNERS and since <= at:
        return verb
    if verb == "config":
        first = next((word for word in words[at + 1 :] if word not in _CONFIG_SCOPES), "")
        named = any(not word.startswith("-") for word in words[at + 1 : since])
        return None if named or _CONFIG_READS.fullmatch(first) else verb
    if verb in _GIT_REMOTES and (found := next(filter(_HELPER.match, rest), None)):
        return found
    if verb in _GIT_MERGES:
        for word, value in pairwise([*rest, ""]):
            if "/" in word and re.match(r"-[A-Za-z]*s|--strateg(?:y|)=", word):
                return word
            if "/" in value and re.fullmatch(r"-[A-Za-z]*s|--strateg?y?", word):
                return value
    return _option(f"git {verb}", rest)


def _option(name: str, words: Sequence[str]) -> str | None:
    """The first word that the table lists for the command. A letter may be anywhere in a bundle of
    short options."""
    long, short, alone = _OPTIONS.get(name, (frozenset[str](), "", frozenset[str]()))
    for word in words:
        stem = word.partition("=")[0]
        if (
            word in alone
            or stem.replace("--", "-", 1) in alone
            or (len(stem) > 3 and stem.startswith("--") and any(o.startswith(stem) for o in long))
        ):
            return word
        if short and re.fullmatch(r"-[A-Za-z0-9].*", word) and any(letter in word for letter in short):
            return word
        if (operand := _OPERANDS.get(name)) is not None and operand.match(word):
            return word
    return None


def may_escape(words: Sequence[Word], since: int) -> bool:
    """Whether an expansion from index ``since`` may yield such an option: a glob may match a file
    with such a name."""
    name = base(words[0].text) if words else ""
    return name in GUARDED and any(word.pattern and (word.open or word.text[0] in "-*?[{") for word in words[since:])


def _sed(words: Sequence[str]) -> list[str]:
    """Options and scripts of sed that may do more than print, delete and replace."""
    scripts: list[str] = []
    operands: list[str] = []
    bad: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        if word in {"-e", "--expression"}:
            scripts += words[at + 1 : at + 2]
            at += 1
        elif word.startswith("-") and word != "-":
            bad += [] if _SED_OPTIONS.fullmatch(word) else [word]
        else:
            operands.append(word)
        at += 1
    scripts = scripts or operands[:1]
    return bad + [text for text in scripts if not all(_SED_SAFE.fullmatch(part) for part in text.split(";"))]


def _awk(words: Sequence[str]) -> Iterator[str]:
    for i, word in enumerate(words):
        if (word.startswith("-") and word != "-" and not _AWK_OPTIONS.fullmatch(word)) or (
            _AWK_UNSAFE.search(word) and not (i and words[i - 1] == "-F")
        ):
            yield word
