"""The processes between the daemon and a job: the zygote that forks supervisors, and the supervisor itself.

These modules run in an interpreter started with `-I -S`, whose start a first run waits for: they import only ctypes,
modules that are built in or small, and each other (see `lean.py`). Design: docs/decisions/0002-supervisors.md.
"""
