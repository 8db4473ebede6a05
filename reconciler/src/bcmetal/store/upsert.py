"""INSERT … ON CONFLICT, which both databases spell alike: PostgreSQL's construct, which SQLAlchemy compiles for SQLite too."""

from sqlalchemy.dialects.postgresql import Insert, insert

__all__ = ["Insert", "insert"]
