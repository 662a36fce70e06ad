"""The view model: what the daemon holds, kept current for anything that draws it.

`View` follows the event log from one cursor: a snapshot of the sessions first, then every event. A painter
names what it shows (`View.want`), draws it, and asks with `View.changes` what has changed since. Nothing in
this package knows a terminal.
"""
