-- The first schema. Times are seconds since the epoch, money is US dollars. Tables of short rows go WITHOUT ROWID.

CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;

-- One row per start of a daemon; the id is the fence that keepers compare.
CREATE TABLE runs (
    fence INTEGER PRIMARY KEY AUTOINCREMENT,
    instance_id TEXT NOT NULL,
    pid INTEGER NOT NULL,
    version TEXT NOT NULL,
    start_time REAL NOT NULL
) STRICT;

CREATE TABLE repos (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    root TEXT NOT NULL,
    common_dir TEXT NOT NULL UNIQUE,
    trust_digest TEXT NOT NULL DEFAULT '', -- of the contents that the person trusted last; empty: not trusted
    create_time REAL NOT NULL
) STRICT, WITHOUT ROWID;

-- Items of a repository that the person has seen and trusted, by content.
CREATE TABLE trusted_items (
    repo_id TEXT NOT NULL REFERENCES repos (id) ON DELETE CASCADE,
    key TEXT NOT NULL,
    digest TEXT NOT NULL,
    text TEXT NOT NULL,
    trust_time REAL NOT NULL,
    PRIMARY KEY (repo_id, key, digest)
) STRICT, WITHOUT ROWID;

CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    repo_id TEXT NOT NULL REFERENCES repos (id),
    name TEXT NOT NULL,
    branch TEXT NOT NULL,
    base_ref TEXT NOT NULL,
    base_commit TEXT NOT NULL,
    worktree TEXT NOT NULL,
    parent_id TEXT NOT NULL DEFAULT '',
    agent TEXT NOT NULL,
    model TEXT NOT NULL DEFAULT '',
    mode TEXT NOT NULL,
    state TEXT NOT NULL,
    state_reason TEXT NOT NULL DEFAULT '',
    hold TEXT NOT NULL DEFAULT '',
    conversation_id TEXT NOT NULL,
    conversation_begun INTEGER NOT NULL DEFAULT 0,
    created_branch INTEGER NOT NULL DEFAULT 0,
    worktree_ready INTEGER NOT NULL DEFAULT 0,
    interrupted INTEGER NOT NULL DEFAULT 0,
    turns INTEGER NOT NULL DEFAULT 0,
    cost_usd REAL, -- NULL: unknown
    input_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    cache_read_tokens INTEGER NOT NULL DEFAULT 0,
    cache_write_tokens INTEGER NOT NULL DEFAULT 0,
    budget_usd REAL,
    budget_tokens INTEGER,
    priority INTEGER NOT NULL DEFAULT 0,
    owns TEXT NOT NULL DEFAULT '[]',
    forbids TEXT NOT NULL DEFAULT '[]',
    after TEXT NOT NULL DEFAULT '[]',
    resumes INTEGER NOT NULL DEFAULT 0,
    generation INTEGER NOT NULL DEFAULT 0,
    create_time REAL NOT NULL,
    update_time REAL NOT NULL,
    last_seq INTEGER NOT NULL DEFAULT 0,
    version INTEGER NOT NULL DEFAULT 0,
    root_id TEXT NOT NULL DEFAULT '',
    notify_parent INTEGER NOT NULL DEFAULT 0,
    result TEXT NOT NULL DEFAULT '',
    resume_at REAL,
    limit_resumes INTEGER NOT NULL DEFAULT 0,
    upstream_tries INTEGER NOT NULL DEFAULT 0,
    budget_warned INTEGER NOT NULL DEFAULT 0,
    checkpoint INTEGER NOT NULL DEFAULT 0,
    last_message_id TEXT NOT NULL DEFAULT '',
    turn_summary TEXT NOT NULL DEFAULT '',
    effort TEXT NOT NULL DEFAULT '',
    doing TEXT NOT NULL DEFAULT '',
    state_time REAL NOT NULL DEFAULT 0,
    setup_reason TEXT NOT NULL DEFAULT '',
    archive_commit TEXT NOT NULL DEFAULT '',
    before_archive TEXT NOT NULL DEFAULT '[]',
    turn_seconds REAL NOT NULL DEFAULT 0,
    contest TEXT NOT NULL DEFAULT '',
    contest_check TEXT NOT NULL DEFAULT '',
    judges TEXT NOT NULL DEFAULT '',
    environment TEXT NOT NULL DEFAULT '' -- digest of the variables that its next agent gets
) STRICT;
-- Ids that this Ramet has assigned: objects named by other ids belong to another Ramet.
CREATE TABLE given_ids (
    id TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX sessions_name ON sessions (repo_id, name);
CREATE UNIQUE INDEX sessions_branch ON sessions (repo_id, branch) WHERE state <> 'archived' AND branch <> '';
CREATE INDEX sessions_state ON sessions (state);
CREATE INDEX sessions_root ON sessions (root_id);
CREATE INDEX sessions_owning ON sessions (repo_id, create_time, id) WHERE owns <> '[]';

CREATE TABLE agents (
    session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    generation INTEGER NOT NULL,
    state TEXT NOT NULL,
    handle TEXT NOT NULL DEFAULT '',
    journal_offset INTEGER NOT NULL DEFAULT 0,
    stdin_offset INTEGER NOT NULL DEFAULT 0,
    initialize_reply BLOB NOT NULL DEFAULT x'',
    hook_table TEXT NOT NULL DEFAULT '',
    cli_version TEXT NOT NULL DEFAULT '',
    start_time REAL NOT NULL,
    end_time REAL,
    exit_status TEXT NOT NULL DEFAULT '',
    stop_intent TEXT NOT NULL DEFAULT '',
    mode TEXT NOT NULL DEFAULT '',
    model TEXT NOT NULL DEFAULT '',
    activity TEXT NOT NULL DEFAULT '',
    background INTEGER NOT NULL DEFAULT 0,
    background_commands TEXT NOT NULL DEFAULT '[]',
    cost_base REAL NOT NULL DEFAULT 0,
    over_budget TEXT NOT NULL DEFAULT '',
    limit_until REAL NOT NULL DEFAULT 0,
    result TEXT NOT NULL DEFAULT '',
    api_error TEXT NOT NULL DEFAULT '',
    in_turn INTEGER NOT NULL DEFAULT 0,
    conversation_home TEXT NOT NULL DEFAULT '',
    environment TEXT NOT NULL DEFAULT '', -- digest of the variables that it was started with
    turn_offset INTEGER NOT NULL DEFAULT 0, -- journal bytes before the running turn
    interrupting INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (session_id, generation)
) STRICT;
-- One process per conversation: the database refuses a second one that is alive.
CREATE UNIQUE INDEX agents_one_alive ON agents (session_id) WHERE state IN ('starting', 'live');

CREATE TABLE prompts (
    id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    text TEXT NOT NULL,
    source TEXT NOT NULL,
    state TEXT NOT NULL,
    generation INTEGER NOT NULL DEFAULT 0,
    create_time REAL NOT NULL,
    receive_time REAL,
    hops INTEGER NOT NULL DEFAULT 0,
    turn INTEGER NOT NULL DEFAULT 0,
    images INTEGER NOT NULL DEFAULT 0,
    result TEXT NOT NULL DEFAULT '',
    UNIQUE (session_id, number)
) STRICT;
CREATE TABLE prompt_images (
    prompt_id TEXT NOT NULL REFERENCES prompts (id) ON DELETE CASCADE ON UPDATE CASCADE,
    number INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (prompt_id, number)
) STRICT;
CREATE INDEX prompts_source ON prompts (source, create_time) WHERE source LIKE 'session:%';
CREATE INDEX prompts_open ON prompts (session_id, number) WHERE state IN ('queued', 'sent');

CREATE TABLE requests (
    id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    generation INTEGER NOT NULL,
    control_id TEXT NOT NULL,
    tool_use_id TEXT NOT NULL DEFAULT '',
    kind TEXT NOT NULL,
    tool TEXT NOT NULL DEFAULT '',
    input TEXT NOT NULL,
    reason TEXT NOT NULL DEFAULT '',
    suggestions TEXT NOT NULL DEFAULT '[]',
    edit BLOB NOT NULL DEFAULT x'', -- a FileEdit: what an editing tool would change
    offers TEXT NOT NULL DEFAULT '[]', -- what an approval can remember
    state TEXT NOT NULL,
    answer TEXT NOT NULL DEFAULT '',
    answered_by TEXT NOT NULL DEFAULT '',
    answer_time REAL,
    create_time REAL NOT NULL
) STRICT;
CREATE INDEX requests_session ON requests (session_id); -- for the foreign key
CREATE INDEX requests_open ON requests (session_id, create_time) WHERE state = 'open';
CREATE UNIQUE INDEX requests_control ON requests (session_id, generation, control_id) WHERE control_id <> '';

CREATE TABLE control_requests (
    session_id TEXT NOT NULL,
    generation INTEGER NOT NULL,
    id TEXT NOT NULL,
    subtype TEXT NOT NULL,
    frame BLOB NOT NULL,
    answer BLOB NOT NULL DEFAULT x'',
    cancelled INTEGER NOT NULL DEFAULT 0,
    number INTEGER NOT NULL, -- order of arrival within the generation
    PRIMARY KEY (session_id, generation, id),
    FOREIGN KEY (session_id, generation) REFERENCES agents (session_id, generation) ON DELETE CASCADE
) STRICT;

CREATE TABLE outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id TEXT NOT NULL,
    generation INTEGER NOT NULL,
    kind TEXT NOT NULL,
    ref TEXT NOT NULL,
    line BLOB NOT NULL,
    written INTEGER NOT NULL DEFAULT 0,
    FOREIGN KEY (session_id, generation) REFERENCES agents (session_id, generation) ON DELETE CASCADE
) STRICT;
CREATE INDEX outbox_line ON outbox (session_id, generation, written, id); -- serves the foreign key too

CREATE TABLE ledger (
    session_id TEXT NOT NULL, -- no foreign key: money spent stays on record when the session is gone
    generation INTEGER NOT NULL,
    result_index INTEGER NOT NULL,
    model TEXT NOT NULL,
    cost_usd REAL, -- NULL: unknown
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cache_read_tokens INTEGER NOT NULL,
    cache_write_tokens INTEGER NOT NULL,
    time REAL NOT NULL,
    PRIMARY KEY (session_id, generation, result_index, model)
) STRICT, WITHOUT ROWID;

CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    session_id TEXT NOT NULL DEFAULT '',
    repo_id TEXT NOT NULL DEFAULT '',
    principal TEXT NOT NULL,
    payload BLOB NOT NULL,
    frame BLOB NOT NULL DEFAULT x'',
    time REAL NOT NULL
) STRICT;
CREATE INDEX events_session ON events (session_id, seq);
CREATE INDEX events_repo ON events (repo_id, seq);

-- Answers to mutating RPCs, so that a repeated request id gets the same answer.
CREATE TABLE calls (
    request_id TEXT PRIMARY KEY,
    method TEXT NOT NULL,
    digest BLOB NOT NULL,
    response BLOB NOT NULL,
    create_time REAL NOT NULL
) STRICT;
CREATE INDEX calls_time ON calls (create_time);

-- Operations under way; a row is deleted when its operation is complete or undone.
CREATE TABLE operations (
    id TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    session_id TEXT NOT NULL,
    request_id TEXT NOT NULL DEFAULT '',
    principal TEXT NOT NULL DEFAULT '',
    method TEXT NOT NULL DEFAULT '',
    digest BLOB NOT NULL DEFAULT x'',
    step TEXT NOT NULL DEFAULT '',
    data TEXT NOT NULL DEFAULT '{}',
    failed TEXT NOT NULL DEFAULT '',
    create_time REAL NOT NULL,
    update_time REAL NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX operations_session ON operations (session_id, create_time);

CREATE TABLE trash (
    id TEXT PRIMARY KEY,
    repo_id TEXT NOT NULL REFERENCES repos (id),
    session_id TEXT NOT NULL,
    name TEXT NOT NULL,
    branch TEXT NOT NULL,
    ref TEXT NOT NULL,
    commit_id TEXT NOT NULL,
    branch_commit TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    session TEXT NOT NULL,
    create_time REAL NOT NULL,
    expire_time REAL NOT NULL
) STRICT;

-- The last restore of each session from the archive and from the trash; deleted with the session's checkpoints.
CREATE TABLE restores (
    session_id TEXT NOT NULL,
    origin TEXT NOT NULL,
    warnings TEXT NOT NULL,
    time REAL NOT NULL,
    PRIMARY KEY (session_id, origin)
) STRICT, WITHOUT ROWID;

-- One row per session that a session has spawned; it outlives the session, so that removing children does not refill a cap.
CREATE TABLE spawns (
    session_id TEXT PRIMARY KEY,
    root_id TEXT NOT NULL,
    parent_id TEXT NOT NULL,
    create_time REAL NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX spawns_root ON spawns (root_id, create_time);

CREATE TABLE rules (
    id TEXT PRIMARY KEY,
    repo_id TEXT NOT NULL REFERENCES repos (id) ON DELETE CASCADE,
    session_id TEXT NOT NULL DEFAULT '',
    agent TEXT NOT NULL DEFAULT '',
    effect TEXT NOT NULL,
    text TEXT NOT NULL,
    source TEXT NOT NULL,
    request_id TEXT NOT NULL DEFAULT '',
    matches INTEGER NOT NULL DEFAULT 0,
    create_time REAL NOT NULL,
    match_time REAL,
    UNIQUE (repo_id, session_id, agent, effect, text)
) STRICT, WITHOUT ROWID;

-- Notifications that a way has yet to deliver: one row per item and way. The events up to meta.notifications have theirs.
CREATE TABLE notifications (
    item TEXT NOT NULL,
    way TEXT NOT NULL,
    topic TEXT NOT NULL,
    session_id TEXT NOT NULL, -- no foreign key: the item itself tells whether it still needs a person
    due_time REAL NOT NULL,
    create_time REAL NOT NULL,
    message TEXT NOT NULL DEFAULT '', -- the message that is being sent with it
    PRIMARY KEY (way, item)
) STRICT, WITHOUT ROWID;

CREATE TABLE notification_troubles (
    way TEXT PRIMARY KEY,
    failures INTEGER NOT NULL,
    error TEXT NOT NULL,
    retry_time REAL NOT NULL
) STRICT, WITHOUT ROWID;

-- Processes of the person that have a session's conversation; pid is 0 while there is none.
CREATE TABLE attachments (
    session_id TEXT PRIMARY KEY REFERENCES sessions (id) ON DELETE CASCADE,
    pid INTEGER NOT NULL,
    start TEXT NOT NULL,
    boot TEXT NOT NULL,
    terminal TEXT NOT NULL,
    hold TEXT NOT NULL,
    taken_until REAL NOT NULL
) STRICT, WITHOUT ROWID;
