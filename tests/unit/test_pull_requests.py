"""The pure parts of pull requests: addresses, bodies, answers of `gh`, and quotations of others'
text."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from ramet.environment import ALLOWED, FORGE, NEVER, allowed
from rametd.domain.errors import ForgeLoginError, ForgeRefusedError, ForgeUnavailableError
from rametd.environment import Variables, build
from rametd.git.remotes import Remote
from rametd.services.pull_requests.body import BEGIN, END, code, marked, one_line, updated
from rametd.services.pull_requests.feedback import fenced
from rametd.services.pull_requests.github import _judge, _parse
from rametd.services.pull_requests.target import Place, choose, may_be_github, opening_address, place_of

# Addresses


@pytest.mark.parametrize(
    ("address", "host", "path"),
    [
        ("https://github.com/acme/shop", "github.com", "acme/shop"),
        ("https://github.com/acme/shop.git/", "github.com", "acme/shop"),
        ("https://user:secret@GitHub.com/acme/shop.git", "github.com", "acme/shop"),
        ("git@github.com:acme/shop.git", "github.com", "acme/shop"),
        ("github.com:acme/shop", "github.com", "acme/shop"),
        ("ssh://git@ssh.github.com:443/acme/shop.git", "github.com", "acme/shop"),
        ("ssh://git@gitlab.example.org:2222/a/b/c.git", "gitlab.example.org", "a/b/c"),
    ],
)
def test_a_remotes_address_says_whose_it_is(address: str, host: str, path: str) -> None:
    assert place_of(address) == Place(host, path)


@pytest.mark.parametrize(
    "address", ["/srv/git/shop.git", "../shop", "file:///srv/shop.git", "C:/shop", "https://example.org/", "", "shop"]
)
def test_a_path_on_this_machine_is_nobodys(address: str) -> None:
    place = place_of(address)
    assert place is None or not may_be_github(place)


@given(st.text())
def test_no_address_raises(address: str) -> None:
    place_of(address)


def test_other_forges_are_not_asked_of_gh() -> None:
    assert may_be_github(Place("git.company.example", "a/b"))
    assert not may_be_github(Place("gitlab.com", "a/b"))
    assert not may_be_github(Place("git.company.example", "group/sub/repo"))


def test_names_of_branches_are_escaped_in_addresses_and_secrets_left_out() -> None:
    place = Place("github.com", "acme/shop")
    address = opening_address(place, branch="fix/a b#1&x", base="main", printed="", remote="")
    assert address == "https://github.com/acme/shop/compare/main...fix/a%20b%231%26x?expand=1"
    unknown = opening_address(
        Place("forge.example", "a/b"), branch="x", base="main", printed="", remote="https://me:pass@forge.example/a/b"
    )
    assert unknown == "https://forge.example/a/b"


def test_the_remote_is_named_configured_the_bases_origin_or_the_only_one() -> None:
    remotes = {name: Remote(name, "", is_base=False) for name in ("fork", "origin", "upstream")}
    assert choose(remotes, "fork", "upstream", "origin").name == "fork"
    assert choose(remotes, "", "upstream", "fork").name == "upstream"
    assert choose(remotes, "", "", "fork").name == "fork"
    assert choose(remotes, "", "", "").name == "origin"
    assert choose({"only": remotes["fork"]}, "", "", "gone").name == "fork"


# Bodies

WORDS = st.text(max_size=60).filter(lambda text: BEGIN not in text and END not in text)


@example(before="", after="", old="", new="\r")
@given(before=WORDS, after=WORDS, old=st.text(max_size=60), new=st.text(max_size=60))
def test_an_update_changes_our_part_alone_whatever_is_in_it(before: str, after: str, old: str, new: str) -> None:
    body = f"{before}{marked(old)}{after}"
    changed = updated(body, marked(new))
    assert changed == f"{before}{marked(new)}{after}".replace("\r\n", "\n")
    assert updated(changed, marked(new)) == changed.replace("\r\n", "\n"), "a second run changes nothing"


def test_a_text_that_quotes_the_marks_does_not_end_our_part() -> None:
    body = marked(f"x {END} y {BEGIN} z") + "\ntheirs"
    assert body.count(END) == body.count(BEGIN) == 1
    assert updated(body, marked("new")) == marked("new") + "\ntheirs"


def test_a_body_without_the_marks_stays_unchanged() -> None:
    assert updated("All mine.", marked("new")) == "All mine."


def test_a_title_is_the_first_line_with_a_word() -> None:
    assert one_line("\n\n## Fix the *login*\n\nmore") == "Fix the *login"
    assert one_line("word " * 60).endswith("word…")
    assert len(one_line("word " * 60)) <= 100
    assert one_line("\n---\n") == ""


@given(st.text(min_size=1))
def test_what_is_quoted_cannot_end_its_block(text: str) -> None:
    first, *_, last = fenced(text).split("\n")
    assert first == last
    assert first not in text
    run = re.match("`+", code(text))
    assert run is not None
    assert run[0] not in re.findall("`+", text)


# Answers of gh


def answer(status: int, body: str = "{}", **headers: str) -> bytes:
    lines = [f"HTTP/2.0 {status} Whatever", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()


def test_an_answer_is_distinguished_from_text() -> None:
    parsed = _parse(answer(200, "a\r\n\r\nb", Etag='W/"x"'))
    assert parsed is not None
    assert (parsed.status, parsed.etag, parsed.body) == (200, 'W/"x"', b"a\r\n\r\nb")
    for words in (b"", b"error connecting to api.github.com", b"HTTP/1.1"):
        assert _parse(words) is None


@pytest.mark.parametrize(
    ("output", "error", "seconds"),
    [
        (answer(502, "<html>"), ForgeUnavailableError, 0),
        (answer(503, Retry_After="30"), ForgeUnavailableError, 30),
        (answer(429), ForgeUnavailableError, 0),
        (answer(403, '{"message": "You have exceeded a secondary rate limit"}'), ForgeUnavailableError, 0),
        (
            answer(
                403, X_RateLimit_Remaining="0", X_RateLimit_Reset="1000000100", Date="Sun, 09 Sep 2001 01:46:40 GMT"
            ),
            ForgeUnavailableError,
            100,
        ),
        (answer(403, '{"message": "Resource not accessible"}'), ForgeRefusedError, 0),
        (answer(422, '{"message": "No", "errors": [{"message": "head is invalid"}, "x"]}'), ForgeRefusedError, 0),
        (answer(401), ForgeLoginError, 0),
    ],
)
def test_refusals_of_each_kind_are_distinguished(output: bytes, error: type[Exception], seconds: float) -> None:
    parsed = _parse(output)
    assert parsed is not None
    with pytest.raises(error) as caught:
        _judge(parsed, "github.com")
    if isinstance(caught.value, ForgeUnavailableError):
        assert float(caught.value.data["retry_after"]) == seconds


# The environment


def test_the_keys_to_the_forge_reach_gh_and_no_agent() -> None:
    callers = {"GH_TOKEN": "secret", "GH_CONFIG_DIR": "/x", "PATH": "/bin", "GH_REPO": "other/repo"}
    assert allowed(callers) == {"PATH"}
    assert build({}, Variables(callers), FORGE) == {
        "GH_TOKEN": "secret",
        "GH_CONFIG_DIR": "/x",
        "PATH": "/bin",
    }
    assert not set(FORGE) & {*ALLOWED, *NEVER}
