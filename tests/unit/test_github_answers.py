"""Answers of GitHub, as `gh` prints them."""

import pytest
from rametd.domain.errors import ForgeUnavailableError
from rametd.services.pull_requests.github import Answer


@pytest.mark.parametrize("body", [b"<html>", b"[" * 100_000, b"\xff"])
def test_what_is_no_json_is_an_error_of_the_forge(body: bytes) -> None:
    with pytest.raises(ForgeUnavailableError, match="not JSON"):
        _ = Answer(200, {}, body).json
