"""The processes between the daemon and a job: the zygote that forks supervisors, and the supervisor itself.

These modules run in an interpreter started with `-I -S`, so they import nothing but builtins, ctypes and each other.
`design` of the pair: docs/decisions/0002-supervisors.md.
"""
