"""Control of a run from another terminal, through a Unix socket of the process that runs it.

`place` says where sockets lie and finds them, `server` answers inside the run, `client` asks.
A request is a line of JSON, and so is the answer; then the connection ends.
"""
