"""Delivery: matches find their subscribers wherever and however they want to be told.

    service   what runs in a process: follows the log, leases queues, sends, settles
     |
    kinds     a way to tell somebody: webhook, email, chat, feed, file; one row each
     |
    core      which delivery is tried when, by which route; no I/O, no clock
     |
    policy    quiet hours, backoff, rounds of routes
     |
    records   subscribers, routes, deliveries

`presence` knows who reads a feed, `addresses` keeps webhooks away from private networks, `templates` and `messages` write what is sent.
"""
