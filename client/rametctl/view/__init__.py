"""The view model: a current copy of the daemon's state for a user interface.

`View` follows the event log from one cursor: first a snapshot of the sessions, then every event. A
painter names what it shows (`View.want`), draws it, and asks `View.changes` for changes since.
Nothing in this package knows a terminal.
"""
