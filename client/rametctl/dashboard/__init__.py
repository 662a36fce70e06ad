"""The dashboard: all sessions on one screen, and one of them in full. It alone imports Textual."""
