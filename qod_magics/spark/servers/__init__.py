"""Spark Connect servers and the sessions on them: started, connected to, asked, measured."""
