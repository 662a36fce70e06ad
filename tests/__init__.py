"""Tests of Ramet, and programs for developers."""

import os

# Git sets GIT_DIR and GIT_INDEX_FILE for hooks and for `git rebase --exec`: with them, each git of
# a test would change the contributor's own repository. GIT_CONFIG_* may sign commits.
for name in [each for each in os.environ if each.startswith("GIT_")]:
    del os.environ[name]
