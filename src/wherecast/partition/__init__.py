"""How subscriptions are spread over servers, and which servers an event is sent to."""
