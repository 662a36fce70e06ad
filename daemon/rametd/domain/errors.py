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
    reason = "INVALID_INPUT"


class NotFoundError(RametError):
    reason = "NOT_FOUND"


class TakenError(RametError):
    reason = "TAKEN"


class PreconditionError(RametError):
    reason = "FAILED_PRECONDITION"


class DeniedError(RametError):
    reason = "PERMISSION_DENIED"


class UnauthenticatedError(RametError):
    reason = "UNAUTHENTICATED"


class ExhaustedError(RametError):
    reason = "EXHAUSTED"


class UnavailableError(RametError):
    reason = "UNAVAILABLE"


class AbortedError(RametError):
    reason = "ABORTED"


class BrokenError(RametError):
    reason = "INTERNAL"


# Input


class EmptyPromptError(InvalidInputError):
    reason = "EMPTY_PROMPT"


class PromptTooLargeError(InvalidInputError):
    reason = "PROMPT_TOO_LARGE"


class BadNameError(InvalidInputError):
    reason = "BAD_NAME"


class BadConfigError(InvalidInputError):
    reason = "BAD_CONFIG"


class BadRuleError(InvalidInputError):
    """A permission rule (``data["rule"]``) that means nothing, or would allow more than anyone should."""

    reason = "BAD_RULE"


class BadPlanError(InvalidInputError):
    """A plan that cannot be applied: the first problem, and how many more there are (``data["line"]``, ``data["key"]``)."""

    reason = "BAD_PLAN"


class BadEnvironmentError(InvalidInputError):
    """An environment variable that no process can have (``data["name"]``)."""

    reason = "BAD_ENVIRONMENT"


class BadCursorError(InvalidInputError):
    reason = "BAD_CURSOR"


class BadPageTokenError(InvalidInputError):
    reason = "BAD_PAGE_TOKEN"


class AmbiguousError(InvalidInputError):
    """A prefix or name that fits several; ``data["matches"]`` lists them."""

    reason = "AMBIGUOUS"


# What is named


class SessionNotFoundError(NotFoundError):
    reason = "SESSION_NOT_FOUND"


class RepoNotFoundError(NotFoundError):
    """A repository that was never registered, or a path with no repository around it."""

    reason = "REPO_NOT_FOUND"


class RefNotFoundError(NotFoundError):
    reason = "REF_NOT_FOUND"


class RequestNotFoundError(NotFoundError):
    reason = "REQUEST_NOT_FOUND"


class CommandNotFoundError(NotFoundError):
    """A command in a worktree, or one named under ``run`` in the configuration (``data["names"]`` lists those)."""

    reason = "COMMAND_NOT_FOUND"


class CheckpointNotFoundError(NotFoundError):
    reason = "CHECKPOINT_NOT_FOUND"


class CommentNotFoundError(NotFoundError):
    reason = "COMMENT_NOT_FOUND"


class RuleNotFoundError(NotFoundError):
    reason = "RULE_NOT_FOUND"


class TrashEntryNotFoundError(NotFoundError):
    reason = "TRASH_ENTRY_NOT_FOUND"


class PlanNotFoundError(NotFoundError):
    reason = "PLAN_NOT_FOUND"


class RemoteNotFoundError(NotFoundError):
    """The repository has no remote of that name, or none at all."""

    reason = "REMOTE_NOT_FOUND"


class PullRequestNotFoundError(NotFoundError):
    reason = "PULL_REQUEST_NOT_FOUND"


class LandingNotFoundError(NotFoundError):
    reason = "LANDING_NOT_FOUND"


class NameTakenError(TakenError):
    reason = "NAME_TAKEN"


class BranchTakenError(TakenError):
    """The branch exists, or is checked out in a worktree (``data["worktree"]``)."""

    reason = "BRANCH_TAKEN"


class PathTakenError(TakenError):
    """Something that we did not make lies where a worktree should go."""

    reason = "PATH_TAKEN"


class RequestIdReusedError(TakenError):
    """The same request id came with another request."""

    reason = "REQUEST_ID_REUSED"


# State


class UnbornBranchError(PreconditionError):
    """The repository has no commit yet, so that there is nothing to start from."""

    reason = "NO_COMMIT"


class WorkAtRiskError(PreconditionError):
    """Removing it would lose work that exists nowhere else; the message lists it."""

    reason = "WORK_AT_RISK"


class WrongStateError(PreconditionError):
    reason = "WRONG_STATE"


class NotTrustedError(PreconditionError):
    """The repository brings commands of its own, which run only once the owner trusts it."""

    reason = "REPO_NOT_TRUSTED"


class RequestClosedError(PreconditionError):
    """Somebody has answered it, or the agent no longer asks; says who and when."""

    reason = "REQUEST_CLOSED"


class AgentUnavailableError(PreconditionError):
    """The agent's program is missing or cannot be started."""

    reason = "AGENT_UNAVAILABLE"


class AgentRefusedError(PreconditionError):
    """A running agent does not do what it was asked to: take another mode, another model, end its turn."""

    reason = "AGENT_REFUSED"


class WorkingDirectoryError(PreconditionError):
    """The directory that an agent is to work in is missing or cannot be entered."""

    reason = "WORKING_DIRECTORY"


class GitFailedError(PreconditionError):
    """Git refused; the message holds its own words."""

    reason = "GIT_FAILED"


class PushRefusedError(PreconditionError):
    """The remote would not take the branch, or its branch holds work that is not ours to replace."""

    reason = "PUSH_REFUSED"


class ForgeLoginError(PreconditionError):
    """`gh` is not there, or not logged in where the remote is."""

    reason = "FORGE_LOGIN"


class ForgeRefusedError(PreconditionError):
    """GitHub refused; the message holds its own words, ``data["status"]`` the status."""

    reason = "FORGE_REFUSED"


class RemoteFailedError(PreconditionError):
    """A remote repository did not answer, or refused; the message holds git's own words."""

    reason = "REMOTE_FAILED"


class ProtectedBranchError(PreconditionError):
    """The branch is changed by pull requests only (``data["branch"]``)."""

    reason = "PROTECTED_BRANCH"


class UnsupportedRepositoryError(PreconditionError):
    """The repository uses a format that cannot be read (SHA-256 objects, reftables)."""

    reason = "REPO_UNSUPPORTED"


class WorktreeChangedError(PreconditionError):
    """The directory is not, or no longer, the worktree that was recorded."""

    reason = "WORKTREE_CHANGED"


class RuntimeDirectoryError(PreconditionError):
    """The runtime directory or the socket cannot be used safely."""

    reason = "RUNTIME_DIRECTORY"


class AlreadyRunningError(PreconditionError):
    """Another daemon holds the lock (``data["pid"]``)."""

    reason = "ALREADY_RUNNING"


class NewerDatabaseError(PreconditionError):
    """The database was written by a newer release; it is left untouched."""

    reason = "NEWER_DATABASE"


class DatabaseUnusableError(PreconditionError):
    """The database cannot be opened where it is: its place, its permissions, or it is another program's."""

    reason = "DATABASE_UNUSABLE"


class PathsOwnedError(PreconditionError):
    """Another session (``data["owner"]``) owns what was asked for, such as ``data["path"]``."""

    reason = "PATHS_OWNED"


class NotAllowedError(DeniedError):
    reason = "PERMISSION_DENIED"


class BypassForbiddenError(DeniedError):
    """``bypassPermissions`` needs ``permissions.allow_bypass = true`` in the owner's configuration."""

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
    """A child's mode may not be looser than its parent's."""

    reason = "MODE_TOO_LOOSE"


class BudgetTooHighError(DeniedError):
    """A child may cost no more than what is left of its parent's budget."""

    reason = "BUDGET_TOO_HIGH"


class PathsNotOwnedError(DeniedError):
    """A session can give away only paths that it owns."""

    reason = "PATHS_NOT_OWNED"


class CapReachedError(ExhaustedError):
    """A cap on what sessions may set going; ``data["cap"]`` names it."""

    reason = "CAP_REACHED"


class TooManyMessagesError(ExhaustedError):
    """A session talks too much, or two answer each other without end."""

    reason = "TOO_MANY_MESSAGES"


class ReadOnlyError(UnavailableError):
    """The disk is full: nothing can be recorded until there is room again."""

    reason = "READ_ONLY"


class RecoveringError(UnavailableError):
    reason = "RECOVERING"


class GitBusyError(UnavailableError):
    """A lock file of git was held longer than we wait; the message names it."""

    reason = "GIT_BUSY"


class ForgeUnavailableError(UnavailableError):
    """The remote or GitHub cannot be reached, is out of order, or wants to be left alone for ``data["retry_after"]`` seconds."""

    reason = "FORGE_UNAVAILABLE"


class StoreBusyError(UnavailableError):
    """Another program holds the database's write lock."""

    reason = "STORE_BUSY"


class ChangedError(AbortedError):
    """It is no longer as the caller believed (a version or a state): look again and decide."""

    reason = "CHANGED"


class StaleBatchError(AbortedError):
    """A batch of an agent's journal does not start where the last committed one ended; ``data["stored"]`` is that offset."""

    reason = "STALE_BATCH"


class KeeperFencedError(AbortedError):
    """Another controller, of an equal or a newer epoch, has the keeper."""

    reason = "KEEPER_FENCED"


class KeeperError(BrokenError):
    """The keeper broke its protocol, or cannot be reached though it lives."""

    reason = "KEEPER_FAILED"


class DatabaseDamagedError(BrokenError):
    """The database is malformed; it is set aside and rebuilt when the daemon starts next."""

    reason = "DATABASE_DAMAGED"


class VersionSkewError(PreconditionError):
    """Client and daemon are of releases that do not understand each other; the hint says which to renew."""

    reason = "VERSION_SKEW"
