"""Telling people about runs: what is told (`events`, `facts`, `wording`, `templates`), how it travels (`mail`,
`webhook`, `shell`, `sentry`), and the queue in between (`outbox`). Nothing here runs on the event loop but `offer`."""
