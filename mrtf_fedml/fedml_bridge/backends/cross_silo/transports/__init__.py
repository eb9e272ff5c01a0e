"""The four ways in which messages travel between server and silos."""
