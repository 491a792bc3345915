"""Object stores that speak S3: AWS, and every other with atomic ``If-None-Match: *``.

``store`` is the adapter; ``client`` and ``session`` send each request once; ``errors`` says what an answer means, ``options`` what users may set.
"""
