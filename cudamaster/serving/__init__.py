"""Serves the harness to coding agents over the Model Context Protocol: `cudamaster mcp` (docs/agents.md).

`tools` are what an agent can call, `calls` runs one in a thread with progress and cancellation, `answers` are the short
results, `ledger` keeps what was spent and found, and `server` connects them to the protocol. Only this package imports
`mcp`.
"""
