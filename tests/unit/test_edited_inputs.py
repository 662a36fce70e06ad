"""A changed input that a person approves a call with."""

import pytest
from rametd.domain.errors import InvalidInputError
from rametd.services.attention import json_object


@pytest.mark.parametrize("text", ["", "{", "[]", "1", "null", '{"a": ' * 100_000, "[" * 100_000, "1" * 5_000])
def test_a_text_that_is_no_object_is_refused_with_the_way_out(text: str) -> None:
    with pytest.raises(InvalidInputError, match="the changed input is not") as caught:
        json_object(text)
    assert caught.value.hint == "edit it again"


def test_an_object_is_read() -> None:
    assert json_object('{"command": "ls"}') == {"command": "ls"}
