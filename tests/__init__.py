"""Tests of Ramet, and programs for developers."""

import os
import re
import time

# The contributor's shell must change no result, and no test anything of the contributor's. Git sets
# GIT_DIR and GIT_INDEX_FILE for hooks and for `git rebase --exec`: with them, each git of a test
# would change the contributor's own repository. GIT_CONFIG_* may sign commits; many proxies do not
# reach servers of this machine; times are shown in the local time zone; modes depend on the umask.
for name in [each for each in os.environ if re.fullmatch(r"GIT_.*|.*_PROXY", each, re.IGNORECASE)]:
    del os.environ[name]
os.environ["TZ"] = "UTC"
time.tzset()
os.umask(0o022)
