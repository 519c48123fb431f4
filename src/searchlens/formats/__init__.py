"""Files of other tools: samples read from them (``readers``), put into pools (``pools``), and written (``export``)."""
