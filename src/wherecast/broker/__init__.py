"""The broker: durable subscriptions, publish, live feeds and delivery over HTTP.

    app       the HTTP face: one router per resource; bodies, problems
     |
    feeds     readers that follow the event log: SSE, WebSocket
    delivery  another reader: tells subscribers by their routes
     |
    broker    what runs in one process: spaces with their engines, the writer, the follower
     |
    writer    one thread that makes all changes; concurrent requests share one commit
     |
    core      what a group of commands does to a space: commands and facts in, a decision out, no I/O
     |
    store     tables, one module per concern; SQLite or PostgreSQL

Only this package imports the web stack (extra `server`). `client` needs httpx alone (extra `client`).
"""
