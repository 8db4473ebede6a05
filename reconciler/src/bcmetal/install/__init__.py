"""What makes and administers an installation on the daemon's own host, without going through the API."""
