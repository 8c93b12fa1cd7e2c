# The usual ways to build, run and test carat on Debian 12. What is missing is installed first; see .ci/install-packages.
#   make run [PROMPT="What is nginx?"] [MODEL=path.gguf]
#   make test

CARAT := build/release/src/cli/carat
JOBS ?= $(shell nproc)
SOURCES = find src tests bench fuzz -path '*/node_modules' -prune -o -type f \
  \( -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) -print0

# Recipes read these from the environment, so that any text in them is safe.
export PROMPT MODEL

.PHONY: help build run test asan tsan fuzz format format-check install clean

help:
	@echo 'make run            talk to the demo model; PROMPT="..." asks once, MODEL=path.gguf takes your model'
	@echo 'make test           build and run all tests, then each fuzz target for twenty seconds'
	@echo 'make asan, tsan     the tests with address+undefined or thread sanitizers'
	@echo 'make format         format all sources; format-check only looks'
	@echo 'make build          only build (build/release/src/cli/carat)'
	@echo 'make install        install below PREFIX (default /usr/local)'

build:
	@.ci/install-packages build
	cmake --preset release
	cmake --build --preset release --target carat -j $(JOBS)

# Only words about the program itself on the screen: building is silent unless it fails.
run:
	@.ci/install-packages build
	@mkdir -p build
	@{ cmake --preset release && cmake --build --preset release --target carat -j $(JOBS); } > build/run.log 2>&1 \
	  || { cat build/run.log >&2; exit 1; }
	@if [ -n "$$PROMPT" ]; then exec $(CARAT) run $${MODEL:+-m "$$MODEL"} -p "$$PROMPT"; \
	  else exec $(CARAT) chat $${MODEL:+-m "$$MODEL"}; fi

test:
	@.ci/install-packages test
	cmake --preset release
	cmake --build --preset release -j $(JOBS)
	ctest --test-dir build/release --output-on-failure --no-tests=error -j $(JOBS)
	$(MAKE) --no-print-directory fuzz

fuzz:
	@.ci/install-packages test
	cmake --preset fuzz
	cmake --build --preset fuzz -j $(JOBS)
	ctest --test-dir build/fuzz --output-on-failure --no-tests=error -j $(JOBS)

asan tsan:
	@.ci/install-packages test
	cmake --preset $@
	cmake --build --preset $@ -j $(JOBS)
	ctest --test-dir build/$@ --output-on-failure --no-tests=error -j $(JOBS)

format:
	@$(SOURCES) | xargs -0 clang-format-14 -i

format-check:
	@.ci/install-packages test
	@$(SOURCES) | xargs -0 clang-format-14 --dry-run -Werror
	@echo 'All sources are formatted.'

install: build
	cmake --build --preset release -j $(JOBS)
	cmake --install build/release --prefix "$${PREFIX:-/usr/local}"

clean:
	rm -rf build
