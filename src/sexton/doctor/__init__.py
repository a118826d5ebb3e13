"""What this machine gives: each promise held against it by a real probe, and the one thing to change for a
stronger one.

`look()` functions ask the kernel, in short-lived child processes; `judge()` functions decide, and are pure.
"""
