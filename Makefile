.PHONY: demo test check bench
demo:
	scripts/demo
test:
	scripts/test
check:
	scripts/prepare dev && .venv/bin/ruff check . && .venv/bin/mypy && .venv/bin/lint-imports
bench:
	scripts/prepare dev && .venv/bin/python benchmarks/compare.py
