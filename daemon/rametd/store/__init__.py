"""The store: an SQLite database with one writer thread, which groups works into transactions."""

from rametd.store.calls import Call
from rametd.store.comments import COMMENTS
from rametd.store.ledger import Grouping, Spent
from rametd.store.prompts import PROMPTS
from rametd.store.rebuild import Rebuilt, RecoveredSession
from rametd.store.repos import REPOS
from rametd.store.rules import RULES
from rametd.store.sessions import SESSIONS
from rametd.store.store import Store
from rametd.store.unit import Reader, Unit

dump_repo, load_repo = REPOS.dump, REPOS.load
"""Each pair converts a row to a JSON object and back."""
dump_session, load_session = SESSIONS.dump, SESSIONS.load
dump_prompt, load_prompt = PROMPTS.dump, PROMPTS.load
dump_rule, load_rule = RULES.dump, RULES.load
dump_comment, load_comment = COMMENTS.dump, COMMENTS.load

__all__ = [
    "Call",
    "Grouping",
    "Reader",
    "Rebuilt",
    "RecoveredSession",
    "Spent",
    "Store",
    "Unit",
    "dump_comment",
    "dump_prompt",
    "dump_repo",
    "dump_rule",
    "dump_session",
    "load_comment",
    "load_prompt",
    "load_repo",
    "load_rule",
    "load_session",
]
