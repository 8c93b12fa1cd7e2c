# The usual ways to build, run and test carat on Debian 12. What is missing is installed first; see .ci/install-packages.
#   make run [PROMPT="What is nginx?"] [MODEL=path.gguf] [CUDA=1]
#   make serve [MODEL=path.gguf] [PORT=8080]
#   make test

JOBS ?= $(shell nproc)
SOURCES = find src tests bench fuzz examples include -path '*/node_modules' -prune -o -type f \
  \( -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) -print0

# Recipes read these from the environment, so that any text in them is safe.
export PROMPT MODEL CUDA JOBS PORT
PACKAGE_PRESET = $(if $(filter 0,$(CUDA)),package-cpu,package)

.PHONY: help build run serve test test-system asan tsan fuzz format format-check install deb clean

help:
	@echo 'make run            talk to the demo model; PROMPT="..." asks once, MODEL=path.gguf takes your model,'
	@echo '                    CUDA=1 compiles for NVIDIA GPUs where no driver asks for it'
	@echo 'make serve          serve the demo model to OpenAI, Anthropic and Ollama clients; MODEL=path.gguf takes yours'
	@echo 'make test           build and run all tests, then each fuzz target for twenty seconds'
	@echo 'make test-system    the tests that need a browser or daemons; installs them and starts no service'
	@echo 'make asan, tsan     the tests with address+undefined or thread sanitizers'
	@echo 'make format         format all sources; format-check only looks'
	@echo 'make build          only build (build/release/src/cli/carat)'
	@echo 'make install        install below PREFIX (default /usr/local)'
	@echo 'make deb            Debian packages in build/package/deb; CUDA=0 leaves the GPUs out (build/package-cpu/deb)'

build:
	@.ci/install-packages build
	cmake --preset release
	cmake --build --preset release --target carat -j $(JOBS)

# Answers alone on standard output; what is being built, and for which devices, on standard error.
run:
	@.ci/install-packages build
	@carat=$$(scripts/build_to_run.sh) || exit 1; \
	if [ -n "$$PROMPT" ]; then exec "$$carat" run $${MODEL:+-m "$$MODEL"} -p "$$PROMPT"; \
	  else exec "$$carat" chat $${MODEL:+-m "$$MODEL"}; fi

serve:
	@.ci/install-packages build
	@carat=$$(scripts/build_to_run.sh) || exit 1; \
	exec "$$carat" serve $${MODEL:+-m "$$MODEL"} $${PORT:+--port "$$PORT"}

test:
	@.ci/install-packages test
	cmake --preset release
	cmake --build --preset release -j $(JOBS)
	ctest --test-dir build/release --output-on-failure --no-tests=error -LE system -j $(JOBS)
	$(MAKE) --no-print-directory fuzz

# What these need does not belong on everybody's workstation: .ci/install-packages says what, and how to remove it.
test-system:
	@.ci/install-packages test
	@.ci/install-packages test-system
	@.ci/install-packages package
	cmake --preset release
	cmake --build --preset release -j $(JOBS) --target system_tests
	ctest --test-dir build/release --output-on-failure --no-tests=error -L system -j $(JOBS)

fuzz:
	@.ci/install-packages test
	cmake --preset fuzz
	cmake --build --preset fuzz -j $(JOBS)
	ctest --test-dir build/fuzz --output-on-failure --no-tests=error -j $(JOBS)

asan tsan:
	@.ci/install-packages test
	cmake --preset $@
	cmake --build --preset $@ -j $(JOBS)
	ctest --test-dir build/$@ --output-on-failure --no-tests=error -LE system -j $(JOBS)

format:
	@$(SOURCES) | xargs -0 clang-format-14 -i

format-check:
	@.ci/install-packages test
	@$(SOURCES) | xargs -0 clang-format-14 --dry-run -Werror
	@echo 'All sources are formatted.'

install: build
	cmake --build --preset release -j $(JOBS)
	cmake --install build/release --prefix "$${PREFIX:-/usr/local}"

# One package for machines with and without GPUs where nvcc is found: docs/deploy.md has what that costs.
deb:
	@.ci/install-packages package
	cmake --preset $(PACKAGE_PRESET)
	cmake --build --preset $(PACKAGE_PRESET) -j $(JOBS)
	cd build/$(PACKAGE_PRESET) && rm -rf deb && cpack
	@ls build/$(PACKAGE_PRESET)/deb/*.deb

clean:
	rm -rf build
