"""Every error that a person or a program may meet, in one tree.

RametError
├── InvalidInputError       the request cannot mean anything: change it            INVALID_ARGUMENT
├── NotFoundError           what it names does not exist                           NOT_FOUND
├── TakenError              what it would make exists already                      ALREADY_EXISTS
├── PreconditionError       it makes sense, but not in the present state           FAILED_PRECONDITION
├── DeniedError             the caller may not do this                             PERMISSION_DENIED
├── UnauthenticatedError    the caller's token is not one we gave out              UNAUTHENTICATED
├── ExhaustedError          a cap or a limit is reached                            RESOURCE_EXHAUSTED
├── UnavailableError        not now; the same request may succeed later            UNAVAILABLE
├── AbortedError            somebody else was faster: look again and decide        ABORTED
└── BrokenError             something that must hold does not: our fault or the machine's   INTERNAL

A leaf has a stable ``reason`` (UPPER_SNAKE_CASE, part of the contract), a message that says what happened, a ``hint`` that says
what to do next, and ``data`` (flat, strings) for programs. Messages and hints are one line each. All are in one file, long as it is: the
tree is what a reader looks for.
"""

from typing import ClassVar

from rametd.domain.text import utf8


class RametError(Exception):
    """Base of the tree; never raised itself."""

    reason: ClassVar[str] = "INTERNAL"

    def __init__(self, message: str, *, hint: str = "", **data: str) -> None:
        super().__init__(utf8(message))
        self.message = utf8(message)
        self.hint = utf8(hint)
        self.data = {name: utf8(value) for name, value in data.items()}


class InvalidInputError(RametError):
    """The request cannot mean anything; the message says what is wrong."""

    reason = "INVALID_INPUT"


class NotFoundError(RametError):
    """What is named does not exist."""

    reason = "NOT_FOUND"


class TakenError(RametError):
    """What it would make exists already."""

    reason = "TAKEN"


class PreconditionError(RametError):
    """It makes sense, but not in the present state."""

    reason = "FAILED_PRECONDITION"


class DeniedError(RametError):
    """A session may not do this; the person can."""

    reason = "PERMISSION_DENIED"


class UnauthenticatedError(RametError):
    """`RAMET_TOKEN` is not a token of a living session. Unset it to act as yourself."""

    reason = "UNAUTHENTICATED"


class ExhaustedError(RametError):
    """A cap or a limit is reached."""

    reason = "EXHAUSTED"


class UnavailableError(RametError):
    """Not now; the same request may succeed later."""

    reason = "UNAVAILABLE"


class AbortedError(RametError):
    """Somebody else was faster: look again and decide."""

    reason = "ABORTED"


class BrokenError(RametError):
    """Our fault. The id finds it in `rametctl daemon logs`; please report it."""

    reason = "INTERNAL"


# Input


class EmptyPromptError(InvalidInputError):
    """A prompt without a word. Say what the agent is to do."""

    reason = "EMPTY_PROMPT"


class PromptTooLargeError(InvalidInputError):
    """A prompt over 16 MiB. Put the material into a file and name the file."""

    reason = "PROMPT_TOO_LARGE"


class BadNameError(InvalidInputError):
    """A name or branch that nothing could carry; the hint has one that works."""

    reason = "BAD_NAME"


class BadConfigError(InvalidInputError):
    """A configuration file says something that is not accepted; names file, line and key."""

    reason = "BAD_CONFIG"


class BadRuleError(InvalidInputError):
    """A permission rule that means nothing, allows everything, or climbs out of the worktree. Data: ``data["rule"]``."""

    reason = "BAD_RULE"


class BadPlanError(InvalidInputError):
    """A plan that cannot be applied. `rametctl plan check` lists all that is wrong. Data: ``data["line"]``,
    ``data["key"]``.
    """

    reason = "BAD_PLAN"


class BadEnvironmentError(InvalidInputError):
    """An environment variable that no process can have. Data: ``data["name"]``."""

    reason = "BAD_ENVIRONMENT"


class BadCursorError(InvalidInputError):
    """A cursor of another event log: read again from the beginning."""

    reason = "BAD_CURSOR"


class BadPageTokenError(InvalidInputError):
    """A page token that this list did not give."""

    reason = "BAD_PAGE_TOKEN"


class AmbiguousError(InvalidInputError):
    """A prefix or name fits several; the message lists them. Use more of the id. Data: ``data["matches"]``."""

    reason = "AMBIGUOUS"


# What is named


class SessionNotFoundError(NotFoundError):
    """No session has that id, prefix or name. `rametctl ls --all` lists them."""

    reason = "SESSION_NOT_FOUND"


class RepoNotFoundError(NotFoundError):
    """No git repository is around the path, or none is registered under the name."""

    reason = "REPO_NOT_FOUND"


class RefNotFoundError(NotFoundError):
    """Git knows no such branch, tag or commit; the hint lists near ones."""

    reason = "REF_NOT_FOUND"


class RequestNotFoundError(NotFoundError):
    """No request has that id, or the session has none open. `rametctl inbox` lists them."""

    reason = "REQUEST_NOT_FOUND"


class CommandNotFoundError(NotFoundError):
    """No command has that id (`rametctl run S --list` shows them), or none is configured under that name. Data:
    ``data["names"]``.
    """

    reason = "COMMAND_NOT_FOUND"


class CheckpointNotFoundError(NotFoundError):
    """The session has no checkpoint of that number or id. `rametctl checkpoints S` lists them."""

    reason = "CHECKPOINT_NOT_FOUND"


class CommentNotFoundError(NotFoundError):
    """No review comment has that id. `rametctl comment S` lists them."""

    reason = "COMMENT_NOT_FOUND"


class RuleNotFoundError(NotFoundError):
    """No permission rule has that id. `rametctl rules` lists them."""

    reason = "RULE_NOT_FOUND"


class TrashEntryNotFoundError(NotFoundError):
    """Nothing in the trash has that id, prefix or name. `rametctl trash` lists what is there."""

    reason = "TRASH_ENTRY_NOT_FOUND"


class PlanNotFoundError(NotFoundError):
    """No plan of that name or file is applied. `rametctl plan ls` lists them."""

    reason = "PLAN_NOT_FOUND"


class RemoteNotFoundError(NotFoundError):
    """The repository has no remote of that name, or none. `git remote add origin URL` adds one."""

    reason = "REMOTE_NOT_FOUND"


class PullRequestNotFoundError(NotFoundError):
    """No pull request of the session is known, or none has that number. `rametctl pr create` or `pr link`."""

    reason = "PULL_REQUEST_NOT_FOUND"


class LandingNotFoundError(NotFoundError):
    """No entry of a merge queue has that id, and no session of that name has one. `rametctl queue ls --all`."""

    reason = "LANDING_NOT_FOUND"


class NameTakenError(TakenError):
    """Another session of the repository has the name."""

    reason = "NAME_TAKEN"


class BranchTakenError(TakenError):
    """The branch exists or is checked out; says where, and what works. Data: ``data["worktree"]``."""

    reason = "BRANCH_TAKEN"


class PathTakenError(TakenError):
    """Something that Ramet did not make lies where a worktree should go."""

    reason = "PATH_TAKEN"


class RequestIdReusedError(TakenError):
    """A request id came again with another request. Use a new one."""

    reason = "REQUEST_ID_REUSED"


# State


class UnbornBranchError(PreconditionError):
    """The repository has no commit yet. Make the first one."""

    reason = "NO_COMMIT"


class WorkAtRiskError(PreconditionError):
    """Removing would lose work that exists nowhere else; it is listed. `--force` keeps it in the trash."""

    reason = "WORK_AT_RISK"


class WrongStateError(PreconditionError):
    """The session's state does not allow it; the hint says what does."""

    reason = "WRONG_STATE"


class NotTrustedError(PreconditionError):
    """The repository's own commands run only once you trust it: `rametctl repo trust` shows them and asks."""

    reason = "REPO_NOT_TRUSTED"


class RequestClosedError(PreconditionError):
    """Somebody has answered it (who and when are told), or the agent no longer asks."""

    reason = "REQUEST_CLOSED"


class AgentUnavailableError(PreconditionError):
    """The agent's program is missing or does not work. Set `agents.claude.path`."""

    reason = "AGENT_UNAVAILABLE"


class AgentRefusedError(PreconditionError):
    """The running agent does not take what it was asked to, such as another mode. What was set is stored and
    counts from its next start: `rametctl stop S`, then `rametctl resume S`.
    """

    reason = "AGENT_REFUSED"


class WorkingDirectoryError(PreconditionError):
    """The directory an agent is to work in is missing or cannot be entered."""

    reason = "WORKING_DIRECTORY"


class GitFailedError(PreconditionError):
    """Git refused; its own words follow."""

    reason = "GIT_FAILED"


class PushRefusedError(PreconditionError):
    """The remote would not take the branch, or its branch holds work that Ramet did not push and will not replace."""

    reason = "PUSH_REFUSED"


class ForgeLoginError(PreconditionError):
    """`gh` is not there, or not logged in where the remote is. `gh auth login`."""

    reason = "FORGE_LOGIN"


class ForgeRefusedError(PreconditionError):
    """GitHub refused, in its own words. Data: ``data["status"]``."""

    reason = "FORGE_REFUSED"


class RemoteFailedError(PreconditionError):
    """A remote did not answer within a minute, or refused; git's own words follow."""

    reason = "REMOTE_FAILED"


class ProtectedBranchError(PreconditionError):
    """The branch is changed by pull requests only; `land.protected` says which are. `rametctl pr create S`. Data:
    ``data["branch"]``.
    """

    reason = "PROTECTED_BRANCH"


class UnsupportedRepositoryError(PreconditionError):
    """The repository uses a format that cannot be read (SHA-256 objects, reftables)."""

    reason = "REPO_UNSUPPORTED"


class WorktreeChangedError(PreconditionError):
    """The directory is not, or no longer, the worktree that was recorded."""

    reason = "WORKTREE_CHANGED"


class RuntimeDirectoryError(PreconditionError):
    """The runtime directory or the socket cannot be used safely; the hint says what to change."""

    reason = "RUNTIME_DIRECTORY"


class AlreadyRunningError(PreconditionError):
    """Another daemon serves this state. Data: ``data["pid"]``."""

    reason = "ALREADY_RUNNING"


class NewerDatabaseError(PreconditionError):
    """A newer release wrote the database; it is left untouched. Install that release again."""

    reason = "NEWER_DATABASE"


class DatabaseUnusableError(PreconditionError):
    """The database cannot be opened where it is."""

    reason = "DATABASE_UNUSABLE"


class PathsOwnedError(PreconditionError):
    """Another session owns what was asked for. Data: ``data["owner"]``, ``data["path"]``."""

    reason = "PATHS_OWNED"


class NotAllowedError(DeniedError):
    """A session may not do this; the person can."""

    reason = "PERMISSION_DENIED"


class BypassForbiddenError(DeniedError):
    """`bypassPermissions` is off until `permissions.allow_bypass = true`."""

    reason = "BYPASS_FORBIDDEN"

    def __init__(
        self,
        message: str = "bypassPermissions is off",
        *,
        hint: str = "if you mean it, set permissions.allow_bypass = true in config.toml, then `rametctl daemon restart`",
        **data: str,
    ) -> None:
        super().__init__(message, hint=hint, **data)


class ModeTooLooseError(DeniedError):
    """A child may not run in a looser mode than its parent. Ask for the same or a stricter one."""

    reason = "MODE_TOO_LOOSE"


class BudgetTooHighError(DeniedError):
    """A child may not cost more than what is left of its parent's budget. Ask for less."""

    reason = "BUDGET_TOO_HIGH"


class PathsNotOwnedError(DeniedError):
    """A session gives away only paths within those it owns."""

    reason = "PATHS_NOT_OWNED"


class CapReachedError(ExhaustedError):
    """A cap on families (`caps.*`) is reached; says which, and what to do instead. Data: ``data["cap"]``."""

    reason = "CAP_REACHED"


class TooManyMessagesError(ExhaustedError):
    """Over 20 messages a minute, or a chain of answers to answers. Go on with your own work, or end your turn."""

    reason = "TOO_MANY_MESSAGES"


class ReadOnlyError(UnavailableError):
    """The disk is full: nothing can be recorded until there is room. Agents go on; their output is kept."""

    reason = "READ_ONLY"


class RecoveringError(UnavailableError):
    """The daemon is taking up its sessions. Try again in a moment."""

    reason = "RECOVERING"


class GitBusyError(UnavailableError):
    """A lock file of git was held longer than Ramet waits; it is named."""

    reason = "GIT_BUSY"


class ForgeUnavailableError(UnavailableError):
    """The remote or GitHub cannot be reached, or wants to be asked less often. Everything else goes on. Data:
    ``data["retry_after"]``.
    """

    reason = "FORGE_UNAVAILABLE"


class StoreBusyError(UnavailableError):
    """Another program holds the database's write lock."""

    reason = "STORE_BUSY"


class ChangedError(AbortedError):
    """It is no longer as the caller believed: look again and decide."""

    reason = "CHANGED"


class StaleBatchError(AbortedError):
    """Inside the daemon: another daemon has stored these lines already. Data: ``data["stored"]``."""

    reason = "STALE_BATCH"


class KeeperFencedError(AbortedError):
    """Inside the daemon: a newer daemon has the keeper."""

    reason = "KEEPER_FENCED"


class KeeperError(BrokenError):
    """A keeper broke its protocol, or cannot be reached though it lives."""

    reason = "KEEPER_FAILED"


class DatabaseDamagedError(BrokenError):
    """The database is malformed. The next start sets it aside and builds it anew from the agents' journals."""

    reason = "DATABASE_DAMAGED"


class VersionSkewError(PreconditionError):
    """Client and daemon do not understand each other. `rametctl daemon restart`, or install the client again."""

    reason = "VERSION_SKEW"
