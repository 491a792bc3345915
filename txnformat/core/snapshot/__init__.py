"""A whole state as the bytes of one object, and back: ``codec`` the object, ``rows`` what its JSON section declares, the others what fills them. Pure."""
