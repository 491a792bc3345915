"""Which topics a read covers: named, or all whose name matches a pattern. Pure."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from spark_datasource.options.values import OptionValues
from txnformat.core.state import LogState, TopicState
from txnformat.errors import InvalidInputError, NotFoundError, TxnLogError
from txnformat.keys import check_topic_name
from txnformat.patterns import Pattern

__all__ = ["TopicChoice", "parse_topics"]


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """Topics by name, or by a pattern: one of the two."""

    names: tuple[str, ...] = ()
    """Sorted, none twice; empty with a pattern."""
    pattern: str | None = None
    """A regular expression that a whole name has to match."""

    def __str__(self) -> str:
        return self.pattern if self.pattern is not None else ",".join(self.names)

    def chosen(self, state: LogState, *, without: Container[str] = ()) -> list[TopicState]:
        """Return the topics by name; a pattern may match none.

        Raises NotFoundError ``unknown-topic`` for a name, but for those of ``without``.
        """
        if self.pattern is None:
            return [
                state.topic(name) for name in self.names if name in state.topic_ids or name not in without
            ]
        names = Pattern(self.pattern).matching(sorted(state.topic_ids))
        return [state.topics[state.topic_ids[name]] for name in names]

    def chosen_any(self, state: LogState) -> list[TopicState]:
        """As :meth:`chosen`; raises NotFoundError of kind ``unknown-topic`` also if no topic matches the
        pattern.
        """
        found = self.chosen(state)
        if not found:
            raise NotFoundError(
                "no topic matches the pattern",
                kind="unknown-topic",
                hint="the pattern must match a whole name; create a topic first, because the schema comes "
                "from it",
                pattern=self.pattern,
                topics=sorted(state.topic_ids)[:20],
            )
        return found


def parse_topics(found: OptionValues) -> TopicChoice:
    """Return what the options ``topic`` (``subscribe``) and ``subscribePattern`` say; problems go to
    ``found``.
    """
    text, pattern = found.text("topic"), found.text("subscribePattern")
    if pattern is not None:
        if text is not None:
            found.problems.append("give topic or subscribePattern, not both")
        try:
            Pattern(pattern)
        except InvalidInputError as error:
            found.problems.append(f"option subscribePattern: {error}")
        return TopicChoice(pattern=pattern)
    if text is None:
        found.problems.append("option topic is missing")
        return TopicChoice()
    names = set()
    for name in (part.strip() for part in text.split(",")):
        try:
            names.add(check_topic_name(name))
        except TxnLogError as error:
            found.problems.append(str(error))
    return TopicChoice(tuple(sorted(names)))
