"""The work behind the commands, from a composed config to a record on disk; the entry points only
call it.
"""
