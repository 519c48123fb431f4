"""Commands around a study: what is planned, how far it is, what is damaged or no longer used."""
