"""The web page: a process of its own that serves a person's browser and is a gRPC client of the
daemon like the rest.

`server` binds the socket, `guard` checks every request, `access` keeps links and browser sessions,
`site` says what a page is and shares one view of the daemon among all tabs. A module of pages has
`PAGES` and `ACTIONS` and is named in `server.MODULES`; a page's template extends ``base.html``.
Only this package imports Starlette, uvicorn and Jinja.
"""
