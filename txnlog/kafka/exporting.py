"""x."""


class ExportReport: ...


def export_topics(): ...
