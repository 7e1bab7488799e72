"""An outside agent at work in a search: its process, its folder, and the referee that it submits kernels to.

`agent` is what a search asks, in place of a model. It starts the user's command (`program`, watched by `keeper`) in a
folder of its own (`workspace`). The command, or whatever it starts, submits kernels over a connection on the loopback
address (`client`, `referee`); they lie on the `desk` until the search takes them, and go back with their verdicts. So
builds, measurements and records are all made by the process of the search.
"""
