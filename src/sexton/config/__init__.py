"""Room `config`: text -> checked jobs and settings, every problem a finding with its place.

The way through: `load` finds the files, `document` turns text into YAML nodes, `mapping` walks them by the
tables in `schema`, `jobs` and `sections` build the model's values. `crontab` does the same for cron tables.
"""
