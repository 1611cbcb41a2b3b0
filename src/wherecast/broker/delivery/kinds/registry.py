"""Which kinds of routes there are: a kind is a module and a row."""

from __future__ import annotations

from wherecast.broker.delivery.addresses import AddressRules
from wherecast.broker.delivery.kinds.chat import ChatRoutes
from wherecast.broker.delivery.kinds.email import EmailRoutes
from wherecast.broker.delivery.kinds.feed import FeedRoutes, FindFeeds
from wherecast.broker.delivery.kinds.file import FileRoutes
from wherecast.broker.delivery.kinds.kind import RouteKind
from wherecast.broker.delivery.kinds.webhook import WebhookRoutes
from wherecast.broker.settings import Settings, SettingsError

KIND_NAMES = ("webhook", "email", "chat", "file", "feed")


def make_kinds(settings: Settings, find_feeds: FindFeeds) -> dict[str, RouteKind]:
    """The kinds of one process, by name."""
    try:
        rules = AddressRules(settings.webhook_allow)
    except ValueError as error:
        raise SettingsError(f"webhook_allow: {error}") from None
    return {
        "webhook": WebhookRoutes(rules, settings.webhook_timeout_s),
        "email": EmailRoutes(settings.smtp, settings.mail_from),
        "chat": ChatRoutes(settings.chat_services),
        "file": FileRoutes(settings.file_folder),
        "feed": FeedRoutes(find_feeds),
    }
