"""All errors that Ramet reports, in one tree.

RametError
├── InvalidInputError       the request is invalid: change it                      INVALID_ARGUMENT
├── NotFoundError           the named object does not exist                        NOT_FOUND
├── TakenError              the object to create exists already                    ALREADY_EXISTS
├── PreconditionError       valid, but not in the present state                    FAILED_PRECONDITION
├── DeniedError             the caller may not do this                             PERMISSION_DENIED
├── UnauthenticatedError    the caller's token is unknown                          UNAUTHENTICATED
├── ExhaustedError          a cap or limit is reached                              RESOURCE_EXHAUSTED
├── UnavailableError        not now; the same request may succeed later            UNAVAILABLE
├── AbortedError            another change came first: read again, then decide     ABORTED
└── BrokenError             an invariant is broken, by Ramet or by the machine     INTERNAL

A leaf has a stable ``reason`` (UPPER_SNAKE_CASE, part of the contract), a message that says what
happened, a ``hint`` that says what to do next, and ``data`` (flat, strings) for programs. Messages
and hints are one line each. The docstring of a leaf says when it is raised; docs/reference.md
repeats it.
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
    """The request is invalid; the message says why."""

    reason = "INVALID_INPUT"


class NotFoundError(RametError):
    """The named object does not exist."""

    reason = "NOT_FOUND"


class TakenError(RametError):
    """An object with that name or id exists already."""

    reason = "TAKEN"


class PreconditionError(RametError):
    """The request is valid, but not in the present state."""

    reason = "FAILED_PRECONDITION"


class DeniedError(RametError):
    """A session may not do this; the person may."""

    reason = "PERMISSION_DENIED"


class UnauthenticatedError(RametError):
    """`RAMET_TOKEN` is not the token of a living session. Unset it to act as yourself."""

    reason = "UNAUTHENTICATED"


class ExhaustedError(RametError):
    """A cap or limit is reached."""

    reason = "EXHAUSTED"


class UnavailableError(RametError):
    """Not possible now; the same request may succeed later."""

    reason = "UNAVAILABLE"


class AbortedError(RametError):
    """Another change came first. Read again, then decide."""

    reason = "ABORTED"


class BrokenError(RametError):
    """An error in Ramet. Find its id in `rametctl daemon logs`, and please report it."""

    reason = "INTERNAL"


# Input


class EmptyPromptError(InvalidInputError):
    """The prompt is empty. Say what the agent should do."""

    reason = "EMPTY_PROMPT"


class PromptTooLargeError(InvalidInputError):
    """The prompt is larger than 16 MiB. Put the material into a file and name the file."""

    reason = "PROMPT_TOO_LARGE"


class BadNameError(InvalidInputError):
    """A name or branch is not valid; the hint suggests one that is."""

    reason = "BAD_NAME"


class BadConfigError(InvalidInputError):
    """A configuration file is not valid; the message names file, line and key."""

    reason = "BAD_CONFIG"


class BadRuleError(InvalidInputError):
    """A permission rule is not valid, allows everything, or reaches outside the worktree. Data:
    ``data["rule"]``."""

    reason = "BAD_RULE"


class BadPlanError(InvalidInputError):
    """The plan cannot be applied. `rametctl plan check` lists all problems. Data: ``data["line"]``,
    ``data["key"]``."""

    reason = "BAD_PLAN"


class BadEnvironmentError(InvalidInputError):
    """The name or value of an environment variable is not valid. Data: ``data["name"]``."""

    reason = "BAD_ENVIRONMENT"


class BadCursorError(InvalidInputError):
    """The cursor belongs to another event log. Read from the beginning."""

    reason = "BAD_CURSOR"


class BadPageTokenError(InvalidInputError):
    """The page token does not belong to this list."""

    reason = "BAD_PAGE_TOKEN"


class AmbiguousError(InvalidInputError):
    """Several ids or names match; the message lists them. Use more of the id. Data:
    ``data["matches"]``."""

    reason = "AMBIGUOUS"


# Named objects


class SessionNotFoundError(NotFoundError):
    """No session has that id, prefix or name. `rametctl ls --all` lists them."""

    reason = "SESSION_NOT_FOUND"


class RepoNotFoundError(NotFoundError):
    """The path is not in a git repository, or no repository is registered under that name."""

    reason = "REPO_NOT_FOUND"


class RefNotFoundError(NotFoundError):
    """Git knows no such branch, tag or commit; the hint lists similar names."""

    reason = "REF_NOT_FOUND"


class RequestNotFoundError(NotFoundError):
    """No request has that id, or the session has no open request. `rametctl inbox` lists them."""

    reason = "REQUEST_NOT_FOUND"


class CommandNotFoundError(NotFoundError):
    """No command has that id (`rametctl run SESSION --list` lists them), or none is configured under that
    name. Data: ``data["names"]``.
    """

    reason = "COMMAND_NOT_FOUND"


class CheckpointNotFoundError(NotFoundError):
    """The session has no checkpoint of that number or id. `rametctl checkpoints SESSION` lists them."""

    reason = "CHECKPOINT_NOT_FOUND"


class CommentNotFoundError(NotFoundError):
    """No review comment has that id. `rametctl comment SESSION` lists them."""

    reason = "COMMENT_NOT_FOUND"


class RuleNotFoundError(NotFoundError):
    """No permission rule has that id. `rametctl rules` lists them."""

    reason = "RULE_NOT_FOUND"


class TrashEntryNotFoundError(NotFoundError):
    """No trash entry has that id, prefix or name. `rametctl trash` lists them."""

    reason = "TRASH_ENTRY_NOT_FOUND"


class PlanNotFoundError(NotFoundError):
    """No applied plan has that name or file. `rametctl plan ls` lists them."""

    reason = "PLAN_NOT_FOUND"


class RemoteNotFoundError(NotFoundError):
    """The repository has no such remote, or no remote at all. `git remote add origin URL` adds
    one."""

    reason = "REMOTE_NOT_FOUND"


class PullRequestNotFoundError(NotFoundError):
    """The session has no pull request, or none has that number. Run `rametctl pr create` or `pr
    link`."""

    reason = "PULL_REQUEST_NOT_FOUND"


class LandingNotFoundError(NotFoundError):
    """No entry of a merge queue has that id or session name. `rametctl queue ls --all` lists
    them."""

    reason = "LANDING_NOT_FOUND"


class NameTakenError(TakenError):
    """Another session of the repository has the name."""

    reason = "NAME_TAKEN"


class BranchTakenError(TakenError):
    """The branch exists or is checked out; the message says where, the hint what to do. Data:
    ``data["worktree"]``."""

    reason = "BRANCH_TAKEN"


class PathTakenError(TakenError):
    """A file or directory that Ramet did not create occupies the path of the new worktree."""

    reason = "PATH_TAKEN"


class RequestIdReusedError(TakenError):
    """The request id was used for another request. Use a new one."""

    reason = "REQUEST_ID_REUSED"


# State


class UnbornBranchError(PreconditionError):
    """The repository has no commit yet. Create one first."""

    reason = "NO_COMMIT"


class WorkAtRiskError(PreconditionError):
    """Removing the session would lose work that exists nowhere else; the message lists it.
    `--force` moves it to the trash.
    """

    reason = "WORK_AT_RISK"


class WrongStateError(PreconditionError):
    """The session's state does not allow it; the hint says what does."""

    reason = "WRONG_STATE"


class NotTrustedError(PreconditionError):
    """Ramet runs the repository's own commands only once you trust it: `rametctl repo trust` shows
    them and asks."""

    reason = "REPO_NOT_TRUSTED"


class RequestClosedError(PreconditionError):
    """The request was answered (the message says by whom and when), or the agent withdrew it."""

    reason = "REQUEST_CLOSED"


class AgentUnavailableError(PreconditionError):
    """The agent's program is missing or does not work. Set `agents.claude.path`."""

    reason = "AGENT_UNAVAILABLE"


class AgentRefusedError(PreconditionError):
    """The running agent rejected a change, such as another mode. The change is stored and takes
    effect at its next start: `rametctl stop SESSION`, then `rametctl resume SESSION`.
    """

    reason = "AGENT_REFUSED"


class AgentUnableError(PreconditionError):
    """This kind of agent cannot do it: see `rametctl agents show NAME`."""

    reason = "AGENT_UNABLE"


class WorkingDirectoryError(PreconditionError):
    """The agent's working directory is missing or cannot be entered."""

    reason = "WORKING_DIRECTORY"


class GitFailedError(PreconditionError):
    """Git failed; the message quotes it."""

    reason = "GIT_FAILED"


class CheckoutIncompleteError(PreconditionError):
    """Git failed after it had written some files of another commit, and Ramet could not take these
    back; the message quotes both failures. Data: ``data["worktree"]``."""

    reason = "CHECKOUT_INCOMPLETE"


class PushRefusedError(PreconditionError):
    """The remote rejected the push, or its branch has commits that Ramet did not push and will not
    replace."""

    reason = "PUSH_REFUSED"


class ForgeLoginError(PreconditionError):
    """`gh` is not installed, or not logged in to the remote's host. Run `gh auth login`."""

    reason = "FORGE_LOGIN"


class ForgeRefusedError(PreconditionError):
    """GitHub rejected the request; the message quotes it. Data: ``data["status"]``."""

    reason = "FORGE_REFUSED"


class RemoteFailedError(PreconditionError):
    """A remote failed or did not answer within a minute; the message quotes git."""

    reason = "REMOTE_FAILED"


class ProtectedBranchError(PreconditionError):
    """`land.protected` names the branch, or it has an upstream (``data["upstream"]``) and `--local`
    was not given. Run `rametctl pr create SESSION`. Data: ``data["branch"]``.
    """

    reason = "PROTECTED_BRANCH"


class UnsupportedRepositoryError(PreconditionError):
    """Ramet cannot read the repository's format (SHA-256 objects, reftables)."""

    reason = "REPO_UNSUPPORTED"


class WorktreeChangedError(PreconditionError):
    """The directory is not the recorded worktree."""

    reason = "WORKTREE_CHANGED"


class RuntimeDirectoryError(PreconditionError):
    """The runtime directory or the socket cannot be used safely; the hint says what to change."""

    reason = "RUNTIME_DIRECTORY"


class AlreadyRunningError(PreconditionError):
    """Another daemon serves this state. Data: ``data["pid"]``."""

    reason = "ALREADY_RUNNING"


class NewerDatabaseError(PreconditionError):
    """A newer release wrote the database, which stays untouched. Install that release again."""

    reason = "NEWER_DATABASE"


class DatabaseUnusableError(PreconditionError):
    """The database cannot be opened."""

    reason = "DATABASE_UNUSABLE"


class PathsOwnedError(PreconditionError):
    """Another session owns the paths. Data: ``data["owner"]``, ``data["path"]``."""

    reason = "PATHS_OWNED"


class NotAllowedError(DeniedError):
    """A session may not do this; the person may."""

    reason = "PERMISSION_DENIED"


class BypassForbiddenError(DeniedError):
    """`auto` and `bypassPermissions` are off unless `permissions.allow_bypass = true`."""

    reason = "BYPASS_FORBIDDEN"

    def __init__(
        self,
        message: str = "mode bypassPermissions is off, because no person decides in it",
        *,
        hint: str = "to allow that: rametctl config set permissions.allow_bypass true",
        **data: str,
    ) -> None:
        super().__init__(message, hint=hint, **data)

    @classmethod
    def of(cls, mode: str) -> "BypassForbiddenError":
        """Return the error for the requested mode."""
        return cls(f"mode {mode} is off, because no person decides in it")


class ModeTooLooseError(DeniedError):
    """A child may not run in a looser mode than its parent. Request the same or a stricter one."""

    reason = "MODE_TOO_LOOSE"


class BudgetTooHighError(DeniedError):
    """A child's budget may not exceed the rest of its parent's budget. Request less."""

    reason = "BUDGET_TOO_HIGH"


class PathsNotOwnedError(DeniedError):
    """A session may give away only paths that it owns."""

    reason = "PATHS_NOT_OWNED"


class CapReachedError(ExhaustedError):
    """A cap on families (`caps.*`) is reached; the message says which, the hint what to do instead.
    Data: ``data["cap"]``.
    """

    reason = "CAP_REACHED"


class TooManyMessagesError(ExhaustedError):
    """A session sent over 20 messages in a minute, or a chain of replies between sessions is too
    long. Continue your own work, or end your turn.
    """

    reason = "TOO_MANY_MESSAGES"


class ReadOnlyError(UnavailableError):
    """The disk is full, and Ramet cannot record anything until there is room. Agents continue;
    their keepers store their output.
    """

    reason = "READ_ONLY"


class RecoveringError(UnavailableError):
    """The daemon is recovering its sessions. Try again in a moment."""

    reason = "RECOVERING"


class GitBusyError(UnavailableError):
    """Another process holds a lock file of git for too long; the message names the file."""

    reason = "GIT_BUSY"


class ForgeUnavailableError(UnavailableError):
    """The remote or GitHub cannot be reached, or limits the rate of requests. Everything else
    continues. Data: ``data["retry_after"]``.
    """

    reason = "FORGE_UNAVAILABLE"


class StoreBusyError(UnavailableError):
    """Another program holds the database's write lock."""

    reason = "STORE_BUSY"


class ChangedError(AbortedError):
    """The object changed since the caller read it. Look again, then decide."""

    reason = "CHANGED"


class StaleBatchError(AbortedError):
    """Internal: another daemon has stored these lines already. Data: ``data["stored"]``."""

    reason = "STALE_BATCH"


class KeeperFencedError(AbortedError):
    """Internal: the keeper belongs to a newer daemon."""

    reason = "KEEPER_FENCED"


class KeeperError(BrokenError):
    """A keeper broke its protocol, or lives but cannot be reached."""

    reason = "KEEPER_FAILED"


class DatabaseDamagedError(BrokenError):
    """The database is damaged. The next start moves it to `quarantine/` and rebuilds it from the
    agents' journals."""

    reason = "DATABASE_DAMAGED"


class VersionSkewError(PreconditionError):
    """Client and daemon have incompatible versions. Run `rametctl daemon restart`, or install the
    client again."""

    reason = "VERSION_SKEW"
