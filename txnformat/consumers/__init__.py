"""Consumers of topics: :class:`~txnformat.consumers.consumer.Consumer` and
:class:`~txnformat.consumers.subscription.Subscription`.

``membership`` is a consumer's place in its group, ``positions`` and ``placing`` say where it stands,
``reading`` and ``fetching`` fetch ahead, ``handing`` gives records to a caller that may be interrupted,
``committing`` keeps the group's positions, ``delivery`` is what a subscription hands out next. ``uncut``
makes each call whole or not at all.

May import: ``log`` and all rooms below it.
"""
