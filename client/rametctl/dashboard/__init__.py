"""The dashboard: all sessions on one screen, and one of them in full. Only this package imports Textual."""
