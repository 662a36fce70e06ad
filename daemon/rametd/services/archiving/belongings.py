"""A session's rows in other tables that its entry in the trash contains: rules, review comments,
and prompts that the agent did not receive."""

import json
from base64 import b64decode

from rametd.agents.base import in_base64
from rametd.domain.models import Session
from rametd.store import Reader, Unit, dump_comment, dump_prompt, dump_rule, load_comment, load_prompt, load_rule


def belongings(reader: Reader, session: Session) -> str:
    """Dump the session's belongings as JSON."""
    waiting = reader.prompts.open(session.id)
    return json.dumps(
        {
            "rules": [dump_rule(rule) for rule in reader.rules.list(session.repo_id) if rule.session_id == session.id],
            "comments": [dump_comment(each) for each in reader.comments.list(session.id, resolved=True)],
            "prompts": [dump_prompt(prompt) for prompt in waiting],
            "images": [[in_base64(image) for image in reader.prompts.images(prompt.id)] for prompt in waiting],
        }
    )


def restore_belongings(unit: Unit, session_id: str, dumped: str) -> None:
    """Store what `belongings` dumped. The session's row exists again."""
    stored = json.loads(dumped)
    for text in stored.get("rules", ()):
        unit.rules.add(load_rule(text))
    for text in stored.get("comments", ()):
        unit.comments.add(load_comment(text))
    prompts = stored.get("prompts", ())
    for text, images in zip(prompts, stored.get("images", [[]] * len(prompts)), strict=True):
        prompt = load_prompt(text)
        unit.prompts.add(
            *(prompt.id, session_id, prompt.text, prompt.source),
            hops=prompt.hops,
            continues=prompt.continues,
            images=[b64decode(image) for image in images],
        )
