"""Control of a run from another terminal, through a Unix socket of the process that runs it.

`place` names and finds sockets, `server` answers inside the run, `client` sends requests. A request
is a line of JSON, and so is its answer; then the connection ends.
"""
