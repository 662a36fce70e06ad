-- Worktrees, their checkpoints and commands; plans, landing and pull requests.

ALTER TABLE sessions ADD COLUMN worktree_kind TEXT NOT NULL DEFAULT 'own';
ALTER TABLE sessions ADD COLUMN setup TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN setup_digest TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN port_base INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN port_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN forked_from TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN start_commit TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN plan_id TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN thread TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN landed_reason TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN checkpointed_turns INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN conversation_lost INTEGER NOT NULL DEFAULT 0;

ALTER TABLE prompts ADD COLUMN continues INTEGER NOT NULL DEFAULT 0;
-- Until now the daemon sent no other prompts to agents.
UPDATE prompts SET continues = 1 WHERE source = 'daemon';

ALTER TABLE trash ADD COLUMN belongings TEXT NOT NULL DEFAULT '{}';
-- From now on, a predecessor that is missing was removed before it was done, and blocks the sessions that wait for it.
UPDATE sessions SET after = (SELECT json_group_array(value) FROM json_each(after) WHERE value IN (SELECT id FROM sessions))
WHERE after <> '[]';

CREATE TABLE plans (
    id TEXT PRIMARY KEY,
    repo_id TEXT NOT NULL REFERENCES repos (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    file TEXT NOT NULL,
    goal TEXT NOT NULL,
    target TEXT NOT NULL,
    remote TEXT NOT NULL,
    chain INTEGER NOT NULL,
    draft INTEGER,
    create_time REAL NOT NULL,
    update_time REAL NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX plans_name ON plans (repo_id, name);

-- One row per thread; it outlives its session, so that landed work is not created again.
CREATE TABLE plan_threads (
    plan_id TEXT NOT NULL REFERENCES plans (id) ON DELETE CASCADE,
    id TEXT NOT NULL,
    position INTEGER NOT NULL,
    session_id TEXT NOT NULL,
    name TEXT NOT NULL,
    branch TEXT NOT NULL,
    goal TEXT NOT NULL,
    prompt TEXT NOT NULL,
    base TEXT NOT NULL,
    owns TEXT NOT NULL,
    forbids TEXT NOT NULL,
    merge_order INTEGER NOT NULL,
    model TEXT NOT NULL,
    mode TEXT NOT NULL,
    agent TEXT NOT NULL,
    budget_usd REAL,
    after_threads TEXT NOT NULL,
    check_commands TEXT NOT NULL,
    title TEXT NOT NULL,
    ended TEXT NOT NULL,
    dropped INTEGER NOT NULL,
    PRIMARY KEY (plan_id, id)
) STRICT;
CREATE INDEX plan_threads_session ON plan_threads (session_id);

CREATE TABLE pull_requests (
    session_id TEXT PRIMARY KEY REFERENCES sessions (id) ON DELETE CASCADE,
    repo_id TEXT NOT NULL REFERENCES repos (id) ON DELETE CASCADE,
    remote TEXT NOT NULL,
    branch TEXT NOT NULL,
    base TEXT NOT NULL,
    host TEXT NOT NULL,
    slug TEXT NOT NULL,
    number INTEGER NOT NULL,
    url TEXT NOT NULL,
    title TEXT NOT NULL,
    state TEXT NOT NULL,
    checks TEXT NOT NULL,
    review TEXT NOT NULL,
    mergeable TEXT NOT NULL,
    blockers TEXT NOT NULL,
    failed_checks TEXT NOT NULL,
    commit_id TEXT NOT NULL,
    head_commit TEXT NOT NULL,
    check_time REAL,
    error TEXT NOT NULL,
    etags TEXT NOT NULL,
    sent TEXT NOT NULL,
    create_time REAL NOT NULL,
    update_time REAL NOT NULL
) STRICT;

CREATE TABLE spares (
    id TEXT PRIMARY KEY,
    repo_id TEXT NOT NULL REFERENCES repos (id),
    path TEXT NOT NULL,
    commit_id TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL,
    inherits TEXT NOT NULL,
    setup TEXT NOT NULL,
    setup_digest TEXT NOT NULL,
    settings TEXT NOT NULL,
    warnings TEXT NOT NULL,
    create_time REAL NOT NULL
) STRICT;

-- No reference to sessions: a command may belong to none, and its directory is removed along with its row.
CREATE TABLE commands (
    id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL,
    repo_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    argv TEXT NOT NULL,
    directory TEXT NOT NULL,
    state TEXT NOT NULL,
    handle TEXT NOT NULL,
    pid INTEGER NOT NULL,
    exit_status TEXT NOT NULL,
    stop_reason TEXT NOT NULL,
    deadline REAL,
    reported_bytes INTEGER NOT NULL,
    output_bytes INTEGER NOT NULL,
    digest TEXT NOT NULL,
    principal TEXT NOT NULL,
    start_time REAL NOT NULL,
    end_time REAL
) STRICT, WITHOUT ROWID;
CREATE INDEX commands_session ON commands (session_id, start_time);

-- Repositories for which a setup was suggested; Ramet suggests it once.
CREATE TABLE setup_offers (
    repo_id TEXT PRIMARY KEY REFERENCES repos (id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- Entries of the merge queues; they outlive their sessions.
CREATE TABLE landings (
    id TEXT PRIMARY KEY,
    repo_id TEXT NOT NULL REFERENCES repos (id) ON DELETE CASCADE,
    session_id TEXT NOT NULL,
    session_name TEXT NOT NULL,
    branch TEXT NOT NULL,
    target TEXT NOT NULL,
    method TEXT NOT NULL,
    checks TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL,
    merge_order INTEGER NOT NULL,
    position INTEGER NOT NULL,
    after_sessions TEXT NOT NULL,
    returns INTEGER NOT NULL,
    commit_id TEXT NOT NULL,
    old_target TEXT NOT NULL,
    new_target TEXT NOT NULL,
    check_command_id TEXT NOT NULL,
    batch TEXT NOT NULL,
    principal TEXT NOT NULL,
    create_time REAL NOT NULL,
    update_time REAL NOT NULL
) STRICT;
CREATE INDEX landings_session ON landings (session_id, position);
CREATE INDEX landings_open ON landings (repo_id, target, merge_order, position) WHERE state NOT IN ('landed', 'removed');

-- Pairs of sessions whose work conflicts; other_id is '' for the base.
CREATE TABLE conflicts (
    session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    other_id TEXT NOT NULL,
    repo_id TEXT NOT NULL REFERENCES repos (id) ON DELETE CASCADE,
    kind TEXT NOT NULL,
    files TEXT NOT NULL,
    change_time REAL NOT NULL,
    notified TEXT NOT NULL DEFAULT '[]',
    PRIMARY KEY (session_id, other_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX conflicts_repo ON conflicts (repo_id);

CREATE TABLE notices (
    session_id TEXT PRIMARY KEY REFERENCES sessions (id) ON DELETE CASCADE,
    other_ids TEXT NOT NULL,
    text TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- No reference to sessions: the checkpoints of a removed session stay until its trash entry expires.
CREATE TABLE checkpoints (
    id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    reason TEXT NOT NULL,
    turn INTEGER NOT NULL,
    snapshot TEXT NOT NULL,
    tree TEXT NOT NULL,
    head TEXT NOT NULL,
    ref TEXT NOT NULL,
    create_time REAL NOT NULL,
    summary TEXT NOT NULL,
    files INTEGER NOT NULL,
    additions INTEGER NOT NULL,
    deletions INTEGER NOT NULL,
    conversation_id TEXT NOT NULL,
    message_id TEXT NOT NULL,
    parent INTEGER NOT NULL,
    UNIQUE (session_id, number)
) STRICT, WITHOUT ROWID;

-- Conversations that have not begun and will continue a part of another.
CREATE TABLE conversation_cuts (
    session_id TEXT PRIMARY KEY,
    source_id TEXT NOT NULL,
    message_id TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE comments (
    id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    path TEXT NOT NULL,
    line INTEGER NOT NULL,
    end_line INTEGER NOT NULL,
    at TEXT NOT NULL,
    text TEXT NOT NULL,
    quote TEXT NOT NULL,
    anchor TEXT NOT NULL,
    state TEXT NOT NULL,
    author TEXT NOT NULL,
    prompt_id TEXT NOT NULL,
    create_time REAL NOT NULL,
    resolve_time REAL
) STRICT;
CREATE INDEX comments_session ON comments (session_id, create_time);
